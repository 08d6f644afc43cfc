"""Plans become code for each device; plans of other models, and targets that are none, are refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import boards
import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.errors import BuildError, PlanError
from pipeline.measure.profile import profile
from pipeline.split.graph import Graph
from tests.support.onnx_models import IMAGE, node, save
from tests.support.sampling import QUICK


def test_the_plan_of_another_graph_is_refused(tmp_path: Path, graph: Graph, board: Board) -> None:
    other_graph = pipeline.read(save(tmp_path / "other.onnx", [node("Relu", "x", "y")], IMAGE, ["y"]))
    with pytest.raises(PlanError, match=r"the plan is for another model .'other'. than 'little'"):
        pipeline.build(graph, pipeline.plan(other_graph, board, stages=1))


def test_a_plan_whose_operators_are_unknown_is_refused(graph: Graph, board: Board) -> None:
    plan = pipeline.plan(graph, board, stages=2)
    stages = (dataclasses.replace(plan.stages[0], operators=("c", "gone")), plan.stages[1])
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
    moved_stage = dataclasses.replace(plan.stages[0], operators=("c", graph.operators[last - 1].name))
    with pytest.raises(PlanError, match="stage0"):
        pipeline.build(graph, dataclasses.replace(plan, stages=(moved_stage, plan.stages[1])))


def test_devices_that_compute_nothing_need_no_code(graph: Graph) -> None:
    mixed_graph = Board("mixed", (Device("cpu"), Device("dream", "simulated")))
    bundle = pipeline.build(graph, pipeline.plan(graph, mixed_graph, devices=["dream", "cpu"]))
    assert bundle.codes[0] is None
    assert bundle.codes[1] is not None
    assert bundle.parity is None


def test_a_failing_stage_is_named(graph: Graph) -> None:
    odd_board = Board("broken", (Device("cpu"), Device("odd", target={"kind": "abacus"})))
    with pytest.raises(BuildError, match="stage 'stage1': device 'odd' has a target that TVM does not take"):
        pipeline.build(graph, pipeline.plan(graph, odd_board, devices=["cpu", "odd"]))


def test_progress_is_told(graph: Graph, board: Board) -> None:
    messages: list[str] = []
    pipeline.build(graph, pipeline.plan(graph, board, stages=2), progress=messages.append)
    assert messages[:3] == ["running the unsplit model", "building stage0", "building stage1"]
    assert messages[3:] == ["comparing with the unsplit model", "timing stage0", "timing stage1"]


def test_measured_plans(tmp_path: Path) -> None:
    nodes = [node("Softmax", f"t{number}", f"t{number + 1}") for number in range(4)]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"t0": (4, 8)}, ["t4"]))
    messages: list[str] = []
    # Into the cache, where the plan finds it: it would measure for some seconds.
    profile(graph, boards.get("host"), sampling=QUICK, progress=messages.append)
    assert messages
    plan = pipeline.plan(graph, stages=2, measure=True)
    assert plan.measured
    assert 0 < plan.unsplit_seconds < 1
