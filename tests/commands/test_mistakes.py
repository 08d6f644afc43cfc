"""A user's mistake is one line on standard error, status 1 or 2, and nothing half-written."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SHAPE = (1, 1, 32, 32)


@pytest.fixture
def refused(command: Any, tmp_path: Path) -> Callable[..., str]:
    """Run a command that must fail, and return its message."""

    def run(*arguments: object) -> str:
        before = sorted(tmp_path.rglob("*"))
        done = command(*arguments)
        assert done.status in (1, 2)
        assert done.out == ""
        assert done.err.startswith("soc-pipeline: ")
        assert done.err.count("\n") == 1, done.err
        assert sorted(tmp_path.rglob("*")) == before
        return str(done.err)

    return run


@pytest.mark.parametrize("name", ["inspect", "plan", "bench"])
def test_a_model_that_is_not_there(refused: Any, tmp_path: Path, name: str) -> None:
    assert "no model at" in refused(name, tmp_path / "missing.onnx")


def test_text_that_is_called_onnx(refused: Any, tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("hello\n")
    assert "is not a valid ONNX model" in refused("inspect", tmp_path / "text.onnx")


def test_an_operator_that_is_not_supported_is_named(refused: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Det", ["y"], ["z"], name="odd one")]
    ends = [[helper.make_tensor_value_info(name, kind, shape)] for name, shape in (("x", [2, 2]), ("z", []))]
    graph = helper.make_graph(nodes, "graph", *ends)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "odd.onnx")
    assert "not supported: Det (node 'odd one')" in refused("inspect", tmp_path / "odd.onnx")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stages", "0"], "--stages is '0'; it must be a whole number of at least 1"),
        (["--stages", "two"], "--stages is 'two'"),
        (["--stages", "99"], "at most 15 stages"),
        (["--cut", "stem.pol"], "did you mean 'stem.pool'"),
        (["--cut", "1000"], "1000"),
        (["--board", "hots"], "unknown board 'hots'; "),
        (["--queue-depth", "0"], "--queue-depth is '0'"),
        (["--target", "cpu"], "--target 'cpu' must be like"),
        (["--target", "gpu.mcpu=x"], "has no device 'gpu'"),
        (["--board", "ultra96", "--target", "vta.fewest=3"], "device 'vta': a VTA's target has no 'fewest' = 3"),
        (["--board", "ultra96", "--target", "cpu.mcpu=cortex-a35x"], "LLVM knows no processor 'cortex-a35x'"),
        (["--shape", "image"], "is not INPUT=EXTENTS"),
        (["--shape", "picture=1,1,32,32"], "has no input 'picture'; it has image"),
    ],
)
def test_an_impossible_plan(refused: Any, digits_onnx: Path, arguments: list[str], message: str) -> None:
    assert message in refused("plan", digits_onnx, *arguments)


def test_a_plan_of_another_model(command: Any, refused: Any, digits_onnx: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    command("plan", digits_onnx, "-o", plan)
    head, key, digest = plan.read_text().partition('"digest": "')
    plan.write_text(head + key + digest[::-1][-64:][::-1].translate(str.maketrans("0123", "3012")) + digest[64:])
    assert "the plan is for another model" in refused("build", digits_onnx, "--plan", plan, "-o", tmp_path / "bundle")


@pytest.mark.parametrize(
    ("content", "message"), [(None, "make one with 'soc-pipeline plan'"), ("{", "not a plan"), ("{}", "plan")]
)
def test_a_file_that_is_no_plan(
    refused: Any, digits_onnx: Path, tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "plan.json").write_text(content)
    plan = tmp_path / "plan.json"
    assert message in refused("build", digits_onnx, "--plan", plan, "-o", tmp_path / "bundle")


def test_a_plan_and_other_cuts(refused: Any, digits_onnx: Path, tmp_path: Path) -> None:
    message = refused("build", digits_onnx, "--plan", "plan.json", "--stages", "2", "-o", tmp_path / "bundle")
    assert "--plan already says where to cut" in message


def test_no_place_for_results(refused: Any, digits_onnx: Path, bundle: Path, frames: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert "no folder" in refused("build", digits_onnx, "-o", missing / "bundle")
    assert "no such folder" in refused("plan", digits_onnx, "-o", missing / "plan.json")
    assert "no folder" in refused("run", bundle, "--input", frames, "--output", missing / "out.npz")
    assert "no folder" in refused("run", bundle, "--input", frames, "--trace", missing / "trace.json")
    (tmp_path / "file").write_text("kept")
    assert "is not a bundle; choose another name" in refused("build", digits_onnx, "-o", tmp_path / "file")
    assert "is a file" in refused("run", bundle, "--input", frames, "--output", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_closed_folder(refused: Any, digits_onnx: Path, bundle: Path, frames: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    assert str(closed / "plan.json") in refused("plan", digits_onnx, "-o", closed / "plan.json")
    for name in ("out.npz", "out"):
        assert str(closed / name) in refused("run", bundle, "--input", frames, "--output", closed / name)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a folder that is closed to root too")
def test_errors_name_the_file_that_was_asked_for(refused: Any, digits_onnx: Path) -> None:
    assert "/proc/plan.json" in refused("plan", digits_onnx, "-o", "/proc/plan.json")


@pytest.mark.parametrize("part", ["stage1.parameters", "stage0.so", "manifest.json"])
def test_a_bundle_with_one_byte_changed_names_the_part(
    refused: Any, bundle: Path, frames: Path, tmp_path: Path, part: str
) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(bundle, changed)
    data = bytearray((changed / part).read_bytes())
    data[len(data) // 2] ^= 1
    (changed / part).write_bytes(data)
    assert part in refused("run", changed, "--input", frames)


def test_what_is_no_bundle(refused: Any, frames: Path, tmp_path: Path) -> None:
    assert "does not exist" in refused("run", tmp_path / "missing", "--input", frames)
    (tmp_path / "folder").mkdir()
    assert "has no manifest.json" in refused("run", tmp_path / "folder", "--input", frames)
    assert "is not a bundle" in refused("run", frames, "--input", frames)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((1, 1, 28, 28), np.float32), "float32[1, 1, 28, 28] given, float32[1, 1, 32, 32] expected"),
        (np.zeros((32, 32), np.float32), "rank"),
        (np.zeros(SHAPE), "wrong dtype"),
        (np.zeros((0, *SHAPE), np.float32), "holds no frame"),
        (np.array([{"a": 1}], dtype=object), "is not a valid .npy file of plain arrays"),
    ],
)
def test_frames_that_do_not_fit(refused: Any, bundle: Path, tmp_path: Path, array: Any, message: str) -> None:
    np.save(tmp_path / "in.npy", array)
    assert message in refused("run", bundle, "--input", tmp_path / "in.npy", "--output", tmp_path / "out.npz")


def test_a_wrong_frame_late_in_the_stream_leaves_no_file(
    refused: Any, bundle: Path, frames: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "wrong.npy", np.zeros((1, 1, 28, 28), np.float32))
    assert "shape" in refused(
        "run", bundle, "--input", frames, tmp_path / "wrong.npy", "--output", tmp_path / "out.npz"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metrics", "http"], "--metrics is 'http'"),
        (["--metrics", "70000"], "from 1 to 65535"),
        (["--output", "out.txt"], "give a .npz file"),
    ],
)
def test_wrong_options_of_run(refused: Any, bundle: Path, frames: Path, arguments: list[str], message: str) -> None:
    assert message in refused("run", bundle, "--input", frames, *arguments)


def test_a_port_in_use(refused: Any, bundle: Path, frames: Path, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        out = tmp_path / "out.npz"
        assert "another program uses it" in refused(
            "run", bundle, "--input", frames, "--metrics", port, "--output", out
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--frames", "1"], "at least 2"),
        (["--frames", "x"], "--frames is 'x'"),
        (["--rounds", "0"], "--rounds is '0'"),
        (["--stages", "3"], "is a bundle and has its stages"),
        (["--cut", "block2.add"], "leave out --stages and --cut"),
    ],
)
def test_wrong_options_of_bench(refused: Any, bundle: Path, arguments: list[str], message: str) -> None:
    assert message in refused("bench", bundle, *arguments)


def test_wrong_options_of_demo(refused: Any, tmp_path: Path) -> None:
    assert ".png or .svg" in refused("demo", "--output", tmp_path / "timeline.jpg")
    assert "--stages is '0'" in refused("demo", "--stages", "0")


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["run"], ["plan", "m.onnx", "--stages", "2", "--cut", "a"]])
def test_wrong_use_shows_the_usage(command: Any, arguments: list[str]) -> None:
    done = command(*arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("usage: soc-pipeline")
