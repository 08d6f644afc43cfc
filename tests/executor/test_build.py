"""Stages are compared with the unsplit model, and differences are found."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline import unsplit
from pipeline.board import Board, Device
from pipeline.errors import BuildError, PlanError
from pipeline.executor.build import check_parity, compile_plan, random_frame
from pipeline.executor.bundle import Bundle
from pipeline.executor.code import StageCode
from pipeline.plans import TensorSpec
from pipeline.split import extract
from pipeline.split.graph import Graph
from tests.onnx_models import IMAGE, node, save, weights


def tampered(code: StageCode | None, value: float) -> StageCode:
    """Return a stage in which one weight is another one."""
    assert code is not None
    changed = {name: array.copy() for name, array in code.parameters.items()}
    next(iter(changed.values())).flat[0] = value
    return StageCode(code.module, changed, executable=code.executable, machine=code.machine, features=code.features)


def test_parity_is_reported(built: Bundle) -> None:
    assert built.parity.relative <= 1e-6
    assert built.parity.largest_value > 0.1
    assert (built.parity.tolerance, built.parity.seed) == (1e-5, 0)


def test_without_the_check_there_is_no_parity(graph: Graph, board: Board) -> None:
    assert pipeline.build(graph, pipeline.plan(graph, board, stages=1), check=False).parity is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (50.0, r"the stages differ from the unsplit model by .* of the largest output .*; allowed is 1e-05"),
        (np.nan, "output '.' is not finite in the stages where it is in the unsplit model"),
        (np.inf, "output '.' is not finite"),
    ],
)
def test_a_changed_weight_is_found(built: Bundle, graph: Graph, board: Board, value: float, message: str) -> None:
    expected = unsplit.outputs(graph, built.plan, 0)
    stages = list(zip(built.plan.stages, [*built.codes[:-1], tampered(built.codes[-1], value)], strict=True))
    with pytest.raises(BuildError, match=message):
        check_parity(built.plan, stages, expected, tolerance=1e-5)


def test_a_stage_of_another_model_with_the_same_shapes_is_found(tmp_path: Path, board: Board) -> None:
    """The same plan and digest, other weights in the first stage: only running it shows the difference."""
    nodes = [node("Conv", "x w", "c", pads=[1] * 4), node("Softmax", "c", "y", axis=1)]
    first, second = (
        pipeline.read(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], {"w": weights(4, 4, 3, 3, seed=seed)}))
        for seed in (1, 2)
    )
    plan = pipeline.plan(first, board, stages=2)
    assert plan.digest == second.digest
    mixed = dataclasses.replace(
        first, operators=(dataclasses.replace(first.operators[0], lines=second.operators[0].lines), first.operators[1])
    )
    built = pipeline.build(first, plan)
    odd = compile_plan(plan, [extract.module(part) for part in extract.parts(mixed, [1])], lambda _: None)
    expected = unsplit.outputs(first, plan, 0)
    assert built.parity.relative < 1e-6
    with pytest.raises(BuildError, match="the stages differ"):
        check_parity(plan, list(zip(plan.stages, odd, strict=True)), expected, tolerance=1e-5)  # type: ignore[arg-type]


def test_a_tolerance_of_nothing_allows_equality(graph: Graph, board: Board) -> None:
    assert pipeline.build(graph, pipeline.plan(graph, board, stages=1), tolerance=0).parity.largest_error == 0


def test_the_plan_of_another_graph_is_refused(tmp_path: Path, graph: Graph, board: Board) -> None:
    other = pipeline.read(save(tmp_path / "other.onnx", [node("Relu", "x", "y")], IMAGE, ["y"]))
    with pytest.raises(PlanError, match=r"the plan is for another model .'other'. than 'little'"):
        pipeline.build(graph, pipeline.plan(other, board, stages=1))


def test_a_plan_whose_operators_are_unknown_is_refused(graph: Graph, board: Board) -> None:
    plan = pipeline.plan(graph, board, stages=2)
    stages = (dataclasses.replace(plan.stages[0], operators=("c:conv2d", "gone")), plan.stages[1])
    with pytest.raises(PlanError, match="another version of it; plan again"):
        pipeline.build(graph, dataclasses.replace(plan, stages=stages))


def test_a_plan_that_does_not_say_its_operators_is_refused(graph: Graph, board: Board) -> None:
    plan = pipeline.plan(graph, board, stages=2)
    stages = (dataclasses.replace(plan.stages[0], operators=()), plan.stages[1])
    with pytest.raises(PlanError, match="stage0"):
        pipeline.build(graph, dataclasses.replace(plan, stages=stages))


def test_a_plan_whose_tensors_are_not_those_of_its_cuts_is_refused(graph: Graph, board: Board) -> None:
    plan = pipeline.plan(graph, board, stages=2)
    last = graph.operators.index(next(each for each in graph.operators if each.name == plan.stages[0].operators[1]))
    moved = dataclasses.replace(plan.stages[0], operators=("c:conv2d", graph.operators[last - 1].name))
    with pytest.raises(PlanError, match="stage0"):
        pipeline.build(graph, dataclasses.replace(plan, stages=(moved, plan.stages[1])))


def test_devices_that_compute_nothing_need_no_code(graph: Graph) -> None:
    mixed = Board("mixed", (Device("cpu"), Device("dream", "simulated")))
    bundle = pipeline.build(graph, pipeline.plan(graph, mixed, devices=["dream", "cpu"]))
    assert bundle.codes[0] is None
    assert bundle.codes[1] is not None
    assert bundle.parity is None


def test_a_failing_stage_is_named(graph: Graph) -> None:
    broken = Board("broken", (Device("cpu"), Device("odd", target={"kind": "abacus"})))
    with pytest.raises(BuildError, match="stage 'stage1': device 'odd' has a target that TVM does not take"):
        pipeline.build(graph, pipeline.plan(graph, broken, devices=["cpu", "odd"]))


def test_progress_is_told(graph: Graph, board: Board) -> None:
    told: list[str] = []
    pipeline.build(graph, pipeline.plan(graph, board, stages=2), progress=told.append)
    assert told[:3] == ["running the unsplit model", "building stage0", "building stage1"]
    assert told[3:] == ["comparing with the unsplit model", "timing stage0", "timing stage1"]


def test_measured_plans(tmp_path: Path) -> None:
    nodes = [node("Softmax", f"t{number}", f"t{number + 1}") for number in range(4)]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"t0": (4, 8)}, ["t4"]))
    told: list[str] = []
    plan = pipeline.plan(graph, stages=2, measure=True, progress=told.append)
    assert plan.measured
    assert 0 < plan.unsplit_seconds < 1
    assert told


def test_random_frames_are_seeded_and_of_the_right_kind() -> None:
    specs = [
        TensorSpec("f", (3, 4)),
        TensorSpec("h", (2,), "float16"),
        TensorSpec("i", (50,), "int64"),
        TensorSpec("b", (9,), "bool"),
    ]
    first, same, other = random_frame(specs, 0), random_frame(specs, 0), random_frame(specs, 1)
    for spec in specs:
        assert (first[spec.name].shape, str(first[spec.name].dtype)) == (spec.shape, spec.dtype)
        np.testing.assert_array_equal(first[spec.name], same[spec.name])
    assert not np.array_equal(first["f"], other["f"])
    assert set(first["i"].tolist()) == {0, 1}
