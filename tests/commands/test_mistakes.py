"""A user's mistake is one line on standard error, status 1 or 2, and nothing half-written."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from tests.support.time_limits import time_limit

SHAPE = (1, 1, 32, 32)


@pytest.fixture
def refusal(command: Any, tmp_path: Path) -> Callable[..., str]:
    """Run a command that must fail, and return its message."""

    def run(*arguments: object) -> str:
        previous_files = sorted(tmp_path.rglob("*"))
        result = command(*arguments)
        assert result.status in (1, 2)
        assert result.out == ""
        assert result.err.startswith("soc-pipeline: ")
        assert result.err.count("\n") == 1, result.err
        assert sorted(tmp_path.rglob("*")) == previous_files
        return str(result.err)

    return run


@pytest.mark.parametrize("name", ["inspect", "plan", "bench"])
def test_a_model_that_is_not_there(refusal: Any, tmp_path: Path, name: str) -> None:
    assert "no model at" in refusal(name, tmp_path / "missing.onnx")


@pytest.mark.parametrize("name", ["plan", "bench", "which"])
def test_tools_that_are_not_there(command: Any, digits_onnx: Path, name: str) -> None:
    board = "--boards" if name == "which" else "--board"
    result = command(name, digits_onnx, board, "rk3588", "--tool", "rknn=/none/python")
    assert (result.status, result.out) == (2, "")
    assert "no program '/none/python', which is to have rknn-toolkit2; run: make rknn; name its Python by --tool" in (
        result.err
    )
    result = command(name, digits_onnx, "--tool", "hailo=/none/python")
    assert result.status == 2
    assert "--tool is 'hailo=/none/python'; it must be rknn or vela, '='" in result.err


def test_text_that_is_called_onnx(refusal: Any, tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("hello\n")
    assert "is not a valid ONNX model" in refusal("inspect", tmp_path / "text.onnx")


def test_an_operator_that_is_not_supported_is_named(refusal: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Twist", ["y"], ["z"], name="odd one", domain="com.example"),
    ]
    ends = [[helper.make_tensor_value_info(name, kind, [2, 2])] for name in ("x", "z")]
    graph = helper.make_graph(nodes, "graph", *ends)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), tmp_path / "odd.onnx")
    message = "not supported: com.example.Twist (node 'odd one')"
    assert message in refusal("inspect", tmp_path / "odd.onnx", "--no-fallback")
    assert "neither TVM nor ONNX Runtime has: Twist (odd one)" in refusal("inspect", tmp_path / "odd.onnx")


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
        (["--board", "ultra96", "--target", "vta.simulated=1"], "simulated = 1; it must be true or false"),
        (["--board", "ultra96", "--target", "cpu.mcpu=cortex-a35x"], "LLVM knows no processor 'cortex-a35x'"),
        (["--shape", "image"], "it must be INPUT=EXTENTS"),
        (["--shape", f"image=1,1,32,{'9' * 5000}"], "it must be INPUT=EXTENTS"),
        (["--shape", "picture=1,1,32,32"], "has no input 'picture'; it has image"),
    ],
)
def test_an_impossible_plan(refusal: Any, digits_onnx: Path, arguments: list[str], message: str) -> None:
    assert message in refusal("plan", digits_onnx, *arguments)


@pytest.mark.parametrize("tolerance", ["nan", "inf", "-inf", "-0.5", "much"])
def test_a_tolerance_that_allows_everything(refusal: Any, digits_onnx: Path, tmp_path: Path, tolerance: str) -> None:
    message = refusal("build", digits_onnx, f"--tolerance={tolerance}", "-o", tmp_path / "bundle")
    assert f"--tolerance is '{tolerance}'; it must be a share such as 0.001, steps such as 2steps" in message


def test_a_number_of_thousands_of_digits(refusal: Any, digits_onnx: Path) -> None:
    assert "must be a whole number of at least 1" in refusal("plan", digits_onnx, "--stages", "9" * 5000)


def test_a_wrong_number_is_refused_before_anything_heavy_is_imported(root: Path) -> None:
    code = "import sys; from pipeline import cli; status = cli.main(['plan', 'm.onnx', '--fps', 'many']); "
    code += "print(status, *sorted({'numpy', 'onnx', 'tvm', 'tvm_ffi'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("2\n", "soc-pipeline: --fps is 'many'; it must be a number above 0\n")


def test_a_plan_of_another_model(command: Any, refusal: Any, digits_onnx: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    command("plan", digits_onnx, "-o", plan)
    head, key, digest = plan.read_text().partition('"digest": "')
    plan.write_text(head + key + digest[::-1][-64:][::-1].translate(str.maketrans("0123", "3012")) + digest[64:])
    assert "the plan is for another model" in refusal("build", digits_onnx, "--plan", plan, "-o", tmp_path / "bundle")


@pytest.mark.parametrize(
    ("content", "message"), [(None, "make one with 'soc-pipeline plan'"), ("{", "not a plan"), ("{}", "plan")]
)
def test_a_file_that_is_no_plan(
    refusal: Any, digits_onnx: Path, tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "plan.json").write_text(content)
    plan = tmp_path / "plan.json"
    assert message in refusal("build", digits_onnx, "--plan", plan, "-o", tmp_path / "bundle")


def test_a_plan_and_other_cuts(refusal: Any, digits_onnx: Path, tmp_path: Path) -> None:
    options = ["--stages", "2", "--no-replicas", "--fps", "3"]
    message = refusal("build", digits_onnx, "--plan", "plan.json", *options, "-o", tmp_path / "bundle")
    assert "--plan already says where to cut" in message
    assert "leave out --stages, --fps, --no-replicas\n" in message


def test_no_place_for_a_plan(refusal: Any, tmp_path: Path) -> None:
    """It is looked for before the model, which may take minutes to be measured."""
    assert "there is no such folder" in refusal("plan", "none.onnx", "-o", tmp_path / "none" / "plan.json")
    assert "it is a folder" in refusal("plan", "none.onnx", "-o", tmp_path)


def test_no_place_for_results(refusal: Any, digits_onnx: Path, bundle: Path, frames: Path, tmp_path: Path) -> None:
    folder = tmp_path / "missing"
    assert "no folder" in refusal("build", digits_onnx, "-o", folder / "bundle")
    assert "no such folder" in refusal("plan", digits_onnx, "-o", folder / "plan.json")
    assert "no folder" in refusal("run", bundle, "--input", frames, "--output", folder / "out.npz")
    assert "no folder" in refusal("run", bundle, "--input", frames, "--trace", folder / "trace.json")
    (tmp_path / "file").write_text("kept")
    assert "is not a bundle; choose another name" in refusal("build", digits_onnx, "-o", tmp_path / "file")
    assert "is a file" in refusal("run", bundle, "--input", frames, "--output", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "kept"


def test_a_closed_folder(refusal: Any, digits_onnx: Path, bundle: Path, frames: Path, tmp_path: Path) -> None:
    closure = tmp_path / "closed"
    closure.mkdir(mode=0o500)
    if os.access(closure, os.W_OK):
        # Not even root makes files here.
        closure = Path("/proc")
        if not closure.exists():
            pytest.skip("this system has no folder that is closed to root")
    assert str(closure / "plan.json") in refusal("plan", digits_onnx, "-o", closure / "plan.json")
    for name in ("out.npz", "out"):
        assert str(closure / name) in refusal("run", bundle, "--input", frames, "--output", closure / name)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="this system has no folder that is closed to root")
def test_errors_name_the_file_that_was_asked_for(refusal: Any, digits_onnx: Path) -> None:
    assert "/proc/plan.json" in refusal("plan", digits_onnx, "-o", "/proc/plan.json")


@pytest.mark.parametrize("part", ["stage1.parameters", "stage0.so", "manifest.json"])
def test_a_bundle_with_one_byte_changed_names_the_part(
    refusal: Any, bundle: Path, frames: Path, tmp_path: Path, part: str
) -> None:
    variant = tmp_path / "changed"
    shutil.copytree(bundle, variant)
    data = bytearray((variant / part).read_bytes())
    data[len(data) // 2] ^= 1
    (variant / part).write_bytes(data)
    assert part in refusal("run", variant, "--input", frames)


def test_what_is_no_bundle(refusal: Any, frames: Path, tmp_path: Path) -> None:
    assert "does not exist" in refusal("run", tmp_path / "missing", "--input", frames)
    (tmp_path / "folder").mkdir()
    assert "has no manifest.json" in refusal("run", tmp_path / "folder", "--input", frames)
    assert "is not a bundle" in refusal("run", frames, "--input", frames)


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
def test_frames_that_do_not_fit(refusal: Any, bundle: Path, tmp_path: Path, array: Any, message: str) -> None:
    np.save(tmp_path / "in.npy", array)
    assert message in refusal("run", bundle, "--input", tmp_path / "in.npy", "--output", tmp_path / "out.npz")


def test_a_wrong_frame_late_in_the_stream_leaves_the_results_before_it(
    command: Any, bundle: Path, frames: Path, tmp_path: Path
) -> None:
    mistake, out = tmp_path / "wrong.npy", tmp_path / "out.npz"
    np.save(mistake, np.zeros((1, 1, 28, 28), np.float32))
    result = command("run", bundle, "--input", frames, mistake, "--output", out)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith("soc-pipeline: ")
    assert "shape" in result.err
    with np.load(out) as archive:
        (results,) = archive.values()
    assert results.shape == (len(np.load(frames)), 1, 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metrics", "http"], "--metrics is 'http'"),
        (["--metrics", "70000"], "--metrics is '70000'; it must be a port"),
        (["--output", "out.txt"], "give a .npz file"),
    ],
)
def test_wrong_options_of_run(refusal: Any, bundle: Path, frames: Path, arguments: list[str], message: str) -> None:
    assert message in refusal("run", bundle, "--input", frames, *arguments)


def test_a_port_in_use(refusal: Any, bundle: Path, frames: Path, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    with socket.create_server(("127.0.0.1", 0)) as names:
        port = names.getsockname()[1]
        out = tmp_path / "out.npz"
        assert "another program uses it" in refusal(
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
def test_wrong_options_of_bench(refusal: Any, bundle: Path, arguments: list[str], message: str) -> None:
    assert message in refusal("bench", bundle, *arguments)


def test_wrong_options_of_demo(refusal: Any, tmp_path: Path) -> None:
    assert ".png or .svg" in refusal("demo", "--output", tmp_path / "timeline.jpg")
    assert "--stages is '0'" in refusal("demo", "--stages", "0")


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["run"], ["plan", "m.onnx", "--stages", "2", "--cut", "a"]])
def test_wrong_use_shows_the_usage(command: Any, arguments: list[str]) -> None:
    result = command(*arguments)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("usage: soc-pipeline")


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "MODEL", "--output", ""],
        ["plan", "MODEL", "--output="],
        ["build", "MODEL", "-o", ""],
        ["build", "MODEL", "--plan", "", "-o", "x.bundle"],
        ["run", "x.bundle", "--input", "x.npy", "--output", ""],
        ["run", "x.bundle", "--input", ""],
        ["run", "", "--input", "x.npy"],
        ["convert", "MODEL", "-o", ""],
        ["simulate", "MODEL", "--drawing", ""],
        ["tune", "MODEL", "--database", ""],
        ["quantize", "MODEL", "--input", "x.npy", "-o", ""],
        ["serve", "--bundles", ""],
        ["inspect", ""],
    ],
)
def test_an_empty_path_is_refused(refusal: Any, digits_onnx: Path, arguments: list[str]) -> None:
    """``--output "$OUT"`` with a variable that was not set wrote nothing, and returned 0."""
    message = refusal(*(str(digits_onnx) if each == "MODEL" else each for each in arguments))
    assert "empty" in message


def test_a_number_of_thousands_of_digits_is_refused(refusal: Any, digits_onnx: Path, tmp_path: Path) -> None:
    digits = "9" * 4301
    plan, board = tmp_path / "plan.json", tmp_path / "board.toml"
    for arguments in (
        ["plan", digits_onnx, "--stages", digits],
        ["serve", "--port", digits],
        ["serve", "--sessions", digits],
        ["serve", "--cores", digits],
        ["serve", "--cores", f"0-{digits}"],
        ["plan", digits_onnx, "--cut", digits],
        ["plan", digits_onnx, "--board", "ultra96", "--target", f"vta.block={digits}"],
    ):
        assert "999" in refusal(*arguments)
    board.write_text(f'name = "b"\nx = {digits}\n')
    plan.write_text(f'{{"format": 1, "x": {digits}}}')
    assert "not a TOML file" in refusal("plan", digits_onnx, "--board", board)
    assert "not a plan" in refusal("simulate", plan)


def test_names_that_are_no_utf8(command: Any, small_onnx: Path, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    model, bundle, results = (os.fsdecode(folder + name) for name in (b"/m\xff.onnx", b"/b\xff.bundle", b"/r\xff.npz"))
    shutil.copyfile(small_onnx, model)
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 4, 8, 8), np.float32))
    result = command("inspect", bundle)
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "no model at" in result.err
    assert command("build", model, "--stages", "1", "-o", bundle, "--json").status == 0
    assert command("run", bundle, "--input", tmp_path / "x.npy", "--output", results).status == 0
    assert Path(results).stat().st_size


def test_libraries_in_cpp_read_models_whose_names_are_no_utf8(command: Any, small_onnx: Path, tmp_path: Path) -> None:
    """Their bindings to Python refuse such a name with a `TypeError`."""
    pytest.importorskip("onnxruntime")
    folder = os.fsencode(tmp_path)
    model, quantized = (os.fsdecode(folder + name) for name in (b"/m\xff.onnx", b"/q\xff.onnx"))
    shutil.copyfile(small_onnx, model)
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 4, 8, 8), np.float32))
    result = command("quantize", model, "--calibrate", tmp_path / "x.npy", "-o", quantized)
    assert (result.status, result.err) == (0, "")
    result = command("build", model, "--stages", "1", "-o", tmp_path / "m.bundle", "--verify")
    assert result.status == 0, result.err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_refused_where_a_file_is_due(
    command: Any, digits_onnx: Path, bundle: Path, frames: Path, tmp_path: Path
) -> None:
    """Each of these waited for somebody who writes to the pipe, or replaced it by a file."""
    pipes, plan = tmp_path / "pipes", tmp_path / "digits.json"
    pipes.mkdir()
    pipeline.Bundle.load(bundle).plan.save(plan)
    files_before = sorted(tmp_path.iterdir())
    doors: dict[str, Callable[[Path], list[object]]] = {
        "in.npy": lambda pipe: ["run", bundle, "--input", pipe],
        "in.png": lambda pipe: ["run", bundle, "--input", pipe],
        "labels.txt": lambda pipe: [
            "run", bundle, "--input", frames, "--sink", f"{tmp_path / 'o.mp4'}?show=label&labels={pipe}",
        ],
        "out.npz": lambda pipe: ["run", bundle, "--input", frames, "--output", pipe],
        "out.mp4": lambda pipe: ["run", bundle, "--input", frames, "--sink", pipe],
        "trace.json": lambda pipe: ["run", bundle, "--input", frames, "--trace", pipe],
        "plan.json": lambda pipe: ["plan", digits_onnx, "--stages", "1", "-o", pipe],
        "measured.json": lambda pipe: ["simulate", plan, "--drawing", tmp_path / "d.svg", "--against", pipe],
        "tuning.json": lambda pipe: ["tune", digits_onnx, "--database", pipe],
        "used.json": lambda pipe: ["build", digits_onnx, "--tuning", pipe, "-o", tmp_path / "b.bundle"],
        "right.npy": lambda pipe: [
            "quantize", digits_onnx, "--calibrate", frames, "--labels", pipe, "-o", tmp_path / "q.onnx",
        ],
        "stream.bin": lambda pipe: ["vta", "disassemble", pipe],
        "vta.json": lambda pipe: ["vta", "disassemble", frames, "--config", pipe],
    }  # fmt: skip
    for name, arguments in doors.items():
        pipe = pipes / name
        os.mkfifo(pipe)
        with time_limit(60):
            result = command(*arguments(pipe))
        assert (result.status in {1, 2}, result.err.count("\n")) == (True, 1), (name, result)
        assert f"{pipe}" in result.err, name
        assert "it is a pipe or a device, not a file" in result.err, name
    assert sorted(tmp_path.iterdir()) == files_before
    assert sorted(path.name for path in pipes.iterdir() if path.is_fifo()) == sorted(doors)
