"""Stages that are models of another runtime: built, run, refused, ended, saved and loaded."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan
from pipeline.core.plan.stage_options import StageOptions
from pipeline.errors import BoardError, BuildError, MissingExtra
from pipeline.executor import devices, targets
from pipeline.system.threads import run_in_thread
from tests.support.model_stages import RELU, SHAPE, STAGE, OnnxSource, compile_source, run
from tests.support.onnx_models import by_onnxruntime, node, save, weights

KINDS = ("onnxruntime", "openvino", "ncnn")


@pytest.fixture(params=KINDS)
def device(request: pytest.FixtureRequest) -> Device:
    pytest.importorskip("pnnx" if request.param == "ncnn" else request.param)
    return Device("device", request.param)


def test_it_computes_each_frame_into_memory_of_its_own(device: Device) -> None:
    code = compile_source(RELU, device)
    frames = [weights(*SHAPE, seed=seed) for seed in range(3)]
    for frame, output in zip(frames, run(device, code, frames), strict=True):
        np.testing.assert_array_equal(output, np.maximum(frame, 0))


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "auto"])
def test_openvino_has_its_own_precision_where_the_stage_may_be_narrow(precision: str) -> None:
    openvino = pytest.importorskip("openvino")
    if "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("OpenVINO has no bfloat16 on this processor")
    cpu, frame = Device("device", "openvino"), weights(*SHAPE)
    code = compile_source(OnnxSource(node("Conv", "x w", "y", pads=[1] * 4), w=weights(SHAPE[1], SHAPE[1], 3, 3)), cpu)
    exact, result = (
        run(cpu, code, [frame], stage=replace(STAGE, options=StageOptions(each)))[0] for each in (None, precision)
    )
    error = np.abs(result - exact).max() / np.abs(exact).max()
    assert error == 0 if precision == "float32" else 1e-4 < error < 2e-2


def test_it_takes_arrays_that_are_not_contiguous(device: Device) -> None:
    frame = weights(1, 6, 6, 4).transpose(0, 3, 1, 2)
    (output,) = run(device, compile_source(RELU, device), [frame])
    np.testing.assert_array_equal(output, np.maximum(frame, 0))


def test_its_threads_stay_on_the_cores_of_the_stage(device: Device) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one core")
    core = max(os.sched_getaffinity(0))
    code = compile_source(RELU, device)
    earlier = {thread.id for thread in psutil.Process().threads()}
    allowed: list[set[int]] = []

    def work() -> None:
        runtime = devices.create(device)
        runtime.open([core])
        program = runtime.load(STAGE, code)
        runtime.run(program, [weights(*SHAPE)])
        started = {thread.id for thread in psutil.Process().threads()} - earlier
        allowed.extend(os.sched_getaffinity(thread) for thread in {*started, threading.get_native_id()})

    run_in_thread(work, "stage")
    assert set().union(*allowed) == {core}


def test_a_target_of_unknown_keys_is_refused(device: Device) -> None:
    board = Board("b", (replace(device, target={"kind": device.kind, "optoins": {}}),))
    with pytest.raises(BoardError, match=r"'optoins'.*did you mean 'options'"):
        targets.check(board, "b.toml")


def test_a_missing_provider_is_named() -> None:
    device = Device("gpu", "onnxruntime", target={"providers": ["CPUExecutionProvider", ["CUDAExecutionProvide", {}]]})
    assert "no 'CUDAExecutionProvide'; it has" in devices.why_absent(device)
    pytest.importorskip("openvino")
    assert "no device 'NPU7'" in devices.why_absent(Device("npu", "openvino", target={"device": "NPU7"}))


@pytest.mark.parametrize("providers", ["CPUExecutionProvider", [3], [["CPUExecutionProvider", 3]]])
def test_providers_that_are_none_are_refused(providers: object) -> None:
    board = Board("b", (Device("gpu", "onnxruntime", target={"providers": providers}),))
    with pytest.raises(BoardError, match="provider"):
        targets.check(board, "b.toml")


def test_what_falls_back_to_the_cpu_is_an_error_that_names_it() -> None:
    import onnxruntime

    # A provider that is always there, and takes nothing.
    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has no provider beside the CPU's")
    target = {"providers": ["AzureExecutionProvider"]}
    device = Device("cloud", "onnxruntime", target=target)
    with pytest.raises(BuildError, match=r"elsewhere than on 'cloud': relu of kind Relu \(CPUExecutionProvider\)"):
        compile_source(RELU, device)
    tolerant = replace(device, target={**target, "allow_fallback": True})
    frame = weights(*SHAPE)
    np.testing.assert_array_equal(run(tolerant, compile_source(RELU, tolerant), [frame])[0], np.maximum(frame, 0))


@pytest.mark.parametrize("name", ["AUTO:NPU,CPU", "AUTO", "HETERO:GPU,CPU"])
def test_openvinos_own_choice_of_devices_needs_leave_to_fall_back(name: str) -> None:
    pytest.importorskip("openvino")
    device = Device("npu", "openvino", target={"device": name})
    with pytest.raises(BoardError, match=f"device is '{name}', by which OpenVINO chooses where .* allow_fallback"):
        targets.check(Board("b", (device,)), "b.toml")
    # Of a board that no file has.
    with pytest.raises(BuildError, match=f"OpenVINO cannot run it: device is '{name}', by which"):
        compile_source(RELU, device)


def test_openvino_falls_back_to_the_cpu_without_a_word_where_it_may() -> None:
    openvino = pytest.importorskip("openvino")
    if "NPU" in openvino.Core().available_devices:
        pytest.skip("there is an NPU")
    plain = Device("npu", "openvino", target={"device": "NPU"})
    assert "finds no device 'NPU' here" in devices.why_absent(plain)
    # What the check above keeps from happening unasked: it is the CPU that computes.
    device = replace(plain, target={"device": "AUTO:NPU,CPU", "allow_fallback": True})
    targets.check(Board("b", (device,)), "b.toml")
    frame = weights(*SHAPE)
    np.testing.assert_allclose(run(device, compile_source(RELU, device), [frame])[0], np.maximum(frame, 0))


def test_openvino_is_opened_once_for_all_questions_and_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    openvino = pytest.importorskip("openvino")
    cores: list[Any] = []
    open_core = openvino.Core

    def note_core() -> Any:
        cores.append(open_core())
        return cores[-1]

    monkeypatch.setattr(openvino, "Core", note_core)
    device = Device("device", "openvino")
    for _ in range(2):
        assert not devices.why_absent(device)
        run(device, compile_source(RELU, device), [weights(*SHAPE)])
    # None, where another test has opened it.
    assert len(cores) <= 1


def test_a_model_that_the_runtime_does_not_take_is_an_error_of_build(device: Device) -> None:
    with pytest.raises(BuildError, match="cannot run it"):
        compile_source(OnnxSource(helper.make_node("Abacus", ["x"], ["y"], domain="wood")), device)


def test_onnx_runtime_ends_a_call_that_hangs() -> None:
    pytest.importorskip("onnxruntime")
    device = Device("device", "onnxruntime")
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", "on", "on_next"), node("Neg", "state", "state_next")],
        "body",
        [
            value("i", TensorProto.INT64, ()),
            value("on", TensorProto.BOOL, ()),
            value("state", TensorProto.FLOAT, SHAPE),
        ],
        [value("on_next", TensorProto.BOOL, ()), value("state_next", TensorProto.FLOAT, SHAPE)],
    )
    endless = OnnxSource(node("Loop", "count on x", "y", "loop", body=body), count=np.array(1 << 60), on=np.array(True))
    code = compile_source(endless, device)
    runtime, computing, errors = devices.create(device), threading.Event(), []

    def work() -> None:
        runtime.open([])
        program = runtime.load(STAGE, code)
        computing.set()
        try:
            runtime.run(program, [weights(*SHAPE)])
        except Exception as error:  # noqa: BLE001 - of ONNX Runtime's own kind
            errors.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    assert computing.wait(60)
    while thread.is_alive():
        # Again, should it have come before the call.
        runtime.break_off()
        thread.join(0.05)
    assert "terminate" in errors[0].lower()


NETWORK = (
    node("Conv", "x w", "a", "first", pads=[1, 1, 1, 1]),
    node("Relu", "a", "b", "middle"),
    node("Conv", "b w", "y", "last", pads=[1, 1, 1, 1]),
)


def planned_for(path: Path, *names: str) -> tuple[Any, Plan]:
    """Return a network of two convolutions, and its plan with a stage on each of these devices."""
    graph = pipeline.read(save(path, NETWORK, {"x": SHAPE}, ["y"], {"w": weights(4, 4, 3, 3) / 6}))
    board = Board("mixed", (Device("cpu", cores=(0, 1), runtimes=("tvm", *KINDS)),))
    plan = pipeline.plan(graph, board=board, stages=len(names))
    stages = zip(plan.stages, names, strict=True)
    return graph, replace(plan, stages=tuple(replace(stage, device=name) for stage, name in stages))


@pytest.mark.parametrize(
    "names",
    [
        ("cpu", "cpu/openvino"),
        ("cpu/onnxruntime", "cpu"),
        ("cpu/openvino", "cpu/onnxruntime"),
        ("cpu", "cpu/ncnn"),
        ("cpu/ncnn", "cpu"),
    ],
)
def test_stages_of_several_runtimes_are_one_bundle(names: tuple[str, str], tmp_path: Path) -> None:
    pytest.importorskip("pnnx" if "cpu/ncnn" in names else "openvino")
    graph, plan = planned_for(tmp_path / "m.onnx", *names)
    pipeline.build(graph, plan).save(tmp_path / "m.bundle")
    frames = [{"x": weights(*SHAPE, seed=seed)} for seed in range(4)]
    with pipeline.load(tmp_path / "m.bundle") as running:
        results = list(running.map(frames))
    for frame, result in zip(frames, results, strict=True):
        np.testing.assert_allclose(result, by_onnxruntime(tmp_path / "m.onnx", frame)["y"], atol=1e-5)


def test_a_bundle_names_the_runtime_and_is_saved_again_as_it_is(tmp_path: Path) -> None:
    graph, plan = planned_for(tmp_path / "m.onnx", "cpu/onnxruntime", "cpu")
    pipeline.build(graph, plan).save(tmp_path / "m.bundle")
    assert onnx.load(tmp_path / "m.bundle" / "stage0.onnx").graph.node[0].op_type == "Conv"
    assert '"runtime_version": "ONNX Runtime 1.' in (tmp_path / "m.bundle" / "manifest.json").read_text()
    pipeline.Bundle.load(tmp_path / "m.bundle").save(tmp_path / "again.bundle")
    for file in (tmp_path / "m.bundle").iterdir():
        assert (tmp_path / "again.bundle" / file.name).read_bytes() == file.read_bytes()


def test_a_bundle_for_a_provider_that_is_not_here_is_refused(tmp_path: Path) -> None:
    graph, plan = planned_for(tmp_path / "m.onnx", "cpu", "cpu")
    gpu = Device("gpu", "onnxruntime", target={"providers": ["CUDAExecutionProvider"]})
    board = replace(plan.board, devices=(*plan.board.devices, gpu))
    plan = replace(plan, board=board, stages=(plan.stages[0], replace(plan.stages[1], device="gpu", cores=())))
    pipeline.build(graph, plan).save(tmp_path / "m.bundle")
    with pytest.raises(MissingExtra, match="stage1 is for a device that is not here: this ONNX Runtime has no 'CUDA"):
        pipeline.load(tmp_path / "m.bundle")


def test_a_board_names_runtimes_of_cores_only() -> None:
    with pytest.raises(BoardError, match="only cores of this machine"):
        Board("b", (Device("gpu", "cuda", runtimes=("tvm", "onnxruntime")),))
    with pytest.raises(BoardError, match=r"'onxruntime' is unknown.*did you mean 'onnxruntime'"):
        Board("b", (Device("cpu", cores=(0,), runtimes=("tvm", "onxruntime")),))
    board = Board("b", (Device("cpu", cores=(0,), runtimes=("tvm", "onnxruntime")),))
    with pytest.raises(BoardError, match=r"no device 'cpu/openvino'; it has cpu, cpu/onnxruntime"):
        board.device("cpu/openvino")
