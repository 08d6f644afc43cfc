"""Plug-in execution providers of ONNX Runtime: found, streamed through, and never silently left for the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.errors import BoardError, BuildError, BundleError
from pipeline.executor import devices, targets
from tests.support import fake_npu
from tests.support.model_stages import RELU, SHAPE, OnnxSource, check_streaming, compile_source, run
from tests.support.onnx_models import node, save, weights
from tests.support.openvino_plugin import DEVICE, NAME, TARGET, compile_file, require_device

WEIGHTS = weights(4, 4, 3, 3) / 6
# The determinant is an operator that only the CPU's provider has.
DETERMINED = OnnxSource(
    node("Conv", "x w", "a", pads=[1] * 4),
    node("Det", "a", "b", "determinant"),
    node("Reshape", "b shape", "c"),
    node("Add", "a c", "y"),
    w=WEIGHTS,
    shape=np.array([1, 4, 1, 1]),
)


@pytest.fixture
def device() -> Device:
    return require_device()


@pytest.mark.parametrize("order", [("cpu", "device"), ("device", "cpu")])
def test_its_stages_stream_beside_those_of_tvm(device: Device, order: tuple[str, str], tmp_path: Path) -> None:
    board = Board("b", (Device("cpu", cores=(0,)), device))
    check_streaming(board, order, tmp_path)


@pytest.mark.parametrize("is_embedded", [True, False])
def test_a_file_that_the_provider_has_compiled_streams_in_a_chain(
    device: Device, is_embedded: bool, tmp_path: Path
) -> None:
    first = save(tmp_path / "first.onnx", [node("Tanh", "x", "f")], {"x": SHAPE}, ["f"], {})
    nodes = [node("Conv", "f w", "c", pads=[1] * 4), node("Relu", "c", "g")]
    body = save(tmp_path / "body.onnx", nodes, {"f": SHAPE}, ["g"], {"w": WEIGHTS})
    last = save(tmp_path / "last.onnx", [node("Sigmoid", "g", "y")], {"g": SHAPE}, ["y"], {})
    compiled = compile_file(body, tmp_path / "compiled.onnx", is_embedded=is_embedded)
    board = Board("b", (Device("cpu", cores=(0, 1)), device))

    def outputs(middle: Path) -> list[np.ndarray]:
        graph = pipeline.chain([pipeline.read(path) for path in (first, middle, last)])
        bundle = pipeline.build(graph, pipeline.plan(graph, board))
        assert (middle is body) or [stage.device for stage in bundle.plan.stages] == ["cpu", "device", "cpu"]
        bundle.save(tmp_path / f"{middle.stem}.bundle")
        with pipeline.load(tmp_path / f"{middle.stem}.bundle") as running:
            return list(running.map([{"x": weights(*SHAPE, seed=seed)} for seed in range(5)]))

    np.testing.assert_allclose(outputs(compiled), outputs(body), atol=1e-4)


def test_an_operator_left_for_the_cpu_is_an_error_that_names_it(device: Device) -> None:
    message = r"elsewhere than on 'device': determinant of kind Det \(CPUExecutionProvider\)"
    with pytest.raises(BuildError, match=message):
        compile_source(DETERMINED, device)
    tolerant = replace(device, target={**TARGET, "allow_fallback": True})
    code, frame = compile_source(DETERMINED, tolerant), weights(*SHAPE)
    # Such as one that was built where another provider was asked.
    with pytest.raises(BundleError, match=message):
        run(device, code, [frame])
    plain = Device("cpu", "onnxruntime")
    np.testing.assert_allclose(run(tolerant, code, [frame])[0], run(plain, code, [frame])[0], atol=1e-4)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Device:
    """Device of a simulated provider, which is built here and takes Relu alone."""
    pytest.importorskip("onnxruntime")
    source = Path(fake_npu.__file__).parent / "simulated_provider.c"
    library = str(fake_npu.build_delegate(tmp_path_factory.mktemp("provider"), source))
    return Device("device", "onnxruntime", target={"library": library, "providers": ["SimulatedExecutionProvider"]})


def test_a_provider_built_here_computes(simulated: Device) -> None:
    frame = weights(*SHAPE)
    np.testing.assert_array_equal(run(simulated, compile_source(RELU, simulated), [frame])[0], np.maximum(frame, 0))


def test_an_operator_that_a_provider_takes_and_hands_to_the_cpu_is_an_error(
    simulated: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever the target says of the record of assignments.
    options = {"session.record_ep_graph_assignment_info": "0"}
    simulated = replace(simulated, target={**(simulated.target or {}), "options": options})
    code = compile_source(RELU, simulated)
    monkeypatch.setenv("PROVIDER_LEAVES", "1")
    message = r"elsewhere than on 'device': \w+ of kind Relu \(CPUExecutionProvider\)"
    with pytest.raises(BuildError, match=message):
        compile_source(RELU, simulated)
    # It took this one when the bundle was built.
    with pytest.raises(BundleError, match=message):
        run(simulated, code, [weights(*SHAPE)])


def test_what_is_missing_is_named(device: Device) -> None:
    reason = devices.why_absent(replace(device, target={**TARGET, "device": "NPU.3"}))
    assert f"ONNX Runtime finds no {NAME} on NPU.3 with the library" in reason
    assert f"{NAME} on CPU" in reason


@pytest.mark.parametrize("name", ["onnxruntime-ep-abacus", "/opt/nothing/libabacus.so"])
def test_a_library_that_is_not_there_is_named(name: str) -> None:
    pytest.importorskip("onnxruntime")
    reason = devices.why_absent(replace(DEVICE, target={**TARGET, "library": name}))
    assert reason == f"the provider library {name!r} cannot be loaded: there is no such file or package"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ({"library": 3, "providers": [NAME]}, "library is 3"),
        ({**TARGET, "device": "TPU"}, "device 'TPU'; they must be"),
        ({"device": "NPU", "providers": [NAME]}, "device is of plug-in providers; name their library"),
        ({**TARGET, "providers": [f"{NAME}.AUTO"]}, f"'{NAME}.AUTO' chooses where operators run; name one device"),
    ],
)
def test_targets_that_are_none_are_refused(target: dict[str, Any], message: str) -> None:
    with pytest.raises(BoardError, match=message):
        targets.check(Board("b", (replace(DEVICE, target=target),)), "b.toml")
