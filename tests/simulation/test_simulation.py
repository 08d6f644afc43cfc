"""A simulated stream obeys the laws that a real one obeys, exactly."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import simulation
from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.errors import PlanError
from pipeline.prediction.predict import predict
from pipeline.simulation import Simulation

MS = 1e-3

simulate = partial(simulation.simulate, overhead=0.0)
"""As if the scheduler took no time, so that rates are round."""


def plan(*stages: tuple[str, str, float], outputs: str = "", board: Board | None = None, **options: Any) -> Plan:
    """Return the plan of stages given as (name, what it reads, milliseconds); each makes a tensor of its name."""
    stage_plans = tuple(
        StagePlan(name, "device", tuple(map(spec, reads.split())), (spec(name),), seconds=time * MS)
        for name, reads, time in stages
    )
    board = board or Board("simulated", (Device("device", "simulated"),))
    return Plan(
        "m", "", board, (spec("x"),), tuple(map(spec, (outputs or stages[-1][0]).split())), stage_plans, **options
    )


def spec(name: str) -> TensorSpec:
    return TensorSpec(name, (1000,))


def chain(*milliseconds: float, **options: Any) -> Plan:
    names = [f"s{number}" for number in range(len(milliseconds))]
    return plan(*zip(names, ["x", *names], milliseconds, strict=False), **options)


def depth(original_plan: Plan, queue_depth: int) -> Plan:
    return replace(
        original_plan, stages=tuple(replace(stage, queue_depth=queue_depth) for stage in original_plan.stages)
    )


@pytest.mark.parametrize("times", [(5,), (5, 5, 5), (3, 9, 5), (9, 1), (1, 9), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("queue_depth", [1, 2, 5])
def test_without_variation_the_rate_is_that_of_the_slowest_stage(times: tuple[float, ...], queue_depth: int) -> None:
    result = simulate(depth(chain(*times), queue_depth), frames=200)
    assert result.frames_per_s == pytest.approx(1 / (max(times) * MS))
    assert result.bottleneck == f"s{times.index(max(times))}"
    assert result.seconds == pytest.approx((sum(times) + 199 * max(times)) * MS)
    assert (result.delivered, result.dropped) == (200, {})


def test_the_scheduler_takes_its_time_for_each_frame_in_each_stage() -> None:
    result = simulate(chain(1, 2, 1), frames=50, overhead=0.1 * MS)
    assert result.frames_per_s == pytest.approx(1 / (2.1 * MS))
    assert result.stages[1].busy == pytest.approx(50 * 2 * MS / result.seconds)
    assert simulate(chain(1, 2, 1, in_flight=1), frames=50, overhead=0.1 * MS).latency_s.p50 == pytest.approx(4.3 * MS)
    unsaid = simulation.simulate(chain(1), frames=50).frames_per_s
    assert unsaid == pytest.approx(1 / (1 * MS + simulation.OVERHEAD_S))


def test_one_frame_at_a_time_takes_the_sum() -> None:
    result = simulate(chain(3, 9, 5, in_flight=1), frames=50)
    assert result.frames_per_s == pytest.approx(1 / (17 * MS))
    assert result.latency_s.p50 == result.latency_s.p99 == pytest.approx(17 * MS)
    assert all(stage.queue_longest == 0 for stage in result.stages)


def test_frames_that_come_slowly_wait_nowhere() -> None:
    result = simulate(chain(3, 9, 5), frames=50, fps=50)
    assert result.frames_per_s == pytest.approx(50)
    assert result.latency_s.p99 == result.since_arrival_s.p99 == pytest.approx(17 * MS)
    assert [stage.busy for stage in result.stages] == pytest.approx(
        [50 * time * MS / (result.seconds) for time in (3, 9, 5)], rel=1e-6
    )


def test_frames_that_come_too_fast_wait_in_front() -> None:
    result = simulate(chain(3, 9, 5), frames=100, fps=200)
    assert result.frames_per_s == pytest.approx(1 / (9 * MS))
    assert result.since_arrival_s.p99 > result.latency_s.p99 + 0.2


def test_replicas_share_the_work() -> None:
    (stage,) = chain(8).stages
    result = simulate(replace(chain(8), stages=(replace(stage, replicas=4),)), frames=400)
    # Frames come out by fours: those of the first and of the last four count as one moment each.
    assert result.frames_per_s == pytest.approx(4 / (8 * MS), rel=0.01)
    assert result.stages[0].busy == pytest.approx(1)


def test_a_full_queue_blocks_the_stage_before_it() -> None:
    result = simulate(depth(chain(1, 9), 1), frames=100)
    assert result.stages[0].blocked > 0.85
    assert result.stages[0].busy == pytest.approx(100 * 1 * MS / result.seconds)
    assert result.stages[1].queue_longest == 1
    assert result.stages[1].blocked == 0


def test_branches_join() -> None:
    diamond = plan(("a", "x", 2), ("b", "a", 5), ("c", "a", 3), ("d", "b c x", 1))
    result = simulate(diamond, frames=100, trace=True)
    assert result.frames_per_s == pytest.approx(1 / (5 * MS))
    runs = {(event.stage, event.frame): event for event in result.events if event.kind == "run"}
    assert len(runs) == 400
    for number in range(100):
        for producer, consumer in (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")):
            assert runs[producer, number].end <= runs[consumer, number].start
    independent = simulate(plan(("a", "x", 2), ("b", "x", 5), outputs="a b"), frames=100)
    assert independent.frames_per_s == pytest.approx(1 / (5 * MS)), "two first stages that are also the last ones"


def test_a_worker_runs_one_frame_at_a_time_in_order() -> None:
    result = simulate(chain(3, 9, 5), frames=60, cv=0.5, trace=True)
    for stage in ("s0", "s1", "s2"):
        runs = [event for event in result.events if event.stage == stage and event.kind == "run"]
        assert [event.frame for event in runs] == list(range(60))
        assert all(one.end <= other.start + 1e-12 for one, other in pairwise(runs))


def test_stages_on_one_core_take_turns() -> None:
    board = Board("one core", (Device("device", "cpu", cores=(0,)),))
    shared_plan = replace(chain(3, 5, board=board), stages=tuple(replace(s, cores=(0,)) for s in chain(3, 5).stages))
    assert simulate(shared_plan, frames=200).frames_per_s == pytest.approx(1 / (8 * MS), rel=0.01)
    assert simulate(chain(3, 5), frames=200).frames_per_s == pytest.approx(1 / (5 * MS))


def test_stages_share_a_link() -> None:
    """The stages copy 4 kB in and out in 2 ms each; the link has room for one at a time."""
    devices = (Device("host", "cpu", cores=(0,)), *(Device(name, "simulated", memory=name) for name in "ab"))
    slow = 4000 / (2 * MS)
    board = Board("apart", devices, (Link(("host", "a"), slow), Link(("host", "b"), slow)))
    chained_plan = plan(("s0", "x", 6), ("s1", "s0", 6))
    stages = tuple(replace(stage, device=name) for stage, name in zip(chained_plan.stages, "ab", strict=True))
    two_links = simulate(replace(chained_plan, board=board, stages=stages), frames=100)
    assert two_links.frames_per_s == pytest.approx(1 / (6 * MS))
    assert two_links.links == pytest.approx({"host - a": 4 / 6, "host - b": 4 / 6}, rel=0.05)
    single_device = tuple(replace(stage, device="a") for stage in stages)
    shared_link = simulate(replace(chained_plan, board=board, stages=single_device), frames=100)
    assert shared_link.links.keys() == {"host - a"}
    assert shared_link.links["host - a"] <= 1


def test_a_device_that_overlaps_computes_one_frame_at_a_time() -> None:
    """A frame takes 2 ms in, 6 ms of computing and 2 ms out: replicas hide the transfers, and no more."""
    devices = (Device("host", "cpu", cores=(0,)), Device("gpu", "cuda", memory="gpu"))
    board = Board("gpu", devices, (Link(("host", "gpu"), 4000 / (2 * MS)),))
    (single_stage,) = chain(10).stages
    rates = {}
    for replicas in (1, 2, 3):
        stage = replace(single_stage, device="gpu", replicas=replicas, transfer_s=4 * MS)
        replicated_plan = replace(chain(10), board=board, stages=(stage,))
        rates[replicas] = simulate(replicated_plan, frames=300).frames_per_s
        if replicas > 1:
            assert rates[replicas] == pytest.approx(predict(replicated_plan).frames_per_s, rel=0.01)
    assert rates[1] == pytest.approx(100)
    assert rates[2] == rates[3] == pytest.approx(1 / (6 * MS), rel=0.01)


def test_stages_on_one_accelerator_take_turns() -> None:
    devices = (Device("cpu", cores=(0,)), Device("vta", "vta", at_once=2))
    chained_plan = chain(3, 5)
    stages = tuple(replace(stage, device="vta") for stage in chained_plan.stages)
    shared_plan = replace(chained_plan, board=Board("vta", devices), stages=stages)
    assert simulate(shared_plan, frames=200).frames_per_s == pytest.approx(1 / (8 * MS), rel=0.01)


def test_equal_seeds_give_equal_streams_and_others_do_not() -> None:
    first, repeated, different = (simulate(chain(3, 9, 5), frames=100, cv=0.3, seed=seed) for seed in (1, 1, 2))
    assert first == repeated
    assert first != different


def test_variation_costs_rate_and_longer_queues_win_some_back() -> None:
    rates = [simulate(depth(chain(5, 5, 5), size), frames=2000, cv=0.5).frames_per_s for size in (1, 2, 4, 16)]
    assert rates == sorted(rates)
    assert rates[0] < 0.9 / (5 * MS) < rates[-1] < 1 / (5 * MS) * 1.02


def test_samples_are_used_as_they_are() -> None:
    result = simulate(chain(5, 1), samples={"s0": [2 * MS, 4 * MS]}, frames=3000)
    assert result.frames_per_s == pytest.approx(1 / (3 * MS), rel=0.05)
    assert simulate(chain(0, 0), samples={"s1": [4 * MS]}).frames_per_s == pytest.approx(250)


FAST: dict[str, Any] = {"frames": 400, "fps": 250.0}
"""Two and a half times as many frames as stages of 10 ms take."""


def test_the_latest_frame_replaces_the_one_that_waited() -> None:
    result = simulate(depth(chain(10), 1), admission="latest", **FAST)
    assert result.dropped.keys() == {"replaced"}
    assert result.delivered + result.dropped["replaced"] == result.frames == 400
    assert result.delivered == pytest.approx(160, abs=3)
    assert result.frames_per_s == pytest.approx(100)
    # At most the stage's own, one in its queue, and one frame's time in the line.
    assert result.since_arrival_s.p99 <= 30 * MS


def test_a_line_drops_its_oldest_frame() -> None:
    result = simulate(depth(chain(10), 1), admission="drop-oldest", waiting=4, **FAST)
    assert result.dropped.keys() == {"full"}
    assert result.delivered == pytest.approx(163, abs=3)
    assert result.frames_per_s == pytest.approx(100)
    assert 45 * MS < result.since_arrival_s.p99 <= 60 * MS


@pytest.mark.parametrize("cv", [0.0, 0.1])
def test_what_would_be_late_does_not_start(cv: float) -> None:
    times = chain(4, 3, 10, 5)
    result, latest = (
        simulate(times, **FAST, cv=cv, seed=3, **options)
        for options in ({"admission": "deadline", "deadline": 60 * MS}, {"admission": "latest"})
    )
    assert result.dropped.keys() <= {"late", "replaced"}
    assert sum(result.dropped.values()) + result.delivered == 400
    assert result.frames_per_s == pytest.approx(latest.frames_per_s, rel=0.05)
    assert result.since_arrival_s.p99 <= (60 + 10 * bool(cv)) * MS < latest.since_arrival_s.p99
    blocked_stream = simulate(chain(10), admission="deadline", deadline=5 * MS, **FAST)
    assert (blocked_stream.delivered, blocked_stream.frames_per_s, blocked_stream.dropped) == (0, 0.0, {"late": 400})


@pytest.mark.parametrize("policy", ["latest", "drop-oldest", "deadline"])
def test_nobody_is_dropped_where_all_find_room(policy: str) -> None:
    result = simulate(
        chain(4, 3), frames=100, fps=100, admission=policy, deadline=1.0 if policy == "deadline" else np.inf
    )
    assert (result.delivered, result.dropped) == (100, {})


@st.composite
def cases(draw: Any) -> tuple[Plan, int]:
    times = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    chained_plan = chain(*times, in_flight=draw(st.integers(0, 5)))
    stages = tuple(
        replace(stage, queue_depth=draw(st.integers(1, 3)), replicas=draw(st.integers(1, 3)))
        for stage in chained_plan.stages
    )
    return replace(chained_plan, stages=stages), draw(st.integers(0, 100))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(cases())
def test_nothing_is_lost_and_nothing_is_faster_than_it_can_be(case: tuple[Plan, int]) -> None:
    chained_plan, seed = case
    result = simulate(chained_plan, frames=60, cv=0.4, seed=seed, trace=True)
    assert [stage.frames for stage in result.stages] == [60] * len(chained_plan.stages)
    check_bounds(chained_plan, result)


def check_bounds(chained_plan: Plan, simulation_result: Simulation) -> None:
    in_flight = np.zeros(0)
    runs = {(event.stage, event.frame): event for event in simulation_result.events if event.kind == "run"}
    starts = sorted(event.start for (stage, _), event in runs.items() if stage == chained_plan.stages[0].name)
    ends = sorted(event.end for (stage, _), event in runs.items() if stage == chained_plan.stages[-1].name)
    in_flight = np.array([sum(start < end for start in starts) - number for number, end in enumerate(ends)])
    assert in_flight.max() <= chained_plan.frames_in_flight + 1e-9
    for stage, result in zip(chained_plan.stages, simulation_result.stages, strict=True):
        work = sum(event.end - event.start for (name, _), event in runs.items() if name == stage.name)
        assert work / stage.replicas <= simulation_result.seconds * (1 + 1e-9)
        assert result.busy == pytest.approx(work / stage.replicas / simulation_result.seconds)
        assert result.busy + result.blocked <= 1 + 1e-9
        assert result.queue_longest <= stage.queue_depth


@settings(max_examples=60, deadline=None, derandomize=True)
@given(cases())
def test_longer_queues_are_never_slower_in_a_chain_without_replicas(case: tuple[Plan, int]) -> None:
    chained_plan, seed = case
    single = replace(
        chained_plan, stages=tuple(replace(stage, replicas=1) for stage in chained_plan.stages), in_flight=0
    )
    longer = depth(single, 1 + max(stage.queue_depth for stage in single.stages))
    sooner, later = (simulate(each, frames=60, cv=0.4, seed=seed).seconds for each in (longer, single))
    assert sooner <= later * (1 + 1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frames": 1}, "frames is 1; a rate needs at least 2"),
        ({"fps": 0.0}, "fps is 0.0; it must be above 0"),
        ({"cv": -0.1}, "cv is -0.1"),
        ({"overhead": -1e-6}, "overhead is -1e-06; it must be at least 0"),
        ({"frames": 10.5}, "frames is 10.5; it must be a whole number"),
        ({"seed": -1}, "seed is -1; it must be a whole number of at least 0"),
        ({"samples": {"s0": []}}, "samples of 's0' are no seconds"),
        ({"samples": {"s0": [float("nan")]}}, "samples of 's0' are no seconds"),
        ({"samples": {"s9": [1.0]}}, "samples of 's9', but the plan has no such stage"),
        ({"admission": "newest", "fps": 9.0}, "admission is 'newest'; it must be one of 'block', 'latest', "),
        ({"admission": "latest"}, "admission 'latest' drops frames that come too fast; say with fps how many"),
        ({"admission": "deadline", "fps": 9.0}, "admission='deadline' needs deadline=seconds"),
        ({"waiting": 2}, "waiting is 2; with admission=.block. frames wait"),
    ],
    ids=str,
)
def test_wrong_numbers_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        simulate(chain(1, 2), **options)


def test_a_plan_without_times_is_refused() -> None:
    with pytest.raises(PlanError, match="the plan of 'm' has no times to simulate"):
        simulate(chain(0, 0))
