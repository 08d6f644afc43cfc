"""Queues are as deep as they have to be, by the simulation of the same stages, and as there is memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.simulation import simulate
from pipeline.split.planning.problem.queues import COST, LEAST, StageQueue, choose_depths, queue_cost

ENDLESS = 200

CASES = [
    ((5, 5), (1, 1), 0.3),
    ((5, 5, 5), (1, 1, 1), 0.1),
    ((5, 5, 5), (1, 1, 1), 0.5),
    ((5, 5, 5, 5, 5), (1, 1, 1, 1, 1), 0.3),
    ((3, 9, 5), (1, 1, 1), 0.5),
    ((9, 8), (1, 1), 0.3),
    ((10, 9, 10), (1, 1, 1), 0.3),
    ((5, 5), (1, 4), 0.3),
    ((5, 5), (4, 1), 0.1),
    ((5, 5), (3, 2), 0.5),
    ((5, 5, 5), (1, 3, 1), 0.3),
]
"""Milliseconds between two frames of each stage, its replicas, and the cv."""


def stages(intervals: tuple[float, ...], replicas: tuple[int, ...]) -> list[StageQueue]:
    return [StageQueue(interval * 1e-3, each) for interval, each in zip(intervals, replicas, strict=True)]


def rate(stage_queues: list[StageQueue], queues: list[int], cv: float) -> float:
    specs = [TensorSpec(f"t{number}", (4,)) for number in range(len(stage_queues) + 1)]
    plan_stages = tuple(
        StagePlan(
            f"s{number}",
            "device",
            (specs[number],),
            (specs[number + 1],),
            seconds=stage.interval * stage.replicas,
            queue_depth=queue,
            replicas=stage.replicas,
        )
        for number, (stage, queue) in enumerate(zip(stage_queues, queues, strict=True))
    )
    board = Board("b", (Device("device", "simulated"),))
    plan = Plan("m", "", board, (specs[0],), (specs[-1],), plan_stages)
    return simulate(plan, frames=3000, cv=cv, seed=1).frames_per_s


@pytest.mark.parametrize(("intervals", "replicas", "cv"), CASES, ids=str)
@pytest.mark.one_in(3)
def test_the_depth_is_enough_and_much_less_is_not(
    intervals: tuple[float, ...], replicas: tuple[int, ...], cv: float
) -> None:
    stage_queues = stages(intervals, replicas)
    depths = choose_depths(stage_queues, cv, {})
    endless = rate(stage_queues, [ENDLESS] * len(stage_queues), cv)
    # Several queues in a row cost little more than one.
    assert rate(stage_queues, depths, cv) >= (1 - 1.6 * COST) * endless
    if max(depths) > 2 * LEAST:
        assert rate(stage_queues, [max(1, each // 3) for each in depths], cv) < (1 - 1.6 * COST) * endless


def test_the_expected_cost_is_about_the_simulated_one() -> None:
    stage_queues = stages((5, 5), (1, 1))
    for cv, depth in ((0.3, 1), (0.3, 4), (0.5, 2), (0.5, 8)):
        cost = 1 - rate(stage_queues, [LEAST, depth], cv) / rate(stage_queues, [LEAST, ENDLESS], cv)
        assert queue_cost(stage_queues, 1, depth, cv) == pytest.approx(cost, rel=0.4)


def test_a_chosen_depth_is_the_smallest_that_keeps_to_the_cost() -> None:
    for intervals, replicas, cv in CASES:
        stage_queues = stages(intervals, replicas)
        for number, depth in enumerate(choose_depths(stage_queues, cv, {})):
            assert queue_cost(stage_queues, number, depth, cv) <= COST
            assert depth == LEAST or queue_cost(stage_queues, number, depth - 1, cv) > COST


def test_times_that_do_not_vary_and_stages_of_no_time_need_the_least() -> None:
    assert choose_depths(stages((5, 5, 5), (1, 3, 1)), 0.0, {}) == [LEAST] * 3
    assert choose_depths(stages((0, 0, 5), (1, 1, 1)), 0.5, {}) == [LEAST] * 3
    assert choose_depths(stages((0, 0), (1, 1)), 0.1, {}) == [LEAST] * 2
    assert choose_depths(stages((5,), (4,)), 0.5, {}) == [LEAST]


def test_memory_shortens_the_queues_with_the_most_bytes() -> None:
    stage_queues = [
        replace(stage, memory="small" if number else "large", nbytes=nbytes)
        for number, (stage, nbytes) in enumerate(zip(stages((5, 5, 5), (1, 1, 1)), (1e9, 100, 10), strict=True))
    ]
    unlimited = choose_depths(stage_queues, 0.3, {})
    assert unlimited == [LEAST, 5, 5]
    assert choose_depths(stage_queues, 0.3, {"small": 550, "large": 2e9}) == unlimited
    assert choose_depths(stage_queues, 0.3, {"small": 250}) == [LEAST, 2, 5]
    # A stage needs room for one frame, whatever there is; the planner has seen to it.
    assert choose_depths(stage_queues, 0.3, {"small": 0}) == [LEAST, 1, 1]
