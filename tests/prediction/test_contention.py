"""Workers that wait in line for what they share, followed by hand and against bounds."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.moves import find_moves
from pipeline.core.plan.plan import Plan
from pipeline.core.plan.stage_plan import StagePlan, StepPlan, TensorSpec
from pipeline.prediction.borrowing import stage_parts
from pipeline.prediction.contention import WAKING_S, flow_interval, worker_groups, worker_phases
from pipeline.prediction.frame_flow import FrameFlow, Phase, WorkerGroup


def test_workers_that_share_nothing_are_as_fast_as_their_number() -> None:
    assert flow_interval((alike(3, Phase(0.6)),), 3) == pytest.approx(0.2)
    # Two frames inside keep two of them busy.
    assert flow_interval((alike(3, Phase(0.6)),), 2) == pytest.approx(0.3)


def test_a_shared_device_sets_the_pace_when_it_is_busy_all_the_time() -> None:
    phases = (Phase(1.0), Phase(2.0, "npu"), Phase(1.0))
    assert flow_interval((alike(4, *phases),), 8) == pytest.approx(2.0)
    # Two workers take turns: while one computes for 2 s, the other one has the device.
    assert flow_interval((alike(2, *phases),), 8) == pytest.approx(2.0)
    assert flow_interval((alike(1, *phases),), 8) == pytest.approx(4.0)


def test_two_workers_whose_steps_do_not_fit_between_each_other_lose_time_that_no_bound_shows() -> None:
    # Followed by hand: one has the device in the seconds 0 to 3, the other one 3 to 6 and computes until 7; the first
    # computes until 4, and has to wait until 6.
    phases = (Phase(3.0, "npu"), Phase(1.0), Phase(1.0, "npu"), Phase(3.0))
    interval = flow_interval((alike(2, *phases),), 2)
    assert interval > max(8 / 2, 4)
    assert interval < 8


@pytest.mark.parametrize("seed", range(10))
def test_the_pace_lies_between_its_bounds(seed: int) -> None:
    generator = np.random.default_rng(seed)
    groups = tuple(
        alike(
            int(generator.integers(1, 5)),
            *(Phase(generator.exponential(), generator.choice(["", "npu", "link"])) for _ in range(8)),
            predecessors=(number - 1,) if number else (),
        )
        for number in range(generator.integers(1, 4))
    )
    phases = [phase for group in groups for phase in group.workers[0]]
    loads = [sum(phase.seconds for phase in phases if phase.resource == name) for name in ("npu", "link")]
    alone = [sum(phase.seconds for phase in group.workers[0]) / len(group.workers) for group in groups]
    interval = flow_interval(groups, 100)
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
    groups = worker_groups(stages, worker_phases(board, stages, stage_parts(plan, find_moves(plan)), {"npu": 1}))
    assert groups == (
        alike(2, Phase(1.0), move, Phase(3.0, "npu", WAKING_S), move),
        alike(1, move, Phase(5.0, "npu", WAKING_S), move, predecessors=(0,)),
    )


def test_what_only_one_worker_uses_is_nothing_to_wait_for() -> None:
    board = Board("test", (Device("cpu", cores=(0,)), Device("npu", "vta", memory="npu", at_once=2)), ())
    first, second, third = (TensorSpec(name, (1,)) for name in "xyz")
    stages = (
        StagePlan("a", "cpu", (first,), (second,), seconds=1.0),
        StagePlan("b", "npu", (second,), (third,), seconds=2.0),
    )
    plan = Plan("test", "", board, (first,), (third,), stages)
    groups = worker_groups(stages, worker_phases(board, stages, stage_parts(plan, find_moves(plan)), {"npu": 1}))
    assert groups == (alike(1, Phase(1.0)), alike(1, Phase(2.0), predecessors=(0,)))


def test_a_worker_without_a_place_behind_it_keeps_its_frame() -> None:
    # The device has nothing to do while the first worker, which is done with it, waits for a place.
    first = alike(1, Phase(1.0, "npu"))
    second = alike(1, Phase(1.0), Phase(2.0, "npu"), Phase(1.0), predecessors=(0,), depth=1)
    assert flow_interval((first, second), 8) == pytest.approx(4.0)


def test_results_leave_in_order_so_that_few_frames_inside_wait_for_the_slowest() -> None:
    groups = (WorkerGroup(((Phase(1.0),), (Phase(4.0),))),)
    # By hand: the slow worker has one frame of five, if as many may be inside, and one that waits.
    assert flow_interval(groups, 6) == pytest.approx(4 / 5, rel=0.005)
    # With two inside, the fast one begins at 0 and 1 s, while the slow one has a frame; its second waits until 4 s.
    assert flow_interval(groups, 2) == pytest.approx(4 / 3, rel=0.005)


def test_branches_join_and_one_that_is_empty_takes_no_place() -> None:
    first = alike(1, Phase(1.0, "npu"))
    middle, last = alike(1, Phase(1.0), predecessors=(0,)), alike(1, Phase(1.0, "npu"), predecessors=(0, 1), depth=1)
    assert flow_interval((first, middle, last), 8) == pytest.approx(2.0)


@pytest.mark.parametrize("frames_per_worker", [2, 100])
# Each needs the memory for 2 of 3 seconds: three together take 6, two 4.
@pytest.mark.parametrize(("count", "seconds"), [(1, 3.0), (2, 2.0), (3, 2.0)])
def test_a_memory_serves_all_in_equal_parts(count: int, seconds: float, frames_per_worker: int) -> None:
    group = alike(count, Phase(3.0, memory="host", memory_s=2.0))
    assert flow_interval((group,), frames_per_worker * count) == pytest.approx(seconds)


def test_a_memory_goes_on_with_the_others_when_one_is_served() -> None:
    # By hand: each has half of the memory until 2 s; the first one has all of it until 4 s, while the second computes.
    first, second = (Phase(3.0, memory="host", memory_s=3.0),), (Phase(1.0, memory="host", memory_s=1.0), Phase(9.0))
    flow = FrameFlow((WorkerGroup((first, second)),), 2)
    flow.run(2, 1e-6)
    assert flow.ends[:2] == pytest.approx([4.0, 11.0])


def alike(count: int, *phases: Phase, predecessors: tuple[int, ...] = (), depth: int = 2) -> WorkerGroup:
    """Return workers that all do the same."""
    return WorkerGroup((phases,) * count, depth, predecessors)
