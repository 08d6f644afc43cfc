"""A profile measures what is here, estimates what is not, and says which is which."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline import sides, whole
from pipeline.board import Board, Device, Link
from pipeline.executor import profile as bench
from pipeline.executor.build import compile_stage
from pipeline.executor.cost_cache import CostCache
from pipeline.planning import planner
from pipeline.plans import StagePlan
from pipeline.profiling import pieces, profile
from pipeline.sides import Run
from pipeline.split.costs import estimate
from pipeline.split.graph import Graph
from pipeline.whole import Whole
from tests.onnx_models import node, save

HERE, AWAY = Device("cpu", cores=(0,)), Device("vta", "vta", memory="vta", families=("normalization",))
BOARD = Board("both", (HERE, AWAY), (Link(("host", "vta"), 1e9),))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ENOUGH_S", 0.0)
    monkeypatch.setattr(sides, "ROUND_S", 0.0)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    nodes = [node("Softmax", "x", "a"), node("ReduceMean", "a", "y", axes=[1])]
    return pipeline.read(save(tmp_path_factory.mktemp("profile") / "m.onnx", nodes, {"x": (16, 16)}, ["y"]))


def test_what_is_here_is_measured_and_what_is_not_is_estimated(graph: Graph, tmp_path: Path) -> None:
    found = profile(graph, BOARD, cache=CostCache(tmp_path))
    assert set(found.seconds) == {"cpu", "vta"}
    assert found.measured == {"cpu": found.seconds["cpu"]}
    assert "vta" in found.estimated["vta"]
    assert found.seconds["vta"] == tuple(estimate(graph, AWAY))
    assert found.seconds["vta"][1] == math.inf
    assert found.board.device("cpu").measured == ("bytes_per_s",)
    assert found.board.device("vta") == AWAY
    assert found.board.links == BOARD.links


def test_what_a_device_cannot_run_is_not_built(graph: Graph, tmp_path: Path) -> None:
    able = Board("some", (Device("cpu", cores=(0,), families=("normalization",)),))
    times = profile(graph, able, cache=CostCache(tmp_path)).seconds["cpu"]
    assert [math.isfinite(each) for each in times] == [True, False]


def test_groups_add_up_to_what_the_whole_model_takes(graph: Graph, tmp_path: Path) -> None:
    cache = CostCache(tmp_path)
    found = profile(graph, BOARD, cache=cache)
    known = Whole(graph, HERE, cache, lambda _: pytest.fail("not known")).time()
    assert sum(found.seconds["cpu"]) == pytest.approx(known.alone[0])
    assert sum(found.crowded["cpu"]) == pytest.approx(known.crowded[0])
    # As they were measured one by one, so are their shares.
    pairs = pieces(graph, graph.group_ends[:-1])
    alone = bench.measure(pairs, HERE, lambda _: pytest.fail("not known"), cache=cache).alone
    assert found.seconds["cpu"][0] / found.seconds["cpu"][1] == pytest.approx(alone[0] / alone[1])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one core")
def test_the_whole_streams_on_one_core_and_on_all(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[StagePlan] = []

    def noting(run: Run, frames: Any) -> float:
        (stage,) = run._bundle.plan.stages
        stages.append(stage)
        return stream(run, frames)

    stream = Run.stream
    monkeypatch.setattr(Run, "stream", noting)
    cores = tuple(sorted(os.sched_getaffinity(0))[:2])
    model = Whole(graph, Device("cpu", cores=cores), CostCache(None), lambda _: None)
    alone, crowded = model.time()
    assert [(stage.cores, stage.replicas) for stage in stages] == [(cores[-1:], 1), (cores, 2)] * bench.TURNS
    assert min(*alone, *crowded) > 0
    # Its cache knows nothing, so it is measured anew, but not built again.
    monkeypatch.setattr(whole, "compile_stage", lambda *_: pytest.fail("built again"))
    model.time()
    assert len(stages) == 4 * bench.TURNS


def test_the_whole_streams_on_a_device_without_cores(graph: Graph) -> None:
    alone, crowded = Whole(graph, Device("cpu"), CostCache(None), lambda _: None).time()
    assert 0 < alone[0] == crowded[0]


def test_links_between_devices_that_are_here_are_measured(graph: Graph, tmp_path: Path) -> None:
    board = Board("two", (HERE, Device("far", memory="far", cores=(0,))), (Link(("host", "far"), 1.0),))
    (link,) = profile(graph, board, cache=CostCache(tmp_path)).board.links
    assert link.measured
    assert link.bytes_per_s > 1


def test_a_second_profile_measures_nothing(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = profile(graph, BOARD, cache=CostCache(tmp_path))
    told: list[str] = []
    monkeypatch.setattr(bench, "compile_stage", lambda *_, **__: pytest.fail("built again"))
    assert profile(graph, BOARD, cache=CostCache(tmp_path), progress=told.append) == first
    assert told == []


def test_plans_measure_into_the_users_cache(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOC_PIPELINE_CACHE", str(tmp_path))
    first = planner(graph, BOARD, measure=True)
    assert planner(graph, BOARD, measure=True).given == first.given
    assert list(tmp_path.rglob("*.json"))
    built: list[Any] = []

    def noting(*arguments: Any, **options: Any) -> Any:
        built.append(arguments)
        return compile_stage(*arguments, **options)

    for module in (bench, whole):
        monkeypatch.setattr(module, "compile_stage", noting)
    planner(graph, BOARD, measure=True)
    assert not built
    planner(graph, BOARD, measure=True, fresh=True)
    assert len(built) == 3  # two groups, and the whole
