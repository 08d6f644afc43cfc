"""Queues are as deep as they have to be, by the simulation of the same stages, and as there is memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.core.board import Board, Device
from pipeline.core.plan import Plan, StagePlan, TensorSpec
from pipeline.simulation import simulate
from pipeline.split.planning.queues import COST, LEAST, StageQueue, choose_depths, queue_cost

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


def rate(waiting: list[StageQueue], queues: list[int], cv: float) -> float:
    specs = [TensorSpec(f"t{number}", (4,)) for number in range(len(waiting) + 1)]
    made = tuple(
        StagePlan(
            f"s{number}",
            "device",
            (specs[number],),
            (specs[number + 1],),
            seconds=stage.interval * stage.replicas,
            queue_depth=queue,
            replicas=stage.replicas,
        )
        for number, (stage, queue) in enumerate(zip(waiting, queues, strict=True))
    )
    board = Board("b", (Device("device", "simulated"),))
    plan = Plan("m", "", board, (specs[0],), (specs[-1],), made)
    return simulate(plan, frames=3000, cv=cv, seed=1).frames_per_s


@pytest.mark.parametrize(("intervals", "replicas", "cv"), CASES, ids=str)
def test_the_depth_is_enough_and_much_less_is_not(
    intervals: tuple[float, ...], replicas: tuple[int, ...], cv: float
) -> None:
    waiting = stages(intervals, replicas)
    found = choose_depths(waiting, cv, {})
    endless = rate(waiting, [ENDLESS] * len(waiting), cv)
    # Several queues in a row cost little more than one.
    assert rate(waiting, found, cv) >= (1 - 1.6 * COST) * endless
    if max(found) > 2 * LEAST:
        assert rate(waiting, [max(1, each // 3) for each in found], cv) < (1 - 1.6 * COST) * endless


def test_the_expected_cost_is_about_the_simulated_one() -> None:
    waiting = stages((5, 5), (1, 1))
    for cv, depth in ((0.3, 1), (0.3, 4), (0.5, 2), (0.5, 8)):
        lost = 1 - rate(waiting, [LEAST, depth], cv) / rate(waiting, [LEAST, ENDLESS], cv)
        assert queue_cost(waiting, 1, depth, cv) == pytest.approx(lost, rel=0.4)


def test_a_chosen_depth_is_the_smallest_that_keeps_to_the_cost() -> None:
    for intervals, replicas, cv in CASES:
        waiting = stages(intervals, replicas)
        for number, depth in enumerate(choose_depths(waiting, cv, {})):
            assert queue_cost(waiting, number, depth, cv) <= COST
            assert depth == LEAST or queue_cost(waiting, number, depth - 1, cv) > COST


def test_times_that_do_not_vary_and_stages_of_no_time_need_the_least() -> None:
    assert choose_depths(stages((5, 5, 5), (1, 3, 1)), 0.0, {}) == [LEAST] * 3
    assert choose_depths(stages((0, 0, 5), (1, 1, 1)), 0.5, {}) == [LEAST] * 3
    assert choose_depths(stages((0, 0), (1, 1)), 0.1, {}) == [LEAST] * 2
    assert choose_depths(stages((5,), (4,)), 0.5, {}) == [LEAST]


def test_memory_shortens_the_queues_with_the_most_bytes() -> None:
    waiting = [
        replace(stage, memory="small" if number else "large", nbytes=nbytes)
        for number, (stage, nbytes) in enumerate(zip(stages((5, 5, 5), (1, 1, 1)), (1e9, 100, 10), strict=True))
    ]
    wide = choose_depths(waiting, 0.3, {})
    assert wide == [LEAST, 5, 5]
    assert choose_depths(waiting, 0.3, {"small": 550, "large": 2e9}) == wide
    assert choose_depths(waiting, 0.3, {"small": 250}) == [LEAST, 2, 5]
    # A stage needs room for one frame, whatever there is; the planner has seen to it.
    assert choose_depths(waiting, 0.3, {"small": 0}) == [LEAST, 1, 1]
