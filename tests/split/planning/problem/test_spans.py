"""Times of spans: what the planner makes of a runtime whose times do not add up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.split.graph import Graph
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem.arrays import span_sums
from pipeline.split.planning.problem.spans import SpanTimes
from tests.support.onnx_models import node, save, weights

BOARD = Board("b", (Device("cpu", cores=(0, 1), runtimes=("tvm", "onnxruntime")),))


def spans_of(seed: int, positions: tuple[int, ...]) -> SpanTimes:
    """Return random times, some of which cannot be."""
    generator = np.random.default_rng(seed)
    size = len(positions)
    seconds = span_sums(generator.exponential(1, size - 1)) * generator.uniform(0.5, 1.5, (size, size))
    seconds[generator.random((size, size)) < 0.2] = np.inf
    return SpanTimes(positions, seconds, {2: 0.6}, 1.3)


@pytest.mark.parametrize("seed", range(20))
def test_no_span_takes_less_than_its_groups(seed: int) -> None:
    spans = spans_of(seed, (0, 2, 3, 7, 8))
    groups = np.array(spans.group_seconds(np.random.default_rng(seed).exponential(1, 8).tolist()))
    matrix = spans.matrix()
    for begin in range(8):
        for end in range(begin + 1, 9):
            if np.isfinite(matrix[end, begin]):
                assert groups[begin:end].sum() <= matrix[end, begin] * (1 + 1e-9)


def test_threads_and_busy_neighbours_multiply_the_time() -> None:
    spans = SpanTimes((0, 1, 2), span_sums(np.array([1.0, 2.0])), {2: 0.6, 4: 0.5}, 1.3)
    assert spans.matrix()[2, 0] == 3.0
    assert spans.matrix(2)[2, 0] == pytest.approx(1.8)
    assert spans.matrix(3)[2, 0] == pytest.approx(1.8)
    assert spans.matrix(1, contended=True)[1, 0] == pytest.approx(1.3)
    assert not np.isfinite(spans.matrix()[0, 0])


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    nodes = [node("Conv", f"{source} w", target, target, pads=[1] * 4) for source, target in ("xa", "ab", "bc", "cy")]
    return pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y"], {"w": weights(4, 4, 3, 3)}))


def planner(graph: Graph, spans: SpanTimes, tvm: list[float]) -> Planner:
    """Return a planner with these times of TVM's groups, and of the other runtime's spans."""
    groups = len(graph.group_ends)
    isolated = {"cpu": tvm, "cpu/onnxruntime": spans.group_seconds([1.0] * groups)}
    return Planner(graph, BOARD, isolated, spans={"cpu/onnxruntime": spans})


def test_each_stage_gets_the_runtime_that_is_faster_there(graph: Graph) -> None:
    # The other runtime is fast at the beginning, and slow behind.
    spans = SpanTimes((0, 1, 2, 3, 4), span_sums(np.array([0.5, 0.5, 4.0, 4.0])))
    plan = planner(graph, spans, [2.0, 2.0, 0.5, 0.5]).plan(replicas=False)
    assert [(stage.device, stage.operators[-1]) for stage in plan.stages] == [("cpu/onnxruntime", "b"), ("cpu", "y")]
    assert [stage.seconds for stage in plan.stages] == pytest.approx([1.0, 1.0], rel=1e-3)


def test_stages_end_only_where_spans_were_measured(graph: Graph) -> None:
    spans = SpanTimes((0, 3, 4), span_sums(np.array([1.0, 1.0])))
    plan = planner(graph, spans, [9.0] * 4).plan(stages=2)
    assert [stage.device for stage in plan.stages] == ["cpu/onnxruntime"] * 2
    assert plan.stages[0].operators[-1] == "c"


def test_a_device_that_is_asked_for_keeps_its_runtime(graph: Graph) -> None:
    spans = SpanTimes((0, 1, 2, 3, 4), span_sums(np.array([0.5, 0.5, 4.0, 4.0])))
    planned = planner(graph, spans, [2.0, 2.0, 0.5, 0.5])
    plan = planned.plan(devices=["cpu", "cpu/onnxruntime"])
    assert [stage.device for stage in plan.stages] == ["cpu", "cpu/onnxruntime"]
    assert pipeline.Plan.load(_saved(plan, Path(str(graph.sources[0].model)).with_suffix(".json"))) == plan


def test_without_measuring_the_first_runtime_is_taken(graph: Graph) -> None:
    for runtimes, name in ((("tvm", "onnxruntime"), "cpu"), (("onnxruntime", "tvm"), "cpu/onnxruntime")):
        plan = pipeline.plan(graph, BOARD, stages=2, runtimes=runtimes)
        assert {stage.device for stage in plan.stages} == {name}


def _saved(plan: pipeline.Plan, path: Path) -> Path:
    plan.save(path)
    return path


def test_a_slash_in_a_name_is_no_runtime(graph: Graph) -> None:
    board = Board("b", (Device("cpu", cores=(0, 1)), Device("pcie/cpu", cores=(2,))))
    plan = pipeline.plan(graph, board, devices=["cpu", "pcie/cpu"])
    assert [stage.device for stage in plan.stages] == ["cpu", "pcie/cpu"]
    assert {stage.device for stage in pipeline.plan(graph, board, stages=1, pin={"a": "pcie/cpu"}).stages} == {
        "pcie/cpu"
    }
