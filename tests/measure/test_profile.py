"""A profile measures what is here, estimates what is not, and says which is which."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.executor import host_target
from pipeline.measure.cost_cache import CostCache
from pipeline.measure.group_times import extract_groups, measure
from pipeline.measure.profile import profile
from pipeline.measure.sampling import MeasureOptions
from pipeline.measure.unsplit_rate import UnsplitBaseline
from pipeline.split.graph import Graph
from pipeline.split.planning.problem.costs import estimate
from pipeline.workflow.plan import PlannerOptions, make_planner
from tests.support.onnx_models import node, save
from tests.support.sampling import QUICK

HERE, AWAY = Device("cpu", cores=(0,)), Device("vta", "vta", memory="vta", families=("normalization",))
BOARD = Board("both", (HERE, AWAY), (Link(("host", "vta"), 1e9),))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    nodes = [node("Softmax", "x", "a"), node("ReduceMean", "a", "y", axes=[1])]
    return pipeline.read(save(tmp_path_factory.mktemp("profile") / "m.onnx", nodes, {"x": (16, 16)}, ["y"]))


def test_what_is_here_is_measured_and_what_is_not_is_estimated(graph: Graph, tmp_path: Path) -> None:
    report = profile(graph, BOARD, cache=CostCache(tmp_path), sampling=QUICK)
    assert set(report.seconds) == {"cpu", "vta"}
    assert report.measured == {"cpu": report.seconds["cpu"]}
    assert "vta" in report.estimated["vta"]
    assert report.seconds["vta"] == tuple(estimate(graph, AWAY))
    assert report.seconds["vta"][1] == math.inf
    assert report.board.device("cpu").measured == ("bytes_per_s",)
    assert report.board.device("vta") == AWAY
    assert report.board.links == BOARD.links


def test_runtimes_of_another_machines_processor_are_not_measured(graph: Graph, tmp_path: Path) -> None:
    foreign = "aarch64-linux-gnu" if host_target.machine() == "x86_64" else "x86_64-linux-gnu"
    away = replace(HERE, target={"kind": "llvm", "mtriple": foreign}, runtimes=("tvm", "onnxruntime"))
    report = profile(graph, Board("away", (away,)), cache=CostCache(tmp_path), sampling=QUICK)
    assert report.estimated.keys() == {"cpu"}
    assert not report.spans
    assert not report.measured


def test_what_a_device_cannot_run_is_not_built(graph: Graph, tmp_path: Path) -> None:
    board = Board("some", (Device("cpu", cores=(0,), families=("normalization",)),))
    times = profile(graph, board, cache=CostCache(tmp_path), sampling=QUICK).seconds["cpu"]
    assert [math.isfinite(seconds) for seconds in times] == [True, False]


def test_groups_add_up_to_what_the_whole_model_takes(graph: Graph, tmp_path: Path) -> None:
    cache = CostCache(tmp_path)
    report = profile(graph, BOARD, cache=cache, sampling=QUICK)
    unsplit = UnsplitBaseline(graph, HERE, MeasureOptions(cache, progress=pytest.fail)).time()
    assert sum(report.seconds["cpu"]) == pytest.approx(unsplit.isolated[0])
    assert sum(report.contended["cpu"]) == pytest.approx(unsplit.contended[0])
    # As they were measured one by one, so are their shares.
    pairs = extract_groups(graph, graph.group_ends[:-1])
    isolated = measure(pairs, HERE, MeasureOptions(cache, progress=pytest.fail)).isolated
    assert report.seconds["cpu"][0] / report.seconds["cpu"][1] == pytest.approx(isolated[0] / isolated[1])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one core")
def test_the_unsplit_model_streams_on_one_core_and_on_all(graph: Graph) -> None:
    cores = tuple(sorted(os.sched_getaffinity(0))[:2])
    texts: list[str] = []
    baseline = UnsplitBaseline(graph, Device("cpu", cores=cores), MeasureOptions(CostCache(None), QUICK, texts.append))
    assert [(run.bundle.plan.stages[0].cores, replicas) for replicas, run in baseline.runs] == [
        (cores[-1:], 1),
        (cores, 2),
    ]
    isolated, contended = baseline.time()
    assert min(*isolated, *contended) > 0
    # Its cache keeps nothing, so it is measured anew, but not built again.
    baseline.time()
    assert texts == ["building the whole model", *["measuring the whole model"] * 2]


def test_the_whole_streams_on_a_device_without_cores(graph: Graph) -> None:
    isolated, contended = UnsplitBaseline(graph, Device("cpu"), MeasureOptions(CostCache(None), QUICK)).time()
    assert 0 < isolated[0] == contended[0]


def test_links_between_devices_that_are_here_are_measured(graph: Graph, tmp_path: Path) -> None:
    board = Board("two", (HERE, Device("far", memory="far", cores=(0,))), (Link(("host", "far"), 1.0),))
    (link,) = profile(graph, board, cache=CostCache(tmp_path), sampling=QUICK).board.links
    assert link.measured
    assert link.bytes_per_s > 1


def test_a_second_profile_measures_nothing(graph: Graph, tmp_path: Path) -> None:
    first = profile(graph, BOARD, cache=CostCache(tmp_path), sampling=QUICK)
    assert profile(graph, BOARD, cache=CostCache(tmp_path), progress=pytest.fail) == first


def test_plans_measure_into_the_users_cache(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOC_PIPELINE_CACHE", str(tmp_path))
    first = make_planner(graph, BOARD, PlannerOptions(measure=True, sampling=QUICK))
    assert make_planner(graph, BOARD, PlannerOptions(measure=True), progress=pytest.fail).isolated == first.isolated
    assert list(tmp_path.rglob("*.json"))
    texts: list[str] = []
    make_planner(graph, BOARD, PlannerOptions(measure=True, sampling=QUICK), fresh=True, progress=texts.append)
    assert [text for text in texts if text.startswith("building")] == [
        "building group 1 of 2",
        "building group 2 of 2",
        "building the whole model",
    ]
