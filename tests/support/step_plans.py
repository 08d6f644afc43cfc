"""Plans of stages with steps, on simulated devices."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, StepPlan, TensorSpec

CPU, NPU = "cpu", "npu"


def step_stage(name: str, steps: Sequence[tuple[str, float]], reads: str, makes: str, replicas: int = 1) -> StagePlan:
    """Return a stage with steps of a device and seconds each; with one step, a stage on that device."""
    specs = [TensorSpec(tensor, (4,)) for tensor in [reads, *(f"{name}{n}" for n in range(1, len(steps))), makes]]
    seconds = sum(step_s for _, step_s in steps)
    step_plans = tuple(
        StepPlan(device, (), (source,), (result,), step_s)
        for (device, step_s), source, result in zip(steps, specs, specs[1:], strict=False)
    )
    return StagePlan(
        name,
        CPU if len(steps) > 1 else steps[0][0],
        (specs[0],),
        (specs[-1],),
        seconds=seconds,
        replicas=replicas,
        steps=step_plans if len(steps) > 1 else (),
    )


def step_plan(*stages: StagePlan) -> Plan:
    """Return the plan of a chain of stages."""
    # One memory: simulated devices take their time in a run, and none to move tensors.
    board = Board("steps", (Device(CPU, "simulated"), Device(NPU, "simulated")))
    return Plan("steps", "", board, stages[0].inputs, stages[-1].outputs, stages)


def alternating_plan(replicas: int, cpu_s: float, npu_s: float, rounds: int = 2) -> Plan:
    """Return a plan of one stage that computes on cores and on what it borrows in turn."""
    steps = [(CPU, cpu_s), (NPU, npu_s)] * rounds
    return step_plan(step_stage("stage0", steps, "x", "y", replicas))
