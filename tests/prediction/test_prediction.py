"""What a plan takes: stages, what they share, frames inside, energy."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from pipeline.core.board.board import Board, Cluster, Device, Link
from pipeline.core.plan.moves import find_moves
from pipeline.core.plan.plan import Plan, StagePlan, StepPlan, TensorSpec
from pipeline.prediction.contention import WAKING_S
from pipeline.prediction.predict import FRAMES_INSIDE, predict
from pipeline.prediction.shared_loads import memory_pools
from pipeline.simulation import simulate
from tests.support.small_cases import random_small_case

MS = 1e-3

CPU = Device("cpu", cores=(0, 1), memory_bytes_per_s=1e9)
NPU = Device("npu", "simulated", memory="npu")
LINK = Link(("host", "npu"), 1e6, 1 * MS)


def spec(name: str) -> TensorSpec:
    return TensorSpec(name, (250,))


def stage(name: str, reads: str, makes: str, **options: Any) -> StagePlan:
    return replace(
        StagePlan(name, "cpu", tuple(map(spec, reads.split())), tuple(map(spec, makes.split())), seconds=10 * MS),
        **options,
    )


def plan(*stages: StagePlan, link: Link = LINK, cpu: Device = CPU, **options: Any) -> Plan:
    return Plan("m", "", Board("b", (cpu, NPU), (link,)), (spec("x"),), stages[-1].outputs, stages, **options)


def test_each_tensor_pays_the_latency_of_its_copy() -> None:
    moves = find_moves(plan(stage("a", "x", "t u"), stage("b", "t u", "y", device="npu")))
    assert [move.seconds for move in moves[1].entries] == pytest.approx([2 * MS, 2 * MS])
    assert [move.ends for move in moves[1].copies] == [LINK.ends] * 3
    assert (moves[0].copies, moves[1].copy_s) == ((), pytest.approx(6 * MS))


def test_stages_of_one_memory_share_a_copy() -> None:
    moves = find_moves(
        plan(stage("a", "x", "t"), stage("b", "t", "u", device="npu"), stage("c", "t u", "y", device="npu"))
    )
    assert [len(each.entries) for each in moves] == [0, 1, 0]


def test_a_link_is_in_use_for_the_sum_of_its_copies() -> None:
    copying = plan(stage("a", "x", "t", device="npu"), stage("b", "t", "y", device="npu"))
    assert predict(copying).loads == {"link host - npu": pytest.approx(4 * MS)}


def test_stages_share_the_bytes_of_their_memory() -> None:
    streaming = plan(
        stage("a", "x", "t", cores=(0,), memory_traffic=8e6), stage("b", "t", "y", cores=(1,), memory_traffic=7e6)
    )
    prediction = predict(streaming)
    assert prediction.bottleneck == "memory host"
    # Both hand on at the same time, while the memory has nothing to do.
    assert prediction.interval_s == pytest.approx(15 * MS + WAKING_S)
    assert simulate(streaming, frames=400).frames_per_s == pytest.approx(1 / (15 * MS + WAKING_S), rel=0.01)


def test_a_run_takes_no_less_than_its_bytes() -> None:
    streaming = plan(stage("a", "x", "t", cores=(0,), memory_traffic=15e6), stage("b", "t", "y", cores=(1,)))
    prediction = predict(streaming)
    assert prediction.interval_s == pytest.approx(15 * MS + WAKING_S)
    assert prediction.latency_s == pytest.approx(25 * MS + 2 * WAKING_S)
    simulation = simulate(streaming, frames=400, fps=10)
    assert simulation.latency_s.p50 == pytest.approx(25 * MS + 2 * WAKING_S)


def test_copies_move_their_bytes_while_they_are_copied() -> None:
    """Each frame moves 4 MB in 4 ms of copies and 3 MB in 6 ms of computing: the memory is no obstacle to either."""
    npu = replace(NPU, kind="vta", memory_bytes_per_s=1e9)
    tensors = TensorSpec("x", (500_000,)), TensorSpec("y", (500_000,))
    link = Link(("host", "npu"), 1e9, 0.0)
    copying = StagePlan("a", "npu", tensors[:1], tensors[1:], seconds=10 * MS, transfer_s=4 * MS, memory_traffic=7e6)
    division = Plan("m", "", Board("b", (CPU, npu), (link,)), tensors[:1], tensors[1:], (copying,))
    prediction = predict(division)
    assert prediction.loads["memory npu"] == pytest.approx(7 * MS)
    assert prediction.interval_s == prediction.latency_s == pytest.approx(10 * MS + WAKING_S)
    assert simulate(division, frames=100).frames_per_s == pytest.approx(1 / prediction.interval_s)


def test_steps_move_their_own_bytes() -> None:
    """A step of 1 ms moves the 5 MB, which takes 5 ms; one of 9 ms moves nothing."""
    steps = tuple(
        StepPlan(device, (), (spec(source),), (spec(result),), seconds * MS, memory_traffic=nbytes)
        for device, source, result, seconds, nbytes in (("cpu", "x", "t", 1, 5e6), ("near", "t", "y", 9, 0.0))
    )
    near = Device("near", "simulated", memory_bytes_per_s=1e9)
    both = StagePlan("a", "cpu", (spec("x"),), (spec("y"),), seconds=10 * MS, steps=steps, memory_traffic=5e6)
    division = Plan("m", "", Board("b", (CPU, near)), (spec("x"),), (spec("y"),), (both,))
    assert predict(division).interval_s == pytest.approx(14 * MS + WAKING_S)
    assert simulate(division, frames=100).frames_per_s == pytest.approx(1 / (14 * MS + WAKING_S))
    # Plans of older files have the bytes of the stage only: they are shared out by the steps' times.
    older = replace(both, steps=tuple(replace(step, memory_traffic=0.0) for step in steps))
    assert predict(replace(division, stages=(older,))).interval_s == pytest.approx(10 * MS + WAKING_S)


@pytest.mark.parametrize(("shared", "same_chips", "pools"), [(True, False, 1), (False, True, 1), (False, False, 2)])
def test_memories_of_the_same_chips_are_one_pool(shared: bool, same_chips: bool, pools: int) -> None:
    link = replace(LINK, shared=shared, same_chips=same_chips)
    result = memory_pools(Board("b", (CPU, NPU), (link,)))
    assert len(result) == pools
    assert result[0].bytes_per_s == 1e9


def test_few_frames_inside_limit_the_rate() -> None:
    chained = plan(stage("a", "x", "t", cores=(0,)), stage("b", "t", "y", cores=(1,)), in_flight=1)
    assert predict(chained).bottleneck == FRAMES_INSIDE
    assert predict(chained).interval_s == predict(chained).latency_s == pytest.approx(20 * MS + 2 * WAKING_S)
    queued_s = predict(replace(chained, in_flight=4)).queued_latency_s
    assert queued_s == pytest.approx(40 * MS + 4 * WAKING_S), "Little's law"


def test_stages_beside_each_other_are_no_longer_a_path() -> None:
    branches = plan(stage("a", "x", "t"), stage("b", "x", "u"), stage("c", "t u", "y"))
    assert predict(branches).latency_s == pytest.approx(20 * MS + 2 * WAKING_S)


def test_unlike_replicas_take_energy_by_their_frames() -> None:
    """Of the board's 6 W, one big core has 4 and one of half its speed 2: each frame takes as much on either."""
    cpu = Device("cpu", clusters=(Cluster("big", (0,)), Cluster("little", (1,), 0.5)), watts_idle=1.0, watts_busy=7.0)
    both = stage("a", "x", "y", cores=(0, 1), replicas=2, replica_seconds=(10 * MS, 20 * MS))
    prediction = predict(plan(both, cpu=cpu))
    assert prediction.joules == pytest.approx(4 * 10 * MS)
    assert prediction.interval_s == pytest.approx(1 / (1 / (10 * MS + WAKING_S) + 1 / (20 * MS + WAKING_S)))
    assert prediction.latency_s == pytest.approx(20 * MS + WAKING_S)
    assert predict(plan(both)).joules is None


