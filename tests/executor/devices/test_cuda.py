"""GPU stages: built anywhere; run where there is a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import PipelineError
from pipeline.executor.build import compile_stage
from pipeline.executor.devices.cuda import CudaRuntime
from pipeline.split import extract
from pipeline.tvm.access import tvm, tvm_ffi
from tests.support.onnx_models import HOST, assert_close, by_onnxruntime, node, save, weights

GPU = Device("gpu", "cuda", target={"kind": "cuda", "arch": "sm_80"}, memory="gpu")
BOARD = Board("with a GPU", (Device("cpu", cores=(0,)), GPU), (Link(("host", "gpu"), 1e10),))

needs_gpu = pytest.mark.skipif(not tvm.cuda(0).exist, reason="TVM finds no CUDA device here")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nodes = [
        node("Conv", "x w", "c", "conv", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r", "relu"),
        node("Conv", "r v", "d", "conv2", pads=[1, 1, 1, 1]),
        node("Add", "d r", "s", "add"),
        node("GlobalAveragePool", "s", "y", "pool"),
    ]
    constants = {"w": weights(8, 3, 3, 3), "v": weights(8, 8, 3, 3)}
    return save(tmp_path_factory.mktemp("gpu") / "net.onnx", nodes, {"x": (1, 3, 16, 16)}, ["y"], constants)


def test_a_stage_for_a_gpu_is_built_without_one(file: Path, tmp_path: Path) -> None:
    graph = pipeline.read(file)
    plan = pipeline.plan(graph, BOARD, cuts=["r"], devices=["cpu", "gpu"])
    bundle = pipeline.build(graph, plan)
    bundle.save(tmp_path / "net.bundle")
    assert (tmp_path / "net.bundle" / "stage1.so").stat().st_size > 0
    assert bundle.plan.stages[1].device == "gpu"


@pytest.mark.skipif(bool(tvm.cuda(0).exist), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_an_error_at_the_start(file: Path) -> None:
    graph = pipeline.read(file)
    bundle = pipeline.build(graph, pipeline.plan(graph, BOARD, cuts=["r"], devices=["cpu", "gpu"]), check=False)
    with pytest.raises(PipelineError, match="TVM finds no CUDA device 0 on this machine; 'soc-pipeline devices' lists"):
        pipeline.load(bundle)


@pytest.fixture
def runtime() -> Iterator[CudaRuntime]:
    """The adapter, with a CPU in place of the GPU: streams and memory are asked for and given back all the same."""
    runtime = CudaRuntime(GPU, tvm.cpu())
    runtime.open([])
    yield runtime
    runtime.close()


def test_a_stage_runs_and_the_adapter_is_closed(file: Path, runtime: CudaRuntime) -> None:
    (part,) = extract.parts(pipeline.read(file), [])
    stage = StagePlan("stage", "gpu", part.inputs, part.outputs)
    program = runtime.load(stage, compile_stage(extract.module(part), HOST))
    for seed in range(3):
        frame = weights(1, 3, 16, 16, seed=seed)
        (output,) = runtime.run(program, [runtime.copy_in(frame)])
        assert_close({"y": runtime.copy_out(output)}, by_onnxruntime(file, {"x": frame}), 1e-5)


def test_memory_is_used_again_when_nobody_has_it(runtime: CudaRuntime) -> None:
    frames = [weights(2, 3, seed=seed) for seed in range(4)]
    first, second = (runtime.copy_in(frame) for frame in frames[:2])
    address = first.data_ptr()
    assert second.data_ptr() != address
    # As a stage may return its input: another reference of TVM's own, which Python does not see.
    passed_on = tvm_ffi.Array([first])
    del first
    third = runtime.copy_in(frames[2])
    assert third.data_ptr() not in (address, second.data_ptr())
    for tensor, frame in ((passed_on[0], frames[0]), (second, frames[1]), (third, frames[2])):
        np.testing.assert_array_equal(runtime.copy_out(tensor), frame)
    del passed_on, tensor
    fourth = runtime.copy_in(frames[3])
    assert fourth.data_ptr() == address
    np.testing.assert_array_equal(runtime.copy_out(fourth), frames[3])
    assert runtime.copy_in(weights(3, 2)).data_ptr() != address


@needs_gpu
@pytest.mark.parametrize("replicas", [1, 2])
def test_stages_on_the_cpu_and_the_gpu_give_the_unsplit_answer(file: Path, replicas: int) -> None:
    import dataclasses

    graph = pipeline.read(file)
    board = pipeline.plan(graph).board
    (gpu,) = (each for each in board.devices if each.kind == "cuda" and each.index == 0)
    plan = pipeline.plan(graph, board, cuts=["r"], devices=["cpu", gpu.name])
    plan = dataclasses.replace(plan, stages=(plan.stages[0], dataclasses.replace(plan.stages[1], replicas=replicas)))
    unsplit = pipeline.build(graph, pipeline.plan(graph, Board("cpu", (Device("cpu"),)), stages=1), check=False)
    frames = [weights(1, 3, 16, 16, seed=seed) for seed in range(20)]
    with pipeline.load(pipeline.build(graph, plan)) as running, pipeline.load(unsplit) as reference:
        for outputs, check in zip(running.map(frames), reference.map(frames), strict=True):
            np.testing.assert_allclose(outputs, check, rtol=0, atol=1e-4 * np.abs(check).max())
