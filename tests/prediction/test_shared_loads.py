"""Cores, devices and memories that stages use in turns: for how long a frame needs each, and what that does to it."""

from typing import Any

import pytest

from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.moves import find_moves
from pipeline.core.plan.plan import Plan
from pipeline.core.plan.stage_plan import StagePlan, StepPlan, TensorSpec
from pipeline.prediction.borrowing import stage_parts
from pipeline.prediction.contention import worker_groups, worker_phases
from pipeline.prediction.predict import predict
from pipeline.prediction.shared_loads import serial_devices, shared_cores

X, Y, Z = (TensorSpec(name, (1,)) for name in "xyz")
CPU = Device("cpu", cores=(0, 1, 2), memory_bytes_per_s=1.0)
# A tensor of four bytes moves in 1 + 4 / 4 seconds.
LINK = Link(("host", "far"), 4.0, 1.0)


def far(kind: str, **options: Any) -> Device:
    return Device("far", kind, memory="far", **options)


def plan(*stages: StagePlan, device: Device | None = None, **options: Any) -> Plan:
    board = Board("b", (CPU, *([device] if device else [])), (LINK,) if device else ())
    return Plan("m", "", board, (X,), stages[-1].outputs, stages, **options)


def pair(first: dict[str, Any], second: dict[str, Any]) -> tuple[StagePlan, StagePlan]:
    return StagePlan("a", "cpu", (X,), (Y,), **first), StagePlan("b", "cpu", (Y,), (Z,), **second)


@pytest.mark.parametrize(
    ("first", "second", "cores", "loads"),
    [
        ((0,), (1,), set(), {}),
        ((0, 1), (2,), set(), {}),
        ((0,), (0,), {0}, {"core 0": 5.0}),
        ((0, 1), (1, 2), {1}, {"core 1": 5.0}),
        ((0, 1), (0, 1), {0, 1}, {"core 0": 5.0, "core 1": 5.0}),
        ((), (), set(), {}),
    ],
)
def test_a_core_of_two_stages_is_in_use_for_both(
    first: tuple[int, ...], second: tuple[int, ...], cores: set[int], loads: dict[str, float]
) -> None:
    division = plan(*pair({"seconds": 2.0, "cores": first}, {"seconds": 3.0, "cores": second}))
    assert shared_cores(division.board, division.stages) == cores
    assert predict(division).loads == loads


@pytest.mark.parametrize(
    ("device", "slots"),
    [
        # A device that is made of cores is shared by these.
        (far("cpu", cores=(4, 5)), None),
        # One stage at a time, and nothing to wait for beside it.
        (far("vta"), None),
        (far("vta", at_once=2), 1),
        # Moves of tensors overlap with what it computes.
        (far("cuda"), 1),
        (far("remote", address="remote://there/cpu"), 1),
        (far("remote", address="remote://there/cpu", slots=4), 4),
        # It computes nothing.
        (far("simulated", at_once=2), None),
    ],
    ids=lambda value: getattr(value, "kind", str(value)),
)
def test_a_device_serves_as_many_at_once_as_it_has_slots(device: Device, slots: int | None) -> None:
    assert serial_devices(plan(StagePlan("a", "far", (X,), (Y,)), device=device).board, ()).get("far") == slots


@pytest.mark.parametrize(
    ("slots", "replicas", "seconds", "load", "interval_s"),
    [
        # Of 10 s, 4 are for copies: replicas overlap them, and no more.
        (1, 1, 10.0, 6.0, 10.0),
        (1, 2, 10.0, 6.0, 6.0),
        (1, 4, 10.0, 6.0, 6.0),
        # Two are in step, by hand: one waits for the link at 8 s, the other one at 10 s.
        (2, 2, 10.0, 3.0, 6.0),
        (2, 4, 10.0, 3.0, 4.0),
        # All of it is copies.
        (1, 1, 3.0, 0.0, 4.0),
    ],
)
def test_replicas_overlap_copies_with_the_slots_of_a_device(
    slots: int, replicas: int, seconds: float, load: float, interval_s: float
) -> None:
    device = far("remote", address="remote://there/cpu", slots=slots)
    division = plan(StagePlan("a", "far", (X,), (Y,), seconds=seconds, replicas=replicas), device=device)
    prediction = predict(division)
    assert prediction.loads["device far"] == pytest.approx(load)
    # Beside seconds, what handing on takes is nothing.
    assert prediction.interval_s == pytest.approx(interval_s, rel=1e-4)
    assert prediction.stages[0].interval_s == pytest.approx(max(seconds / replicas, load), rel=1e-4)


@pytest.mark.parametrize(
    ("traffic", "seconds", "memory_s"),
    [
        # Two at once need it for longer than they compute.
        (6.0, 10.0, 6.0),
        (5.1, 10.0, 5.1),
        # Each gets its bytes in time.
        (5.0, 10.0, 0.0),
        (1.0, 10.0, 0.0),
        (0.0, 10.0, 0.0),
    ],
)
def test_a_memory_is_waited_for_if_all_at_once_need_it_for_longer(
    traffic: float, seconds: float, memory_s: float
) -> None:
    stages = pair(*({"seconds": seconds, "cores": (core,), "memory_traffic": traffic} for core in (0, 1)))
    division = plan(*stages)
    parts = stage_parts(division, find_moves(division))
    groups = worker_groups(stages, worker_phases(division.board, stages, parts, {}))
    phases = [phase for group in groups for phases in group.workers for phase in phases]
    assert [(phase.seconds, phase.memory_s) for phase in phases] == [(seconds, memory_s)] * 2


@pytest.mark.parametrize(
    ("device", "joules"),
    [
        # Half of the slots are idle meanwhile, and have no part in the device's power above rest.
        (far("remote", address="remote://there/cpu", slots=4, watts_idle=1.0, watts_busy=9.0), 10.0 * 8 / 4),
        (far("vta", watts_idle=1.0, watts_busy=9.0), 10.0 * 8),
        (far("vta"), None),
    ],
    ids=["slots", "one", "unknown"],
)
def test_a_frame_takes_the_power_of_its_slot(device: Device, joules: float | None) -> None:
    assert predict(plan(StagePlan("a", "far", (X,), (Y,), seconds=10.0), device=device)).joules == joules


@pytest.mark.parametrize(
    ("seconds", "shares"), [((1.0, 3.0), [0.25, 0.75]), ((0.0, 0.0), [0.5, 0.5]), ((2.0, 0.0), [1.0, 0.0])]
)
def test_steps_share_a_stage_by_their_times(seconds: tuple[float, float], shares: list[float]) -> None:
    steps = tuple(
        StepPlan("cpu", (), (source,), (result,), step_s)
        for (source, result), step_s in zip([(X, Y), (Y, Z)], seconds, strict=True)
    )
    division = plan(StagePlan("a", "cpu", (X,), (Z,), steps=steps, seconds=sum(seconds)))
    (parts,) = stage_parts(division, find_moves(division))
    assert [part.share for part in parts] == shares
