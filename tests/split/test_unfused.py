"""Cuts inside of fused groups on request, on the predecessor's own three-stage network, of which all is one group."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.errors import PlanError
from pipeline.split.graph import Graph
from pipeline.split.planning.advice.explanation import explain
from pipeline.split.unfused import divided_groups, unfuse
from pipeline.workflow.plan import PlannerOptions, make_planner
from tests.support.random_models import random_model

THREE_STAGES = """#[version = "0.0.5"]
def @main(%data_0: Tensor[(3, 3), float32], %data_1: Tensor[(3, 3), float32]) -> (Tensor[(3, 3), float32],) {
  %0 = add(%data_0, 1f);
  %1 = subtract(%data_0, 2f);
  %2 = (%0, %1);
  %3 = concatenate(%2);
  %4 = split(%3, indices_or_sections=2);
  %5 = %4.0;
  %6 = add(%5, 2f);
  %7 = add(%6, 2f);
  %8 = add(%7, %data_1);
  %9 = add(%8, 3f);
  %10 = multiply(%9, 3f);
  %11 = add(%10, %1);
  (%11,)
}
"""

CUTS = ["%6", "%9"]
"""Where the predecessor's test cuts it: a skip edge passes its second stage, which has a model input of its own."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "three.relay"
    found.write_text(THREE_STAGES)
    return found


@pytest.fixture
def graph(path: Path) -> Graph:
    return pipeline.read(path)


def frame(seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {name: generator.standard_normal((3, 3)).astype(np.float32) for name in ("data_0", "data_1")}


def by_definition(data_0: np.ndarray, data_1: np.ndarray) -> np.ndarray:
    return np.asarray((data_0 + 1 + 2 + 2 + data_1 + 3) * 3 + (data_0 - 2))


def test_the_predecessors_network_is_cut_into_its_three_stages(graph: Graph) -> None:
    plan = pipeline.plan(graph, cuts=CUTS, allow_unfused=True)
    names = [([spec.name for spec in stage.inputs], [spec.name for spec in stage.outputs]) for stage in plan.stages]
    assert [stage.operators for stage in plan.stages] == [("%0", "%6"), ("%7", "%9"), ("%10", "%11")]
    assert names == [(["data_0"], ["%1", "%6"]), (["%6", "data_1"], ["%9"]), (["%9", "%1"], ["%11"])]
    assert plan.unfused == ("%6", "%9")


def test_its_saved_bundle_streams_five_frames_in_order(graph: Graph, tmp_path: Path) -> None:
    plan = pipeline.plan(graph, cuts=CUTS, allow_unfused=True)
    plan.save(tmp_path / "plan.json")
    pipeline.build(graph, pipeline.Plan.load(tmp_path / "plan.json")).save(tmp_path / "three.bundle")
    frames = [frame(seed) for seed in range(5)]
    with pipeline.load(tmp_path / "three.bundle") as running:
        for given, result in zip(frames, running.map(frames), strict=True):
            np.testing.assert_allclose(result, by_definition(**given), rtol=1e-6)


def test_the_explanation_says_what_the_cuts_cost(graph: Graph) -> None:
    """Both sides of a cut run over memory: `%6` and `%9` once out and once in, `%1` out and, two stages on, in."""
    made = make_planner(graph, options=PlannerOptions(unfused=CUTS))
    (cost,) = explain(made, made.plan(cuts=CUTS)).unfused
    assert (cost.cuts, cost.operators, cost.kernels, cost.nbytes) == (("%6", "%9"), 10, 3, 6 * 36)
    assert str(cost) == (
        "The cuts behind '%6', '%9' divide a fused group of 10 operators: 3 kernels more per frame, and 216 bytes more "
        "written to memory and read again."
    )


def test_without_permission_the_refusal_names_it(graph: Graph) -> None:
    with pytest.raises(PlanError, match=r"'%6' .* fused with all that follows it; allow .*--allow-unfused"):
        pipeline.plan(graph, cuts=["%6"])
    with pytest.raises(PlanError, match="position 3 is not a legal cut; this graph has none; allow_unfused=True"):
        pipeline.plan(graph, cuts=[3])


@pytest.mark.parametrize(
    ("cuts", "message"),
    [
        (None, "allow_unfused allows cuts inside of fused groups, but no cuts are given"),
        (["%11"], "a cut at '%11' would leave a stage empty"),
        ([0], "a cut at 0 would leave a stage empty; there are 10 operators"),
        ([10], "a cut at 10 would leave a stage empty"),
        (["%6", 5], r"cuts '%6' and 5 are at the same place \(5\)"),
        (["data_1"], "'data_1' is a model input"),
        (["%66"], "unknown cut '%66'; did you mean '%6'"),
    ],
    ids=str,
)
def test_impossible_cuts_are_refused(graph: Graph, cuts: list[str | int] | None, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        pipeline.plan(graph, cuts=cuts, allow_unfused=True)


def test_a_plan_that_cuts_behind_an_unknown_operator_is_refused(graph: Graph) -> None:
    plan = pipeline.plan(graph, cuts=CUTS, allow_unfused=True)
    other = replace(plan, unfused=("gone",))
    with pytest.raises(PlanError, match="the plan cuts behind 'gone', which 'three' does not have"):
        pipeline.build(graph, other)


def test_legal_cuts_divide_nothing(tmp_path: Path) -> None:
    graph = pipeline.read(random_model(tmp_path / "m.onnx", 3, steps=20))
    legal = graph.group_ends[0]
    assert unfuse(graph, [legal]) is graph
    assert pipeline.plan(graph, cuts=[legal], allow_unfused=True) == pipeline.plan(graph, cuts=[legal])


@pytest.mark.parametrize("seed", range(3))
def test_random_models_compute_the_same_wherever_they_are_cut(tmp_path: Path, seed: int) -> None:
    """The build itself compares with the unsplit model."""
    graph = pipeline.read(random_model(tmp_path / "m.onnx", seed, steps=12))
    inside = [each for each in range(1, len(graph.operators)) if each not in graph.group_ends]
    cuts = np.random.default_rng(seed).permutation(inside)[:3].tolist()
    plan = pipeline.plan(graph, cuts=cuts, allow_unfused=True)
    assert len(plan.stages) == len(cuts) + 1
    assert pipeline.build(graph, plan).parity is not None


def test_what_two_parts_of_a_group_read_is_counted_once_per_part(tmp_path: Path) -> None:
    path = tmp_path / "m.relay"
    path.write_text(
        '#[version = "0.0.5"]\ndef @main(%x: Tensor[(100,), float32]) '
        "{ %0 = exp(%x); %1 = abs(%0); %2 = sqrt(%1); multiply(%2, %x) }"
    )
    (cost,) = divided_groups(unfuse(pipeline.read(path), ["%1"]))
    # Out and in for %1, and the input a second time.
    assert (cost.kernels, cost.nbytes) == (1, 3 * 400)
