"""Checks of parameters: not with each frame, but wrong ones are still an error."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.plan.plan import StagePlan
from pipeline.executor import devices
from pipeline.executor.bundle import Bundle
from pipeline.executor.stage_code import StageCode
from pipeline.executor.tuning.kernel_times import call_seconds
from tests.support.onnx_models import node, save, weights

FRAME = np.ones((2, 8), np.float32)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    nodes = [node("Gemm", "x w b", "h"), node("Relu", "h", "r"), node("Gemm", "r v c", "y")]
    constants = {"w": weights(8, 32), "b": weights(32), "v": weights(32, 16), "c": weights(16)}
    path: Path = save(tmp_path_factory.mktemp("model") / "dense.onnx", nodes, {"x": FRAME.shape}, ["y"], constants)
    graph = pipeline.read(path)
    return pipeline.build(graph, pipeline.plan(graph, stages=1, board="host"))


def stage(bundle: Bundle) -> tuple[StagePlan, StageCode]:
    return bundle.plan.stages[0], bundle.codes[0]


def test_only_inputs_are_checked_with_each_frame(bundle: Bundle) -> None:
    stage_plan, code = stage(bundle)
    assert len(code.parameters) == 4
    runtime = devices.create(bundle.plan.board.device(stage_plan.device))
    tensors = [runtime.copy_in(array) for array in (FRAME, *code.parameters.values())]
    calls = Counter(name for name, _ in call_seconds(code, tensors))
    assert calls["vm.builtin.check_tensor_info"] == calls["vm.builtin.match_shape"] == 1


@pytest.mark.parametrize("change", ["shape", "dtype"])
def test_wrong_parameters_are_an_error(bundle: Bundle, change: str) -> None:
    stage_plan, code = stage(bundle)
    name, array = next(iter(code.parameters.items()))
    wrong = array[1:].copy() if change == "shape" else array.astype(np.float64)
    runtime = devices.create(bundle.plan.board.device(stage_plan.device))
    program = runtime.load(stage_plan, code.with_parameters({name: wrong}))
    with pytest.raises((ValueError, TypeError, RuntimeError), match=r"shape|dtype"):
        runtime.run(program, [runtime.copy_in(FRAME)])
