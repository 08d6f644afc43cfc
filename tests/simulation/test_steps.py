"""Stages whose steps borrow a device, simulated."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.plan import Plan
from pipeline.prediction.predict import predict
from pipeline.simulation import simulate
from tests.support.step_plans import CPU, NPU, alternating_plan, step_plan, step_stage


def rate(plan: Plan) -> float:
    return simulate(plan, frames=400, overhead=0.0).frames_per_s


def test_one_worker_takes_its_steps_one_after_the_other() -> None:
    plan = alternating_plan(1, 0.003, 0.001)
    simulation = simulate(plan, frames=50, overhead=0.0)
    assert simulation.frames_per_s == pytest.approx(1 / 0.008)
    # Two wait in the queue, behind one that has just begun.
    assert simulation.latency_s.p50 == pytest.approx(0.024)


@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 6])
def test_workers_overlap_until_what_they_borrow_is_never_free(replicas: int) -> None:
    plan = alternating_plan(replicas, 0.003, 0.001)
    # A worker has the device for 2 of 8 ms; steps fit between those of others up to four.
    assert rate(plan) == pytest.approx(min(replicas / 0.008, 1 / 0.002), rel=0.02)
    # With what the system takes to wake whoever has waited.
    assert simulate(plan, frames=400).frames_per_s == pytest.approx(predict(plan).frames_per_s, rel=0.03)


def test_workers_that_are_alike_do_not_fall_into_step() -> None:
    """In the order in which they ask, the device idles while all compute on their cores: a tenth less."""
    steps = [(CPU, 0.0083), *[(NPU, 0.00071), (CPU, 0.00053)] * 13]
    plan = step_plan(step_stage("stage0", steps, "x", "y", replicas=3))
    on_npu = sum(seconds for device, seconds in steps if device == NPU)
    assert rate(plan) == pytest.approx(1 / on_npu, rel=0.02)
    assert simulate(plan, frames=400).frames_per_s == pytest.approx(predict(plan).frames_per_s, rel=0.03)


def test_a_borrowed_device_is_shared_with_ordinary_stages() -> None:
    both = step_plan(step_stage("a", [(CPU, 0.002), (NPU, 0.002)], "x", "m"), step_stage("b", [(NPU, 0.003)], "m", "y"))
    # Alone, each would take 4 and 3 ms; the device is busy for 5 ms with each frame.
    assert rate(both) == pytest.approx(1 / 0.005, rel=0.02)
    assert predict(both).loads["device npu"] == pytest.approx(0.005)


def test_one_frame_has_the_device_and_the_trace_shows_which() -> None:
    simulation = simulate(alternating_plan(3, 0.001, 0.002), frames=30, trace=True)
    steps = [event for event in simulation.events if event.kind == "step"]
    assert len(steps) == 30 * 4
    on_npu = sorted((event for event in steps if event.device == NPU), key=lambda event: event.start)
    assert all(earlier.end <= later.start + 1e-12 for earlier, later in pairwise(on_npu))
    assert all(event.end - event.start == pytest.approx(0.002) for event in on_npu)
    runs = {event.frame: event for event in simulation.events if event.kind == "run"}
    assert all(runs[event.frame].start - 1e-12 <= event.start <= runs[event.frame].end for event in steps)


def test_tensors_on_their_way_leave_the_device_to_others() -> None:
    plan = alternating_plan(2, 0.001, 0.002)
    far = Board(
        "far", (Device(CPU, "simulated"), Device(NPU, "simulated", memory="far")), (Link(("host", "far"), 1e9, 5e-4),)
    )
    (stage,) = plan.stages
    steps = tuple(
        replace(step, seconds=0.003 + 2 * 16e-9, transfer_s=0.001 + 2 * 16e-9) if step.device == NPU else step
        for step in stage.steps
    )
    plan = replace(plan, board=far, stages=(replace(stage, steps=steps, seconds=sum(step.seconds for step in steps)),))
    prediction = predict(plan)
    assert prediction.loads["device npu"] == pytest.approx(0.004)
    assert prediction.loads["link host - far"] == pytest.approx(0.002, rel=1e-3)
    assert rate(plan) == pytest.approx(1 / 0.004, rel=0.03)
    assert simulate(plan, frames=400).links["host - far"] == pytest.approx(0.5, rel=0.05)


def test_times_vary_for_all_steps_of_a_frame_together() -> None:
    plan = alternating_plan(2, 0.003, 0.001)
    even, varied = simulate(plan, frames=500), simulate(plan, frames=500, cv=0.3, seed=1)
    assert varied.frames_per_s == pytest.approx(even.frames_per_s, rel=0.05)
    assert varied.latency_s.p99 > even.latency_s.p99
    samples = simulate(plan, frames=200, samples={"stage0": [0.016]}, overhead=0.0)
    assert samples.frames_per_s == pytest.approx(2 / 0.016, rel=0.02)
