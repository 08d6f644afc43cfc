"""The planner against all plans of small graphs, each by what `predict` says of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.plan import Plan
from pipeline.errors import PlanError
from pipeline.prediction.predict import Prediction, predict
from pipeline.split.planning.planner import Planner
from tests.support.small_cases import SmallCase, random_small_case

# How near to the best a search has to come, and by how much slower fewer stages may be.
NEAR, SIZE = 1.0011, 1.02

CASES = [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 80))]


def planner_of(case: SmallCase) -> Planner:
    return Planner(case.graph, case.board, isolated=case.seconds)


def check_rate(plan: Plan, predictions: list[Prediction]) -> None:
    """Check the rule for rate and latency."""
    chosen, least = predict(plan), min(each.latency_s for each in predictions)
    fastest = min(each.interval_s for each in predictions)
    prompt = min(each.interval_s for each in predictions if each.latency_s <= 2 * least * NEAR)
    if chosen.latency_s > 2 * least * NEAR:
        assert fastest * 1.2 <= prompt * SIZE * NEAR
        assert chosen.interval_s <= fastest * SIZE * NEAR
    else:
        assert chosen.interval_s <= prompt * SIZE * NEAR


@pytest.mark.parametrize("seed", CASES)
@pytest.mark.one_in(3)
def test_no_plan_of_a_small_graph_is_better(seed: int) -> None:
    case = random_small_case(seed)
    predictions, planner = [prediction for _, prediction in case.plans()], planner_of(case)
    check_rate(planner.plan(objective="throughput", heterogeneous=False), predictions)
    latency = predict(planner.plan(objective="latency", heterogeneous=False)).latency_s
    assert latency <= min(each.latency_s for each in predictions) * NEAR
    joules = predict(planner.plan(objective="energy", heterogeneous=False)).joules
    assert joules is not None
    assert joules <= min(each.joules or 0.0 for each in predictions) * NEAR
    fastest = min(each.interval_s for each in predictions)
    for share in (0.4, 0.9, 0.995):
        plan = planner.plan(fps=share / fastest, heterogeneous=False)
        assert predict(plan).interval_s <= fastest / share * (1 + 1e-6)
        in_time = [each.latency_s for each in predictions if each.interval_s <= fastest / share]
        assert predict(plan).latency_s <= min(in_time) * NEAR


@pytest.mark.parametrize("seed", range(4))
def test_no_plan_beats_the_bound(seed: int) -> None:
    case = random_small_case(seed)
    solution = planner_of(case).solve(heterogeneous=False)
    names = [f"n{group}" for group in range(len(case.reads))]
    own_order = [
        prediction.interval_s
        for plan, prediction in case.plans()
        if [name for stage in plan.stages for name in dict.fromkeys(stage.operators)] == sorted_ends(plan, names)
    ]
    assert 0 < solution.bound <= min(own_order)
    assert solution.bound <= solution.interval


def sorted_ends(plan: Plan, names: list[str]) -> list[str]:
    """Return the first and last operators of stages, as they would follow each other in the graph's own order."""
    return sorted((name for stage in plan.stages for name in dict.fromkeys(stage.operators)), key=names.index)


def test_what_skips_a_stage_is_not_kept_there() -> None:
    devices = (
        Device("cpu", cores=(0,), memory_bytes=10_000_000),
        Device("npu", "vta", memory="npu", memory_bytes=50_000),
    )
    board = Board("board", devices, (Link(("host", "npu"), 1e9, 1e-6),))
    seconds = {"cpu": [0.1, 0.1, 1.0, 0.1], "npu": [9.0, 9.0, 0.1, 9.0]}
    # What the first group makes is larger than the memory of the accelerator, whose group does not read it.
    case = SmallCase([[], [0], [1], [0, 2]], [100, 60_000, 100, 100, 100], board, seconds)
    plan = planner_of(case).plan(stages=3, devices=["cpu", "npu", "cpu"])
    assert [stage.operators for stage in plan.stages] == [("n0", "n1"), ("n2", "n2"), ("n3", "n3")]
    with pytest.raises(PlanError, match="memor"):
        planner_of(replace(case, nbytes=[100, 60_000, 60_000, 100, 100])).plan(stages=3, devices=["cpu", "npu", "cpu"])


def test_branches_beside_each_other_count_once_in_the_latency() -> None:
    devices = (Device("cpu", cores=(0,), bytes_per_s=1e12), Device("npu", "vta", bytes_per_s=1e12))
    seconds = {"cpu": [0.1, 1.0, 1.5, 0.1], "npu": [9.0, 1.5, 1.0, 9.0]}
    case = SmallCase([[], [0], [0], [1, 2]], [1] * 5, Board("board", devices), seconds)
    plan = planner_of(case).plan(objective="latency", heterogeneous=False)
    assert predict(plan).latency_s == min(prediction.latency_s for _, prediction in case.plans())


def test_a_run_takes_no_less_than_its_bytes_in_a_chain() -> None:
    devices = (
        Device("cpu", cores=(0, 1), memory_bytes_per_s=1e7),
        Device("npu", "vta", memory="npu", memory_bytes_per_s=1e6),
    )
    board = Board("board", devices, (Link(("host", "npu"), 1e7, 1e-5),))
    # The accelerator computes in no time what its memory needs a tenth of a second for.
    seconds = {"cpu": [0.1, 0.12, 0.1], "npu": [0.01, 0.01, 0.01]}
    case = SmallCase([[], [0], [1]], [50_000, 60_000, 50_000, 40_000], board, seconds)
    predictions, planner = [prediction for _, prediction in case.plans()], planner_of(case)
    check_rate(planner.plan(objective="throughput", heterogeneous=False), predictions)
    latency = predict(planner.plan(objective="latency", heterogeneous=False)).latency_s
    assert latency <= min(each.latency_s for each in predictions) * NEAR