@pytest.mark.parametrize(
    ("replica_ms", "in_flight", "interval_ms", "bottleneck"),
    [
        # Their rates add up if as many frames may be inside as they take.
        ((10, 10), 2, 5.0, "a"),
        ((10, 40), 6, 8.0, "a"),
        # With two inside, the fast one waits for the slow one's result to leave.
        ((10, 40), 2, 40 / 3, FRAMES_INSIDE),
        ((10, 10), 1, 10.0, FRAMES_INSIDE),
    ],
)
def test_unlike_replicas_wait_for_results_to_leave_in_order(
    replica_ms: tuple[int, ...], in_flight: int, interval_ms: float, bottleneck: str
) -> None:
    alike = len(set(replica_ms)) == 1
    times: dict[str, Any] = {} if alike else {"replica_seconds": tuple(each * MS for each in replica_ms)}
    prediction = predict(plan(stage("a", "x", "y", cores=(0, 1), replicas=2, **times), in_flight=in_flight))
    assert prediction.interval_s == pytest.approx(interval_ms * MS, rel=0.007)
    assert prediction.bottleneck == bottleneck


def test_a_plan_made_by_hand_needs_no_link() -> None:
    copying = plan(stage("a", "x", "y", device="npu"))
    assert predict(replace(copying, board=replace(copying.board, links=()))).interval_s == pytest.approx(
        10 * MS + WAKING_S
    )


def test_without_waiting_nothing_but_the_interval_is_shorter() -> None:
    for seed in range(4):
        for plan, prediction in islice(random_small_case(seed).plans(), 100):
            least = predict(plan, waiting=False)
            assert least.interval_s <= prediction.interval_s
            assert (least.latency_s, least.joules, least.loads) == (
                prediction.latency_s, prediction.joules, prediction.loads,
            )  # fmt: skip
