"""Stages that are ONNX models from the beginning, for adapters of other runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.errors import BuildError
from pipeline.executor import devices
from pipeline.executor.stage_code import StageCode
from pipeline.system.threads import run_in_thread
from tests.support.onnx_models import node, save, weights

SHAPE = (1, 4, 6, 6)
STAGE = StagePlan("stage", "device", (TensorSpec("x", SHAPE),), (TensorSpec("y", SHAPE),))


class OnnxSource:
    """A stage that is an ONNX model from the beginning."""

    def __init__(self, *nodes: Any, **initializers: np.ndarray) -> None:
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            nodes,
            "stage",
            [value("x", TensorProto.FLOAT, SHAPE)],
            [value("y", TensorProto.FLOAT, SHAPE)],
            [numpy_helper.from_array(array, name) for name, array in initializers.items()],
        )
        self._model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def module(self) -> Any:
        raise BuildError("there is no module")

    def onnx(self) -> Any:
        return self._model

    def compiled(self) -> bytes:
        return b""

    def tflite(self) -> bytes:
        raise BuildError("there is no TFLite model")


RELU = OnnxSource(node("Relu", "x", "y", "relu"))


def compile_source(source: OnnxSource, device: Device) -> StageCode:
    compiler = devices.compiler(device)
    assert compiler is not None
    return compiler.compile_stage(source, device)


def check_streaming(board: Board, order: Sequence[str], folder: Path) -> None:
    """Compare two stages on devices of a board with the unsplit model on its first one, which is TVM's."""
    kernel = weights(4, 4, 3, 3) / 6
    nodes = (
        node("Conv", "x w", "a", "first", pads=[1] * 4),
        node("Relu", "a", "b"),
        node("Conv", "b w", "c", "second", pads=[1] * 4),
        node("Sigmoid", "c", "y"),
    )
    graph = pipeline.read(save(folder / "m.onnx", nodes, {"x": SHAPE}, ["y"], {"w": kernel}))
    plan = pipeline.plan(graph, board, devices=list(order))
    assert [stage.device for stage in plan.stages] == list(order)
    pipeline.build(graph, plan).save(folder / "m.bundle")
    unsplit = pipeline.build(graph, pipeline.plan(graph, board, devices=[board.devices[0].name]))
    frames = [{"x": weights(*SHAPE, seed=seed)} for seed in range(5)]
    with pipeline.load(folder / "m.bundle") as running, pipeline.load(unsplit) as reference:
        for result, expected in zip(running.map(frames), reference.map(frames), strict=True):
            np.testing.assert_allclose(result, expected, atol=1e-4)


def run(
    device: Device, code: StageCode, frames: Sequence[np.ndarray], cores: Sequence[int] = (), stage: StagePlan = STAGE
) -> list[Any]:
    """Return the output of each frame; all of them are made before the first one is looked at."""

    def work() -> list[Any]:
        runtime = devices.create(device)
        runtime.open(cores)
        program = runtime.load(stage, code)
        outputs = [runtime.run(program, [runtime.copy_in(frame)])[0] for frame in frames]
        runtime.close()
        return outputs

    return run_in_thread(work, "stage")
