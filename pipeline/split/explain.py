"""Explain: what a plan is predicted to do, worked out from what the planner knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pipeline.board import Device
from pipeline.plans import Plan, StagePlan
from pipeline.split import accelerated, queues
from pipeline.split.advice import advice, alternatives, short, verdict
from pipeline.split.costs import groups
from pipeline.split.explanation import Explanation, StageForecast
from pipeline.split.planner import Planner
from pipeline.split.planning.queues import cost
from pipeline.split.planning.solve import Solver
from pipeline.split.resources import Footprint, threaded
from pipeline.transfers import enter_s, leave_s


def explain(planner: Planner, plan: Plan) -> Explanation:
    """Explain a plan that `planner` made, or could have made."""
    stages = tuple(_forecasts(planner, plan))
    # A plan knows of stages that share a core; the slowest stage, of replicas and of the time that they take together.
    interval = max(plan.slowest, *(stage.interval_s for stage in stages), *_turns(planner, stages))
    problem = planner.problem()
    best = planner.solve()
    others = alternatives(planner, problem)
    kind, reason = verdict(plan, interval, others)
    slowest = max(stages, key=lambda stage: stage.interval_s)
    return Explanation(
        stages=stages,
        interval_s=interval,
        latency_s=sum(stage.seconds for stage in stages),
        joules=_joules(planner, stages),
        bound_s=min(best.bound, interval),
        relaxed_s=min(Solver(short(problem)).relaxed, interval),
        bottleneck=slowest.name,
        alternatives=others,
        verdict=kind,
        reason=reason,
        help=(
            *advice(planner, problem, slowest, interval, best.interval),
            *accelerated.notes(planner.graph, groups(planner.graph), planner.board),
        ),
        measured=plan.measured,
        variance=planner.variance,
    )


def _forecasts(planner: Planner, plan: Plan) -> Iterator[StageForecast]:
    graph, board = planner.graph, planner.board
    footprint, waiting = Footprint.of(graph), queues.waiting(plan, graph)
    crossing = footprint.crossing.astype(int).tolist()
    around: list[Device | None] = [None, *(board.device(stage.device) for stage in plan.stages), None]
    for number, (stage, (begin, end)) in enumerate(queues.spans(plan, graph)):
        before, device, after = around[number], board.device(stage.device), around[number + 2]
        seconds = _group_seconds(planner, stage, device)[begin:end]
        longest = begin + int(np.argmax(seconds))
        enter, leave = enter_s(board, before, device, crossing[begin]), leave_s(board, device, after, crossing[end])
        compute = float(seconds.sum())
        nbytes = int(footprint.kept(begin, end, stage.replicas)) + stage.queue_depth * crossing[begin]
        yield StageForecast(
            name=stage.name,
            device=stage.device,
            cores=stage.cores,
            replicas=stage.replicas,
            operators=stage.operators,
            compute_s=compute,
            enter_s=enter,
            leave_s=leave,
            interval_s=plan.interval(replace(stage, seconds=compute + enter + leave, moving=enter + leave)),
            memory_bytes=nbytes,
            memory_share=nbytes / device.memory_bytes if device.memory_bytes else None,
            slowest_operator=next(each.name for each in graph.operators if each.group == longest),
            slowest_share=float(seconds.max() / compute) if compute else 0.0,
            queue_depth=stage.queue_depth,
            queue_cost=cost(waiting, number, stage.queue_depth, planner.variance),
        )


def _group_seconds(planner: Planner, stage: StagePlan, device: Device) -> np.ndarray:
    threads = max(1, len(stage.cores) // stage.replicas)
    firsts = [stage.cores_of(replica)[:1] for replica in range(stage.replicas)]
    rate = sum(device.speed(own[0]) if own else 1.0 for own in firsts)
    return threaded(np.asarray(planner.seconds(device), np.float64), threads) * stage.replicas / rate


def _turns(planner: Planner, stages: Sequence[StageForecast]) -> Iterator[float]:
    """Yield for each device whose stages take turns what they take together."""
    for device in planner.board.devices:
        if device.places > 1 and not device.cores:
            yield sum(stage.interval_s for stage in stages if stage.device == device.name)


def _joules(planner: Planner, stages: Sequence[StageForecast]) -> float | None:
    devices = [planner.board.device(stage.device) for stage in stages]
    if not all(device.watts_busy for device in devices):
        return None
    return sum(
        stage.seconds
        * (device.watts_busy - device.watts_idle)
        * (len(stage.cores) / stage.replicas / len(device.cores) if device.cores else 1.0)
        for stage, device in zip(stages, devices, strict=True)
    )
