"""Plans and cuts from the time when a quantised operator was a dozen operators of the graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.plan.plan import Plan, TensorSpec
from pipeline.errors import PlanError
from pipeline.split.cuts import resolve
from pipeline.split.earlier_plans import update_plan
from pipeline.split.graph import Graph
from tests.support.onnx_models import node, save, weights


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """Three convolutions with an activation each: six operators in three groups."""
    nodes = []
    for source, name in (("x", "a"), ("ra", "b"), ("rb", "c")):
        nodes += [node("Conv", f"{source} w", name, pads=[1] * 4), node("Relu", name, f"r{name}")]
    return pipeline.read(save(tmp_path / "model.onnx", nodes, {"x": (1, 4, 6, 6)}, ["rc"], {"w": weights(4, 4, 3, 3)}))


def earlier(graph: Graph, cut: str, crossing: str, dtype: str) -> Plan:
    """Return a plan of two stages as it was made when the operator of `cut` had parts."""
    plan = pipeline.plan(graph, cuts=["rb"])
    first, second = plan.stages
    spec = TensorSpec(crossing, (1, 4, 6, 6), dtype)
    stages = (
        replace(first, operators=("a:conv2d", cut), outputs=(spec,)),
        replace(second, operators=("c:subtract", "rc"), inputs=(spec,)),
    )
    return replace(plan, digest="of another time", stages=stages)


@pytest.mark.parametrize(
    ("cut", "crossing", "dtype", "end"),
    [
        # At the end of an operator that is still there.
        ("ra", "ra", "float32", "ra"),
        # In front of the operator, whose narrow operand crosses; behind its product.
        ("c:astype3", "c:astype3", "int16", "rb"),
        ("rb:add", "rb:add", "int32", "rb"),
        ("rb:add:minimum2", "rb:add:minimum2", "int32", "rb"),
        # Behind what is fused with more, no stage ends; in front of it, one does.
        ("b:multiply", "b:multiply", "int64", "ra"),
    ],
)
def test_a_cut_moves_to_the_end_of_an_operator(graph: Graph, cut: str, crossing: str, dtype: str, end: str) -> None:
    plan = update_plan(earlier(graph, cut, crossing, dtype), graph)
    fresh = pipeline.plan(graph, cuts=[end])
    parts = [(stage.operators, stage.inputs, stage.outputs) for stage in plan.stages]
    assert parts == [(stage.operators, stage.inputs, stage.outputs) for stage in fresh.stages]
    assert plan.digest == graph.digest
    # It can be built as it is.
    assert update_plan(plan, graph) is plan
    assert len(pipeline.build(graph, plan, check=False).codes) == 2


def test_a_cut_without_a_legal_one_beside_it_is_answered_with_the_nearest(graph: Graph) -> None:
    plan = earlier(graph, "a", "a", "float32")
    with pytest.raises(
        PlanError, match="cuts behind 'a', where 'model' has no cut; the nearest is behind 'ra'; plan again"
    ):
        pipeline.build(graph, plan)


def test_plans_of_other_models_are_refused_as_ever(graph: Graph) -> None:
    plan = replace(pipeline.plan(graph, cuts=["rb"]), digest="of another model")
    assert update_plan(plan, graph) is plan
    with pytest.raises(PlanError, match="the plan is for another model"):
        pipeline.build(graph, plan)


def test_the_name_of_a_former_part_is_a_cut_behind_its_operator(graph: Graph) -> None:
    assert resolve(graph, ["rb:minimum", "ra"]) == resolve(graph, ["rb", "ra"])
    for name in ("rb:0", "rx:minimum"):
        with pytest.raises(PlanError, match=f"unknown cut '{name}'"):
            resolve(graph, [name])


def test_a_quantised_plan_of_that_time_is_built(tmp_path: Path) -> None:
    """Written by `pipeline.plan(graph, BOARD, cuts=["first", "sum"])` before operators were whole."""
    pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
    graph = pipeline.read(residual(tmp_path / "residual.tflite"))
    plan = Plan.load(Path(__file__).parent / "plans" / "quantised_residual.json")
    frame = np.random.default_rng(0).standard_normal((1, 6, 6, 4)).astype(np.float32)
    results = []
    for each in (plan, pipeline.plan(graph, stages=1)):
        with pipeline.load(pipeline.build(graph, each, verify=False)) as running:
            results.append(running.submit(frame).result())
    np.testing.assert_array_equal(*results)


def residual(path: Path) -> Path:
    """Three convolutions of int8, a sum with the first one's result, and pooling."""
    from tests.frontends.tflite.test_tflite import SAME, Writer

    writer = Writer(1, 6, 6, 4)
    kernel = np.random.default_rng(0).integers(-127, 127, (4, 3, 3, 4)).astype(np.int8)
    tensors = [writer.add("QUANTIZE", [0], writer.tensor("q", (1, 6, 6, 4), "int8", 0.03, 3))]
    for name in ("first", "second", "third"):
        constants = [
            writer.constant(f"{name}/w", kernel, 0.002),
            writer.constant(f"{name}/b", np.zeros(4, np.int32), 6e-5),
        ]
        result = writer.tensor(name, (1, 6, 6, 4), "int8", 0.03, 3)
        tensors.append(
            writer.add(
                "CONV_2D", [tensors[-1], *constants], result, options="Conv2DOptions", padding=SAME, strideW=1,
                strideH=1, dilationWFactor=1, dilationHFactor=1,
            )
        )  # fmt: skip
    total = writer.tensor("sum", (1, 6, 6, 4), "int8", 0.05, -2)
    total = writer.add("ADD", [tensors[1], tensors[-1]], total, options="AddOptions")
    pool = writer.add(
        "MAX_POOL_2D", [total], writer.tensor("pool", (1, 3, 3, 4), "int8", 0.05, -2), options="Pool2DOptions",
        padding=SAME, strideW=2, strideH=2, filterWidth=2, filterHeight=2,
    )  # fmt: skip
    return writer.save(path, pool)
