"""Stage times: a plan's stages under any planner's times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import Plan, StagePlan, StepPlan
from pipeline.split.graph import Graph
from pipeline.split.planning.borrowing.step_builder import add_step_transfers, with_steps
from pipeline.split.planning.borrowing.worker_costs import STEP_S
from pipeline.split.planning.plan_builder import add_transfers
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem import queues
from pipeline.split.planning.problem.costs import estimate
from pipeline.split.planning.problem.group_work import group_traffic


def group_seconds(planner: Planner, stage: StagePlan, begin: int, end: int) -> np.ndarray:
    """Return the seconds of the groups ``[begin, end)`` at the device's speed."""
    # A stage on a device without cores has none, and yet one thread that drives it.
    threads = max(1, len(stage.cores) // stage.replicas)
    if stage.steps:
        spans = step_groups(planner.graph, stage)
        return np.concatenate(
            [
                _device_seconds(planner, unit, threads if unit.device == stage.device else 1, first, last)
                for unit, (_, first, last) in zip(stage.units, spans, strict=True)
            ]
        )
    return _device_seconds(planner, stage, threads, begin, end)


def _device_seconds(planner: Planner, unit: StagePlan, threads: int, begin: int, end: int) -> np.ndarray:
    """Return the seconds of the groups ``[begin, end)`` of a stage or step."""
    device = planner.board.device(unit.device)
    spans = planner.spans.get(device.name)
    seconds = np.asarray(planner.seconds(device, 1 if spans else threads), np.float64)[begin:end]
    if spans is None and unit.options.speed != planner.options.speed:
        choices = (unit.options, planner.options)
        own, usual = (estimate(planner.graph, device, choice, threads)[begin:end] for choice in choices)
        return seconds * np.divide(own, usual)
    if spans is None:
        return seconds
    # A runtime that fuses over the stage has no times of groups: they are the span's, divided as they were estimated.
    span_s: float = spans.matrix(threads, contended=len(device.cores) > 1)[end, begin]
    share: float = span_s / seconds.sum()
    return seconds * share


class TimedPlan(NamedTuple):
    """A plan with a planner's times, and each stage's groups with their seconds."""

    plan: Plan
    spans: list[tuple[int, int]]
    group_s: list[np.ndarray]


def with_times(planner: Planner, plan: Plan) -> TimedPlan:
    """Return the plan with the planner's stage times, under the stages' own options."""
    planner = planner.of_plan(plan)
    spans = [span for _, span in queues.stage_groups(plan, planner.graph)]
    group_s = [group_seconds(planner, stage, *span) for stage, span in zip(plan.stages, spans, strict=True)]
    return TimedPlan(_with_seconds(planner, plan, spans, group_s), spans, group_s)


def _with_seconds(
    planner: Planner, plan: Plan, spans: Sequence[tuple[int, int]], group_s: Sequence[np.ndarray]
) -> Plan:
    stages, traffic = [], group_traffic(planner.graph)
    for stage, (begin, _), seconds in zip(plan.stages, spans, group_s, strict=True):
        compute_s = float(seconds.sum())
        speeds = _speeds(planner.board.device(stage.device), stage)
        times = tuple(compute_s / speed for speed in speeds) if len(set(speeds)) > 1 else ()
        timed = replace(stage, seconds=compute_s / speeds[0], replica_seconds=times, memory_traffic=0.0)
        if stage.steps:
            steps = [
                replace(
                    step,
                    seconds=_step_s(planner, stage, step, seconds[first - begin : last - begin], speeds[0]),
                    transfer_s=0.0,
                    memory_traffic=float(traffic[first:last].sum()),
                )
                for step, first, last in step_groups(planner.graph, stage)
            ]
            factors = [speeds[0] / speed for speed in speeds] if times else []
            timed = with_steps(timed, steps, factors)
        stages.append(timed)
    timed_plan = add_step_transfers(replace(plan, stages=tuple(stages)))
    return add_transfers(timed_plan, traffic, spans)


def _step_s(planner: Planner, stage: StagePlan, step: StepPlan, seconds: np.ndarray, speed: float) -> float:
    if planner.board.is_one_device(step.device, stage.device):
        return float(seconds.sum()) / speed
    # What it borrows is as fast for all workers, and has to begin.
    return float(seconds.sum()) + STEP_S


def step_groups(graph: Graph, stage: StagePlan) -> Iterator[tuple[StepPlan, int, int]]:
    """Yield each step of a stage with its range of groups."""
    groups_by_name = {operator.name: operator.group for operator in graph.operators}
    for step in stage.steps:
        first, last = (groups_by_name[name] for name in step.operators)
        yield step, first, last + 1


def _speeds(device: Device, stage: StagePlan) -> list[float]:
    """Return each replica's speed, relative to the device's."""
    firsts = [stage.cores_of(replica)[:1] for replica in range(stage.replicas)]
    return [device.speed(cores[0]) if cores else 1.0 for cores in firsts]
