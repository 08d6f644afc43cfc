"""Devices of vendors: a command compiles their stages, and a loader of another package runs them."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan
from pipeline.errors import BoardError, BuildError, MissingExtra, StageError
from pipeline.executor import detection, devices, targets
from pipeline.executor.devices.litert import LiteRtRuntime
from pipeline.executor.devices.vendor_loader import GROUP
from tests.support.distributions import write_distribution
from tests.support.onnx_models import by_onnxruntime, node, save, weights

pytestmark = pytest.mark.thorough

# A tool that packs a model, and a loader that unpacks it and runs it by ONNX Runtime.
COMPILER = """
import sys, zlib
from pathlib import Path
Path(sys.argv[2]).write_bytes(b"ZIP " + zlib.compress(Path(sys.argv[1]).read_bytes()))
"""

LOADERS = """
import zlib
from pathlib import Path

import onnxruntime

CALLS = []


class ZipLoader:
    def __init__(self, options, cores):
        self.options = options
        CALLS.append(("create", dict(options), tuple(cores)))

    @staticmethod
    def why_absent(options):
        return options.get("absence", "")

    def open(self, artifact, inputs, outputs):
        CALLS.append(("open", artifact, [spec.name for spec in inputs], [spec.name for spec in outputs]))
        content = artifact.read_bytes()
        model = zlib.decompress(content[4:]) if content.startswith(b"ZIP ") else content
        return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    def run(self, program, arrays):
        if self.options.get("breaks"):
            raise RuntimeError("the device is too hot")
        names = [value.name for value in program.get_inputs()]
        results = program.run(None, dict(zip(names, arrays, strict=True)))
        return results[1:] if self.options.get("forgets") else results

    def stop(self):
        CALLS.append(("stop",))

    def close(self):
        CALLS.append(("close",))


class Half:
    def open(self, artifact, inputs, outputs): ...
"""

NETWORK = (
    node("Conv", "x w", "a", "first", pads=[1, 1, 1, 1]),
    node("Relu", "a", "b", "middle"),
    node("Conv", "b w", "y", "last", pads=[1, 1, 1, 1]),
)
SHAPE = (1, 4, 6, 6)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What the loader was called with; it is installed as ``zip``."""
    pytest.importorskip("onnxruntime")
    site = tmp_path / "site"
    site.mkdir()
    write_distribution(
        site, "zip_loaders", LOADERS, {GROUP: {"zip": "zip_loaders:ZipLoader", "half": "zip_loaders:Half"}}
    )
    monkeypatch.syspath_prepend(site)
    import zip_loaders  # type: ignore[import-not-found]

    yield zip_loaders.CALLS
    del sys.modules["zip_loaders"]


@pytest.fixture
def compiler(tmp_path: Path) -> str:
    return tool(tmp_path / "compiler.py", COMPILER, "{stage}.onnx {artifact}")


def tool(path: Path, text: str, arguments: str) -> str:
    """Return the command of a tool that is a Python program."""
    path.write_text(text, encoding="utf-8")
    return f"{shlex.join([sys.executable, str(path)])} {arguments}"


def planned(path: Path, **target: Any) -> tuple[Any, Plan]:
    """Return a network of two convolutions, and its plan with the second one on a vendor's device."""
    graph = pipeline.read(save(path, NETWORK, {"x": SHAPE}, ["y"], {"w": weights(4, 4, 3, 3) / 6}))
    npu = Device("npu", "vendor", target={"kind": "vendor", "loader": "zip", **target})
    return graph, pipeline.plan(graph, Board("b", (Device("cpu"), npu)), devices=["cpu", "npu"])


def test_a_stage_is_compiled_saved_loaded_and_run(calls: list[Any], compiler: str, tmp_path: Path) -> None:
    graph, plan = planned(tmp_path / "m.onnx", compile=compiler, options={"mode": 3})
    pipeline.build(graph, plan).save(tmp_path / "m.bundle")
    assert (tmp_path / "m.bundle" / "stage1.artifact").read_bytes().startswith(b"ZIP ")
    assert '"runtime_version": "loader zip (zip_loaders 1.0)"' in (tmp_path / "m.bundle" / "manifest.json").read_text()
    calls.clear()
    frames = [{"x": weights(*SHAPE, seed=seed)} for seed in range(3)]
    with pipeline.load(tmp_path / "m.bundle") as running:
        results = list(running.map(frames))
        assert running.plan.stages[1].device == "npu"
        artifact = calls[1][1]
        assert artifact.name == "stage.artifact"
    assert calls == [("create", {"mode": 3}, ()), ("open", artifact, ["b"], ["y"]), ("close",)]
    assert not artifact.exists()
    for frame, result in zip(frames, results, strict=True):
        np.testing.assert_allclose(result, by_onnxruntime(tmp_path / "m.onnx", frame)["y"], atol=1e-5)


def test_without_a_command_the_model_is_loaded_as_it_is(calls: list[Any], tmp_path: Path) -> None:
    graph, plan = planned(tmp_path / "m.onnx")
    bundle = pipeline.build(graph, plan)
    assert bundle.parity.largest_error < 1e-4
    assert calls[1][1].name == "stage.onnx"
    bundle.save(tmp_path / "m.bundle")
    assert (tmp_path / "m.bundle" / "stage1.onnx").is_file()


