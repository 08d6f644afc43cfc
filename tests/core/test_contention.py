"""Workers that wait in line for what they share, followed by hand and against bounds."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.board import Board, Device, Link
from pipeline.core.contention import WAKING_S, Phase, WorkerGroup, contended_interval, worker_groups
from pipeline.core.moves import find_moves
from pipeline.core.plan import Plan
from pipeline.core.stage_plan import StagePlan, StepPlan, TensorSpec


def test_workers_that_share_nothing_are_as_fast_as_their_number() -> None:
    assert contended_interval((WorkerGroup(3, (Phase(0.6),)),), 3) == pytest.approx(0.2)
    # Two frames inside keep two of them busy.
    assert contended_interval((WorkerGroup(3, (Phase(0.6),)),), 2) == pytest.approx(0.3)


def test_a_shared_device_sets_the_pace_when_it_is_busy_all_the_time() -> None:
    phases = (Phase(1.0), Phase(2.0, "npu"), Phase(1.0))
    assert contended_interval((WorkerGroup(4, phases),), 8) == pytest.approx(2.0)
    # Two workers take turns: while one computes for 2 s, the other one has the device.
    assert contended_interval((WorkerGroup(2, phases),), 8) == pytest.approx(2.0)
    assert contended_interval((WorkerGroup(1, phases),), 8) == pytest.approx(4.0)


def test_two_workers_whose_steps_do_not_fit_between_each_other_lose_time_that_no_bound_shows() -> None:
    # Followed by hand: one has the device in the seconds 0 to 3, the other one 3 to 6 and computes until 7; the first
    # computes until 4, and has to wait until 6.
    phases = (Phase(3.0, "npu"), Phase(1.0), Phase(1.0, "npu"), Phase(3.0))
    interval = contended_interval((WorkerGroup(2, phases),), 2)
    assert interval > max(8 / 2, 4)
    assert interval < 8


@pytest.mark.parametrize("seed", range(10))
def test_the_pace_lies_between_its_bounds(seed: int) -> None:
    generator = np.random.default_rng(seed)
    groups = tuple(
        WorkerGroup(
            int(generator.integers(1, 5)),
            tuple(Phase(generator.exponential(), generator.choice(["", "npu", "link"])) for _ in range(8)),
        )
        for _ in range(generator.integers(1, 4))
    )
    phases = [phase for group in groups for phase in group.phases]
    loads = [sum(phase.seconds for phase in phases if phase.resource == name) for name in ("npu", "link")]
    alone = [sum(phase.seconds for phase in group.phases) / group.workers for group in groups]
    interval = contended_interval(groups, 100)
    assert max(*loads, *alone) * (1 - 0.02) <= interval <= sum(phase.seconds for phase in phases)


def test_transfers_of_steps_take_the_link_and_stages_stand_in_line_for_what_others_borrow() -> None:
    devices = (Device("cpu", cores=(0, 1)), Device("npu", "vta", memory="npu"))
    board = Board("test", devices, (Link(("host", "npu"), 4.0, 1.0),))
    # A tensor of four bytes moves in 1 + 4 / 4 seconds.
    first, second, third, fourth = (TensorSpec(name, (1,)) for name in "xyzw")
    steps = (StepPlan("cpu", (), (first,), (second,), 1.0), StepPlan("npu", (), (second,), (third,), 7.0))
    stages = (
        StagePlan("a", "cpu", (first,), (third,), replicas=2, steps=steps, seconds=8.0),
        StagePlan("b", "npu", (third,), (fourth,), seconds=9.0),
    )
    plan = Plan("test", "", board, (first,), (fourth,), stages)
    move = Phase(2.0, "host - npu")
    assert worker_groups(board, stages, find_moves(plan), {"npu"}) == (
        WorkerGroup(2, (Phase(1.0), move, Phase(3.0, "npu", WAKING_S), move)),
        WorkerGroup(1, (move, Phase(5.0, "npu", WAKING_S), move)),
    )
