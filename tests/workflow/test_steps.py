"""A stage with steps, through the verbs: other sizes, other parameters, functions around it, and files of its parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.plan import Plan
from pipeline.errors import InputError, PlanError
from pipeline.split.symbolic_model import OpenModel
from tests.support.onnx_models import node, save, weights

# The second one computes as the first, but in a memory of its own, as an accelerator does.
BOARD = Board(
    "two memories", (Device("cpu", cores=(0, 1)), Device("far", memory="far")), (Link(("host", "far"), 1e9, 1e-5),)
)
SIZES = (4, 1, 2)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with a skip over one of its steps, whose batch varies."""
    nodes = [
        node("Conv", "data w1", "c1", "conv1", pads=[1, 1, 1, 1]),
        node("Relu", "c1", "r1", "relu1"),
        node("MaxPool", "r1", "p1", "pool1", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p1 w2", "c2", "conv2", pads=[1, 1, 1, 1]),
        node("Add", "c2 p1", "s2", "add2"),
        node("Conv", "s2 w2", "c3", "conv3", pads=[1, 1, 1, 1]),
        node("Add", "c3 p1", "y", "add3"),
    ]
    constants = {"w1": weights(8, 3, 3, 3), "w2": weights(8, 8, 3, 3)}
    return save(tmp_path_factory.mktemp("steps") / "net.onnx", nodes, {"data": ["N", 3, 8, 8]}, ["y"], constants)


@pytest.fixture(scope="module")
def model(file: Path) -> OpenModel:
    answer = pipeline.read(file, shapes={"data": ["N", 3, 8, 8]})
    assert isinstance(answer, OpenModel)
    return answer


@pytest.fixture(scope="module")
def plan(model: OpenModel) -> Plan:
    stages = pipeline.plan(model.at(N=4), BOARD, cuts=["pool1", "add2"], devices=["cpu", "far", "cpu"])
    return stages.join("stage0", "stage2", cores=(0, 1), replicas=2)


@pytest.fixture(scope="module")
def bundle(model: OpenModel, plan: Plan) -> pipeline.Bundle:
    return pipeline.build(model, plan, sizes=[{"N": 1}, {"N": 2}])


def expected(file: Path, rows: int) -> np.ndarray:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"data": weights(rows, 3, 8, 8)})
    return np.asarray(result)


def assert_close(result: np.ndarray, reference: np.ndarray) -> None:
    np.testing.assert_allclose(result, reference, rtol=0, atol=1e-5 * np.abs(reference).max())


def test_frames_of_several_sizes(file: Path, bundle: pipeline.Bundle, tmp_path: Path) -> None:
    bundle.save(tmp_path / "net.bundle")
    with pipeline.load(tmp_path / "net.bundle") as running:
        for rows in SIZES * 2:
            assert_close(running.submit(weights(rows, 3, 8, 8)).result(30), expected(file, rows))


def test_steps_have_parameters_of_their_own(file: Path, bundle: pipeline.Bundle) -> None:
    data = weights(4, 3, 8, 8)
    with pipeline.load(bundle) as running:
        before = running.submit(data).result(30)
        step = bundle.codes[1]
        running.set_params("stage0.step1", {name: np.zeros_like(array) for name, array in step.parameters.items()})
        after = running.submit(data).result(30)
        with pytest.raises(InputError, match=r"no stage is called 'stage0'.*stage0\.step0, stage0\.step1"):
            running.set_params("stage0", {})
    assert_close(before, expected(file, 4))
    assert np.abs(after - before).max() > 1e-3


def test_functions_stand_before_and_behind(model: OpenModel, plan: Plan, file: Path) -> None:
    fixed = pipeline.build(model.at(N=4), plan)
    around = fixed.with_stage(lambda x: x * 2, inputs=["data"], outputs=["data"], name="double")
    around = around.with_stage(lambda y: y + 1, inputs=["y"], outputs=["y"], name="increase")
    assert [stage.name for stage in around.plan.stages] == ["double", "stage0", "increase"]
    with pipeline.load(around) as running:
        result = running.submit(weights(4, 3, 8, 8) / 2).result(30)
    assert_close(result, expected(file, 4) + 1)


def test_each_step_is_a_file(model: OpenModel, plan: Plan, tmp_path: Path) -> None:
    exported = pipeline.export_stages(model.at(N=4), plan, tmp_path / "parts")
    assert [stage.stage for stage in exported.manifest.stages] == ["stage0.step0", "stage0.step1", "stage0.step2"]
    assert [stage.device for stage in exported.manifest.stages] == ["cpu", "far", "cpu"]
    assert exported.verification is not None


def test_a_plan_whose_steps_are_not_the_models_is_refused(model: OpenModel, plan: Plan) -> None:
    (stage,) = plan.stages
    first, second, third = stage.steps
    without_skip = replace(third, inputs=third.inputs[:1])
    wrong = replace(plan, stages=(replace(stage, steps=(first, second, without_skip)),))
    with pytest.raises(PlanError, match=r"stage 'stage0\.step2' is not what its operators make of 'net'; plan again"):
        pipeline.build(model.at(N=4), wrong)