def test_the_artifact_has_the_name_that_the_tool_gives_it(calls: list[Any], tmp_path: Path) -> None:
    text = COMPILER.replace("Path(sys.argv[2])", "Path(sys.argv[1].replace('.onnx', '_z.rknn'))")
    command = tool(tmp_path / "compiler.py", text, "{stage}.onnx")
    pipeline.build(*planned(tmp_path / "m.onnx", compile=command, artifact="{stage}_z.rknn"))
    assert calls[1][1].name == "stage_z.rknn"


def failure(tmp_path: Path, command: str, **target: Any) -> str:
    with pytest.raises(BuildError) as caught:
        pipeline.build(*planned(tmp_path / "m.onnx", compile=command, **target), check=False)
    return str(caught.value)


def test_a_command_that_fails_is_shown_with_its_output(calls: list[Any], tmp_path: Path) -> None:
    text = "import os, sys; print(os.getcwd()); print('\\x1b[31mno such operator', file=sys.stderr); sys.exit(3)"
    message = failure(tmp_path, tool(tmp_path / "t.py", text, "{stage}.onnx {artifact}"))
    first, folder, last = message.splitlines()
    assert "{stage}.onnx" in first
    assert first.startswith("stage 'stage1': ")
    assert first.endswith("ended with status 3:")
    assert last == "[31mno such operator"
    assert not Path(folder).exists()
    assert calls == []


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "was ended by signal 9, and printed nothing"),
        ("pass", r"ended well, but wrote no 'stage\.artifact'"),
        ("import sys; open(sys.argv[1], 'w')", r"ended well, but wrote no 'stage\.artifact'"),
    ],
)
def test_a_command_that_makes_nothing_is_an_error(tmp_path: Path, text: str, cause: str) -> None:
    assert re.search(cause, failure(tmp_path, tool(tmp_path / "t.py", text, "{artifact}")))


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    message = failure(tmp_path, "rknn_convert_of_nobody {stage}.onnx {artifact}")
    assert "'rknn_convert_of_nobody'; install it, or name its path" in message
    assert "No such file" in failure(tmp_path, "./nowhere/tool {artifact}")


def test_a_command_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = (
        "import os, subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', 'import time; "
        f"time.sleep(600)']); open({str(pids)!r}, 'w').write(str(child.pid)); time.sleep(600)"
    )
    message = failure(tmp_path, tool(tmp_path / "t.py", text, "{artifact}"), time_limit_s=3)
    assert "takes more than 3 s; set time_limit_s" in message
    # On a busy machine it may not have come so far.
    while pids.exists() and is_running(int(pids.read_text())):
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Tell if a process computes; one that has ended may wait for whoever inherits it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_nodes_that_the_tool_cannot_take_are_named(calls: list[Any], compiler: str, tmp_path: Path) -> None:
    text = "import sys, onnx; print(*(n.name for n in onnx.load(sys.argv[1]).graph.node), sep='\\n')"
    supported = tool(tmp_path / "supported.py", text, "{stage}.onnx")
    graph, plan = planned(tmp_path / "m.onnx", compile=compiler)

    def build_with(**target: Any) -> None:
        # After planning, which asks as well.
        pipeline.build(graph, replace(plan, board=plan.board.with_target("npu", target)))

    with pytest.raises(BuildError, match=r"elsewhere than on 'npu': last \(it cannot take it\); cut the model"):
        build_with(supported=supported)
    build_with(supported=supported, allow_fallback=True)
    nothing = tool(tmp_path / "nothing.py", "print()", "{stage}.onnx")
    build_with(supported=nothing)
    broken = tool(tmp_path / "broken.py", "raise SystemExit('no licence')", "{stage}.onnx")
    with pytest.raises(BuildError, match=r"ended with status 1:\nno licence"):
        build_with(supported=broken)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"loader": "os:system"}, "loader is 'os:system'; it must be the name of an entry point"),
        ({"loader": 3}, "loader is 3"),
        ({"loder": "zip"}, "has the key 'loder'.*did you mean 'loader'"),
        ({"format": "tflit"}, "format is 'tflit'.*did you mean 'tflite'"),
        ({"options": [1]}, "options is .*it must be a table"),
        ({"compile": "tool {stage}.onnx"}, r"compile does not name \{artifact\}"),
        ({"compile": "tool {artefact}"}, r"placeholder \{artefact\}.*did you mean 'artifact'"),
        ({"compile": "tool 'x {artifact}"}, "which is no command: No closing quotation"),
        ({"compile": ""}, "it must be a command"),
        ({"supported": ["tool"]}, "it must be a command"),
        (
            {"compile": "t {artifact}", "artifact": "../../{stage}.x"},
            "artifact is .*it must be '{stage}' and an ending",
        ),
        ({"compile": "t {artifact}", "artifact": "{stage}/../../x"}, "artifact is "),
        ({"compile": "t {artifact}", "time_limit_s": 0}, "time_limit_s is 0; it must be seconds above 0"),
    ],
)
def test_a_target_that_cannot_be_is_refused(target: dict[str, Any], message: str) -> None:
    board = Board("b", (Device("npu", "vendor", target={"kind": "vendor", "loader": "zip", **target}),))
    with pytest.raises(BoardError, match=rf"b\.toml: device 'npu': .*{message}"):
        targets.check(board, "b.toml")


