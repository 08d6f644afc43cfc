"""A plan in an order of its own is built, saved, loaded and run as any other one, and gives the same outputs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan
from pipeline.errors import PlanError
from pipeline.prediction.predict import predict
from pipeline.split.cuts import legal_cuts
from pipeline.split.graph import Graph
from pipeline.split.orders import as_ordered
from pipeline.split.planning.advice.explanation import explain
from pipeline.split.planning.planner import Planner
from tests.support.onnx_models import node, save, weights

BRANCHES = 4
TWO_CORES = Board("two", (Device("a", cores=(0,)), Device("b", cores=(1,))))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Four branches of two convolutions each, of which exporters list one operator after the other."""
    nodes = [node("Relu", "x", "start", "start")]
    values = {}
    for depth in range(2):
        for branch in range(BRANCHES):
            name, source = f"c{branch}{depth}", "start" if depth == 0 else f"c{branch}0"
            values[f"w{name}"] = weights(4, 4, 3, 3, seed=branch + 10 * depth) / 6
            nodes.append(node("Conv", f"{source} w{name}", name, name, pads=[1, 1, 1, 1]))
    nodes.append(node("Concat", " ".join(f"c{branch}1" for branch in range(BRANCHES)), "y", "end", axis=1))
    path = tmp_path_factory.mktemp("orders") / "m.onnx"
    return pipeline.read(save(path, nodes, {"x": (1, 4, 8, 8)}, ["y"], values))


def planner(graph: Graph) -> Planner:
    """Return a planner for two cores, each of which is quick at every other branch."""
    quick = {"a": ("c0", "c2", "start"), "b": ("c1", "c3", "end")}
    seconds = {
        device: [1e-3 if cut.after.startswith(names) else 1e-2 for cut in legal_cuts(graph)] + [1e-3]
        for device, names in quick.items()
    }
    return Planner(graph, TWO_CORES, seconds)


@pytest.fixture(scope="module")
def plan(graph: Graph) -> Plan:
    return planner(graph).plan()


def test_branches_go_to_the_device_that_they_prefer(graph: Graph, plan: Plan) -> None:
    assert sorted(plan.order) == sorted(operator.name for operator in graph.operators)
    assert plan.order != tuple(operator.name for operator in graph.operators)
    assert [stage.device for stage in plan.stages] == ["a", "b"]
    crossing = {spec.name for spec in plan.stages[0].outputs}
    assert crossing == {"start", "c01", "c21"}, "what the other branches read, and two results"
    own = planner(graph).solve()
    assert predict(plan).interval_s < own.interval / 3


def test_the_outputs_are_those_of_the_model(graph: Graph, plan: Plan, tmp_path: Path) -> None:
    frame = {"x": weights(1, 4, 8, 8, seed=5)}
    # Compared with the unsplit model while it is built, and here with what is loaded.
    pipeline.build(graph, plan).save(tmp_path / "m.bundle")
    with pipeline.load(tmp_path / "m.bundle") as running:
        result = running.submit(frame).result()
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, board="host", stages=1))) as unsplit:
        reference = unsplit.submit(frame).result()
    np.testing.assert_allclose(result, reference, rtol=1e-4, atol=1e-5)


def test_a_file_keeps_the_order(graph: Graph, plan: Plan, tmp_path: Path) -> None:
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    arranged = as_ordered(graph, plan)
    # Cuts of the arranged graph are legal ones, named by its operators.
    assert plan.stages[0].operators[1] in {cut.after for cut in legal_cuts(arranged)}
    assert arranged.digest == graph.digest


def test_it_is_explained_in_its_order(graph: Graph, plan: Plan) -> None:
    explanation = explain(planner(graph), plan)
    assert explanation.interval_s == pytest.approx(predict(plan).interval_s)
    assert explanation.gap < 0.03


def test_an_order_in_which_nothing_can_be_computed_is_refused(graph: Graph, plan: Plan) -> None:
    order = list(plan.order)
    first, second = order.index("c00"), order.index("c01")
    order[first], order[second] = order[second], order[first]
    message = (
        "the plan's order is none in which 'm' can be computed: 'c01' comes before what makes 'c00', which it reads"
    )
    for use in (partial(pipeline.build, graph), partial(explain, planner(graph))):
        with pytest.raises(PlanError, match=message):
            use(replace(plan, order=tuple(order)))


def test_cuts_that_a_user_names_are_of_the_models_own_order(graph: Graph) -> None:
    assert planner(graph).plan(cuts=["c10"]).order == ()
