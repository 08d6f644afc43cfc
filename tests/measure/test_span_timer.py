"""Times of whole stages on a runtime of others: what is measured, kept, and made of them by the planner."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.measure.cost_cache import CostCache
from pipeline.measure.sampling import MeasureOptions, Sampling
from pipeline.measure.span_timer import MOST_POSITIONS, find_too_fast, time_spans
from pipeline.split.graph import Graph
from pipeline.split.planning.problem.spans import SpanTimes
from pipeline.workflow.plan import PlannerOptions, make_planner
from tests.support.onnx_models import node, save, weights

BRIEF = Sampling(turns=1, rounds=2, turn_s=0.01, stream_s=0.02)
CPU = Device("cpu", cores=(0, 1), runtimes=("tvm", "onnxruntime"))
LAYERS = MOST_POSITIONS + 4


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    names = [f"t{number}" for number in range(LAYERS)]
    layers = zip(["x", *names], [*names, "y"], strict=True)
    nodes = [node("Conv", f"{source} w", target, target, pads=[1] * 4) for source, target in layers]
    return pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y"], {"w": weights(4, 4, 3, 3) / 6}))


def spans_of(graph: Graph, cache: CostCache, *, inner: bool) -> SpanTimes:
    device = Board("b", (CPU,)).device("cpu/onnxruntime")
    return time_spans(graph, device, MeasureOptions(cache, BRIEF), inner=inner)


def test_spans_between_evenly_spread_cuts(graph: Graph, tmp_path: Path) -> None:
    spans = spans_of(graph, CostCache(tmp_path / "cache"), inner=False)
    assert spans.positions[0] == 0
    assert spans.positions[-1] == len(graph.group_ends) == LAYERS + 1
    assert len(spans.positions) <= MOST_POSITIONS + 2
    last = len(spans.positions) - 1
    for begin, end in combinations(range(last + 1), 2):
        assert np.isfinite(spans.seconds[end, begin]) == (begin == 0 or end == last)
    assert set(spans.threads) == {2}
    assert spans.contention >= 1


def test_spans_between_others_where_plans_may_have_them(graph: Graph) -> None:
    spans = spans_of(graph, CostCache(None), inner=True)
    assert np.isfinite(spans.seconds[np.tril_indices(len(spans.positions), -1)]).all()


def test_times_are_kept(graph: Graph, tmp_path: Path) -> None:
    first, second = (spans_of(graph, CostCache(tmp_path / "cache"), inner=False) for _ in range(2))
    np.testing.assert_array_equal(first.seconds, second.seconds)
    assert (first.threads, first.contention) == (second.threads, second.contention)


def test_spans_that_were_timed_too_fast_are_found() -> None:
    # Of four groups that take a second each.
    begins, ends = np.meshgrid(np.arange(5.0), np.arange(5.0))
    seconds = np.where(ends > begins, ends - begins, np.inf)
    assert find_too_fast(seconds) == []
    seconds[3, 1] = 1.7
    assert find_too_fast(seconds) == []
    seconds[3, 1] = 1.5
    assert find_too_fast(seconds) == [(1, 3)]
    seconds[2, 0] = 1.0
    # With any span that it lies in front of.
    assert find_too_fast(seconds) == [(0, 2), (1, 3), (2, 3), (2, 4)]


def test_a_measured_plan_has_runtimes_that_are_built_and_run(graph: Graph) -> None:
    planner = make_planner(graph, Board("b", (CPU,)), PlannerOptions(measure=True, sampling=BRIEF))
    assert set(planner.spans) == {"cpu/onnxruntime"}
    assert planner.measured
    plan = planner.plan(devices=["cpu", "cpu/onnxruntime"])
    assert plan.measured
    frame = weights(1, 4, 6, 6)
    with pipeline.load(pipeline.build(graph, plan)) as running:
        assert running.submit(frame).outputs()["y"].shape == (1, 4, 6, 6)