def test_a_missing_loader_is_named_when_a_bundle_is_loaded(calls: list[Any], compiler: str, tmp_path: Path) -> None:
    graph, plan = planned(tmp_path / "m.onnx", compile=compiler, loader="zipp")
    pipeline.build(graph, plan).save(tmp_path / "m.bundle")
    with pytest.raises(
        MissingExtra, match=r"there is no loader 'zipp'; install a package .*are half, zip\).*mean 'zip'"
    ):
        pipeline.load(tmp_path / "m.bundle")
    assert "examples/vendors/rknn.py" in devices.why_absent(Device("npu", "vendor", target={"loader": "rknn"}))


@pytest.mark.usefixtures("calls")
def test_a_loader_says_what_is_missing(compiler: str, tmp_path: Path) -> None:
    graph, plan = planned(tmp_path / "m.onnx", compile=compiler, options={"absence": "there is no /dev/npu0"})
    bundle = pipeline.build(graph, plan)
    bundle.save(tmp_path / "m.bundle")
    with pytest.raises(MissingExtra, match="stage1 is for a device that is not here: there is no /dev/npu0"):
        pipeline.load(tmp_path / "m.bundle")
    half = replace(plan.board.devices[1], target={"loader": "half"})
    assert "must be a class with open, run, close" in devices.why_absent(half)


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("breaks", "stage 'stage1' on device 'npu'.*the loader 'zip' cannot run it: the device is too hot"),
        ("forgets", r"the loader 'zip' returned nothing, and not float32\[1, 4, 6, 6\]"),
    ],
)
def test_a_loader_that_fails_is_named(option: str, message: str, tmp_path: Path) -> None:
    graph, plan = planned(tmp_path / "m.onnx", options={option: True})
    bundle = pipeline.build(graph, plan, check=False)
    with pipeline.load(bundle) as running, pytest.raises(StageError, match=message):
        list(running.map([{"x": weights(*SHAPE)}]))


def test_a_run_that_hangs_is_stopped_by_the_loader(calls: list[Any], tmp_path: Path) -> None:
    graph, plan = planned(tmp_path / "m.onnx")
    bundle = pipeline.build(graph, plan, check=False)
    runtime = devices.create(plan.board.devices[1])
    runtime.open(())
    runtime.load(plan.stages[1], bundle.codes[1])
    runtime.break_off()
    runtime.close()
    assert [call[0] for call in calls] == ["create", "open", "stop", "close"]


@pytest.mark.usefixtures("calls")
def test_what_a_command_compiles_is_not_measured() -> None:
    device = Device("npu", "vendor", target={"loader": "zip"})
    assert detection.why_absent(device) == ""
    compiled = replace(device, target={"loader": "zip", "compile": "tool {artifact}"})
    assert detection.why_absent(compiled) == "what a command compiles is not measured"


def test_a_command_has_no_shell(calls: list[Any], tmp_path: Path) -> None:
    text = "import sys; open(sys.argv[1], 'wb').write(open(sys.argv[2], 'rb').read()); print(sys.argv)"
    command = tool(tmp_path / "t.py", text, "{artifact} {stage}.onnx '$HOME; touch x' > /dev/null")
    bundle = pipeline.build(*planned(tmp_path / "m.onnx", compile=command))
    assert bundle.codes[1].suffix == ".artifact"
    assert calls
    assert not Path("x").exists()


class TfliteSource:
    """A stage of which nothing but a TFLite model is there."""

    def module(self) -> Any:
        raise BuildError("there is no module")

    def onnx(self) -> Any:
        raise BuildError("there is no ONNX model")

    def compiled(self) -> bytes:
        return b""

    def tflite(self) -> bytes:
        return b"model"


def test_a_delegate_may_have_a_command_too(tmp_path: Path) -> None:
    text = "import pathlib, sys; path = sys.argv[1]; pathlib.Path(path.replace('.tflite', '_edgetpu.tflite'))"
    text += ".write_bytes(b'compiled ' + pathlib.Path(path).read_bytes())"
    command = tool(tmp_path / "edgetpu_compiler.py", text, "{stage}.tflite")
    target = {"kind": "litert", "artifact": "{stage}_edgetpu.tflite", "compile": command}
    device = Device("tpu", "litert", target=target)
    targets.check(Board("b", (device,)), "b.toml")
    # No delegate of this name is here, so that nobody is asked for what it takes.
    absent = replace(device, target={**target, "delegate": "libedgetpu_of_nobody.so"})
    assert LiteRtRuntime.compile_stage(TfliteSource(), absent).executable.content == b"compiled model"
    assert not LiteRtRuntime.is_selective(device)
