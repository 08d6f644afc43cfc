"""Arrays of soc-run: files of every form, inputs of several lengths, and rows that say whose they are."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pipeline
from tests.runner.test_program import soc_run
from tests.support.arithmetic_bundles import FACTORS, FAILING

pytestmark = pytest.mark.thorough

SHAPE = (1, 1, 32, 32)
CONTENT = np.zeros(SHAPE, np.float32).tobytes()
HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 32, 32), }"


def npy(header: str, version: int = 1) -> bytes:
    """Return a file with a header and the content of one frame."""
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode("latin1") + CONTENT


READABLE = {
    "a long header": npy(HEADER + " " * 1_000_000 + "\n", 2),
    "another order": npy("{'shape': (1, 1, 32, 32), 'fortran_order': False, 'descr': '<f4'}", 3),
    "no spaces": npy("{'descr':'<f4','fortran_order':False,'shape':(1,1,32,32)}"),
}


@pytest.mark.parametrize("name", READABLE)
def test_a_header_has_any_length_and_order(built: Path, digits: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "image.npy").write_bytes(READABLE[name])
    result = soc_run(built, digits, "--input", tmp_path / "image.npy")
    assert (result.returncode, result.stderr) == (0, "")


UNREADABLE = {
    "a long shape": HEADER.replace("1, 1, 32", "1, " * 500_000),
    "a long text": HEADER.replace("<f4", "f" * 1_000_000),
    "a long name": HEADER.replace("descr", "d" * 1_000_000),
    "many brackets": "{'shape': " + "(" * 1_000_000,
    "a number without end": HEADER.replace("32, 32", "9" * 100_000),
    "more than memory": HEADER.replace("32, 32", "9223372036854775807, 9223372036854775807"),
    "a number below zero": HEADER.replace("32, 32", "-32, -32"),
    "numbers without a comma": HEADER.replace("32, 32", "32 32"),
    "fields": HEADER.replace("'<f4'", "[('a', '<f4')]"),
    "no shape": "{'descr': '<f4', 'fortran_order': False}",
    "nothing": "",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_header_that_cannot_be_is_told(built: Path, digits: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "image.npy").write_bytes(npy(UNREADABLE[name], 2))
    result = soc_run(built, digits, "--input", tmp_path / "image.npy")
    assert result.returncode == 1
    assert "image.npy' " in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert len(result.stderr) < 500


def test_changed_headers_never_end_the_program(built: Path, digits: Path, tmp_path: Path) -> None:
    draw = random.Random(5)
    for number in range(60):
        data = bytearray(npy(HEADER))
        for _ in range(draw.randint(1, 3)):
            data[draw.randrange(len(data) - len(CONTENT))] = draw.choice(b"'(){},:0123456789 \x00\xff<f")
        (tmp_path / "image.npy").write_bytes(data)
        result = soc_run(built, digits, "--input", tmp_path / "image.npy")
        assert result.returncode in {0, 1}, (number, bytes(data[:90]), result.stderr)


@pytest.fixture
def run_sum(built: Path, tmp_path: Path) -> Callable[..., str]:
    """Run a bundle that adds two inputs; return its message, or its output."""
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "ab"]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "sum", inputs, [output])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "m.onnx")
    model = pipeline.read(tmp_path / "m.onnx")
    pipeline.build(model, pipeline.plan(model, stages=1), check=False).save(tmp_path / "sum.bundle")

    def run(a: np.ndarray, b: np.ndarray, *options: str) -> str:
        np.save(tmp_path / "a.npy", a)
        np.save(tmp_path / "b.npy", b)
        files = [str(tmp_path / name) for name in ("a.npy", "b.npy", "y.npy")]
        line = ["--input", files[0], "--input", files[1], "--output", files[2], *options]
        result = soc_run(built, tmp_path / "sum.bundle", *line)
        return result.stderr if result.returncode else str(np.load(files[2])[..., 0].tolist())

    return run


def rows(count: int, factor: float = 1) -> np.ndarray:
    return np.repeat(np.arange(count, dtype=np.float32)[:, None] * np.float32(factor), 4, axis=1)


@pytest.mark.parametrize("options", [(), ("--bench", "9")])
def test_inputs_of_unequal_lengths_are_refused(run_sum: Callable[..., str], options: tuple[str, ...]) -> None:
    message = run_sum(rows(5), rows(3), *options)
    assert "b.npy' has 3 frames, but " in message
    assert "a.npy' has 5;" in message
    assert "b.npy' has 1 frames, but " in run_sum(rows(5), rows(1), *options)


def test_frames_of_several_inputs_belong_together(run_sum: Callable[..., str]) -> None:
    assert run_sum(rows(5), rows(5, 100)) == "[0.0, 101.0, 202.0, 303.0, 404.0]"
    assert run_sum(rows(3), np.full(4, 7, np.float32)) == "[7.0, 8.0, 9.0]"
    assert run_sum(rows(3)[1], rows(3)[2]) == "3.0"


def test_rows_have_the_numbers_of_their_frames(built: Path, native: Path, faulty: Path, tmp_path: Path) -> None:
    run = partial(run_faulty, built, native, faulty, tmp_path)
    good = [number for number in range(40) if number % 16 not in FAILING]
    message, outputs, numbers = run(40, "--numbers", str(tmp_path / "numbers.npy"))
    assert numbers is not None
    assert numbers.tolist() == outputs[:, 0].tolist() == good
    assert message == [
        f"error: frame {number} failed in s{0 if number % 16 == FAILING[0] else 2}: now and then"
        for number in range(40)
        if number not in good
    ]
    message, outputs, _ = run(40)
    assert message[-1] == "note: 5 of 40 frames have no row in --output; --numbers FILE tells the frame of each row"
    assert outputs[:, 1].tolist() == [number * np.prod(FACTORS) for number in good]


def test_lines_of_failed_frames_have_an_end(built: Path, native: Path, faulty: Path, tmp_path: Path) -> None:
    message, outputs, _ = run_faulty(built, native, faulty, tmp_path, 400)
    assert len(message) == 22
    assert message[-2] == "error: 50 of 400 frames failed"
    assert len(outputs) == 350


def test_one_frame_that_fails_leaves_no_row(built: Path, native: Path, faulty: Path, tmp_path: Path) -> None:
    _, outputs, _ = run_faulty(built, native, faulty, tmp_path, 1, first=FAILING[0])
    assert outputs.shape == (0, 2)


def test_dropped_frames_have_no_number(built: Path, native: Path, faulty: Path, tmp_path: Path) -> None:
    numbers_file = str(tmp_path / "numbers.npy")
    _, outputs, numbers = run_faulty(built, native, faulty, tmp_path, 2000, "--latest", "--numbers", numbers_file)
    assert numbers is not None
    assert outputs[:, 0].tolist() == numbers.tolist()
    assert len(numbers) > 0


def run_faulty(
    built: Path, native: Path, faulty: Path, folder: Path, count: int, *options: str, first: int = 0
) -> tuple[list[str], np.ndarray, np.ndarray | None]:
    """Stream frames that are their numbers; return what was said, the outputs, and the rows' numbers if asked for."""
    np.save(folder / "x.npy", np.repeat(np.arange(first, first + count)[:, None], 2, axis=1))
    preload = {**os.environ, "LD_PRELOAD": str(native / "libarithmetic.so")}
    line = ["--input", folder / "x.npy", "--output", folder / "y.npy", *options]
    result = soc_run(built, faulty, *line, environment=preload)
    assert result.returncode == ("error: " in result.stderr)
    numbers = np.load(folder / "numbers.npy") if "--numbers" in options else None
    return result.stderr.splitlines(), np.load(folder / "y.npy"), numbers
