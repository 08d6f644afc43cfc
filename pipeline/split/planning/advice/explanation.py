"""Explanation: a plan's times, limits, possible gains and alternatives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.core.plan.moves import find_moves
from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.prediction.contention import WAKING_S, describe_short_stages
from pipeline.prediction.predict import StagePrediction, predict
from pipeline.split import offload
from pipeline.split.graph import Graph
from pipeline.split.planning.advice import outlook
from pipeline.split.planning.advice.advice import Alternative, advice, alternatives, goal_verdict, trade_offs, verdict
from pipeline.split.planning.advice.stage_times import step_groups, with_times
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem import queues
from pipeline.split.planning.problem.costs import describe_misfit, fallback_share
from pipeline.split.planning.problem.footprint import Footprint
from pipeline.split.planning.problem.group_work import group_works, groups
from pipeline.split.planning.problem.request import resolve_goal
from pipeline.split.planning.solver.bound import relaxed_interval
from pipeline.split.planning.split_gain import is_split
from pipeline.split.unfused import DividedGroup, divided_groups

SHORT_S = 20 * WAKING_S
"""Seconds of a stage below which handing its frames on takes more than a twentieth of them."""


@dataclass(frozen=True)
class StepForecast:
    """Predicted times of one step of a stage."""

    device: str
    """The stage's own one, or one that its workers borrow."""
    operators: tuple[str, ...]
    """The first and the last one."""
    compute_s: float
    transfer_s: float
    """Seconds of one frame: computing, and its tensors coming in and going out."""
    weight_bytes: int
    """Bytes of all workers' weights; each worker has a copy."""


@dataclass(frozen=True)
class StageForecast:
    """Predicted times and bytes of one stage."""

    name: str
    device: str
    cores: tuple[int, ...]
    replicas: int
    operators: tuple[str, ...]
    """The first and the last one."""
    compute_s: float
    enter_s: float
    leave_s: float
    """Seconds of one frame: computing, and its tensors coming in and going out."""
    interval_s: float
    """Seconds between two frames."""
    memory_bytes: int
    """Parameters, working tensors and waiting frames, of all replicas."""
    memory_share: float | None
    """Share of its memory; None where its size is unknown."""
    slowest_operator: str
    """First of the fused group that takes the longest."""
    slowest_share: float
    """Share of that group in the computing."""
    queue_depth: int
    """Number of frames that may wait in front of it."""
    queue_cost: float
    """Share of the frame rate that this queue is expected to cost, as stages' times vary, 0 to 1."""
    steps: tuple[StepForecast, ...] = ()
    """Steps of a heterogeneous stage, whose workers borrow other devices."""
    cause: str = ""
    """Reason for its device, as the plan has it; empty if it has none."""
    title: str = ""
    """Readable name, from its operators'."""
    replica_devices: tuple[str, ...] = ()
    """Device of each replica, where they are not the same one."""
    basis: str = "estimated"
    """Origin of its time: measured, compiled (its compiler counts cycles) or estimated."""

    @property
    def devices(self) -> tuple[str, ...]:
        """All devices, those of equal replicas and of steps included."""
        return tuple(dict.fromkeys((self.device, *self.replica_devices, *(step.device for step in self.steps))))

    @property
    def seconds(self) -> float:
        """Time of one frame, transfers included."""
        return self.compute_s + self.enter_s + self.leave_s


@dataclass(frozen=True)
class Explanation:
    """A plan, explained."""

    stages: tuple[StageForecast, ...]
    interval_s: float
    """Seconds between two frames."""
    latency_s: float
    """Longest latency of one frame when nothing waits: where replicas differ, in the slowest one."""
    joules: float | None
    """Energy of one frame above rest; None where the board's power is unknown."""
    bound_s: float
    """An interval that no plan can beat: proved by a complete search, for this order of operators, stages with cores or
    a device of their own or in turns, and tensors that pass through all stages between maker and reader."""
    open_gap: float
    """Share of the bound by which the fastest plan takes longer that was found; if it is not 0, the bound is not
    tight."""
    relaxed_s: float
    """Interval that none could beat even if work could be cut anywhere and nothing had to be moved."""
    bottleneck: str
    """Limit of the pace, as `pipeline.prediction.predict.Prediction` calls it: a stage, or a shared resource."""
    loads: Mapping[str, float]
    """Seconds per frame for which all stages together use what they share, by its name."""
    alternatives: tuple[Alternative, ...]
    verdict: str
    """``"pipeline"``, ``"replicate instead"``, ``"do not pipeline"``, or for a plan of one stage ``"one stage"`` or
    ``"replicas"``; for another goal than frames per second ``"least latency"`` or ``"least energy"``."""
    reason: str
    """The verdict as a sentence."""
    help: tuple[str, ...]
    """Changes that would gain most."""
    measured: bool
    """True if the times rest on measurements."""
    cv: float
    """Coefficient of variation of a stage's time, its standard deviation as a share of it, by which queues were
    chosen."""
    unfused: tuple[DividedGroup, ...] = ()
    """Fused groups that cuts divide, with what that costs."""
    fallback_share: float = 0.0
    """Share of the computing time, 0 to 1, of operators that the model's own runtime computes."""
    trade_offs: tuple[Alternative, ...] = ()
    """The fastest way, the one with the least latency, and the knee between them."""
    traffic_share: float = 0.0
    """Share of traffic to memory, 0 to 1, in the estimated computing of the slowest stage."""
    idle: tuple[str, ...] = ()
    """Unused devices and cores, and stages that rest."""
    changes: tuple[outlook.Change, ...] = ()
    """Gains of another precision, runtime or size of input."""

    @property
    def frames_per_s(self) -> float:
        """Predicted rate."""
        return 1 / self.interval_s if self.interval_s else 0.0

    @property
    def gap(self) -> float:
        """Excess of the interval over the bound, as its share."""
        return self.interval_s / self.bound_s - 1 if self.bound_s else 0.0


def explain(planner: Planner, plan: Plan, objective: str | None = None, fps: float | None = None) -> Explanation:
    """Explain a possible plan of `planner` under an objective or rate."""
    goal = resolve_goal(objective, fps)
    # What an accelerator's own compiler said is remembered of the graph that it was asked of.
    own_graph, refusals, planner = planner.graph, planner.refusals, planner.of_plan(plan)
    plan, spans, group_s = with_times(planner, plan)
    prediction = predict(plan)
    stages = tuple(_forecasts(planner, plan, group_s, prediction.stages))
    interval, problem, best = prediction.interval_s, planner.problem(), planner.solve()
    choices = alternatives(planner, problem)
    replicas = max(stage.replicas for stage in plan.stages)
    way = Alternative("", len(plan.stages), replicas, prediction.frames_per_s, prediction.latency_s)
    options = trade_offs(planner.problem(borrowing=True), way)
    fastest_plan = planner.build(best)
    # Of the plan itself, or of the split to which it was preferred.
    gain = planner.split_gain(plan if is_split(plan) else fastest_plan)
    rival = planner.split_gain(fastest_plan) if objective is None else None
    best_s = predict(planner.build(rival.choice) if rival and not rival.pays else fastest_plan).interval_s
    # Where pins keep devices from running all of it, that is why no unsplit model is there to compare with.
    kind, reason = (
        verdict(
            plan,
            prediction.frames_per_s,
            gain,
            choices,
            partial=bool(planner.pins),
            is_asked=objective == "throughput",
        )
        if goal == "throughput"
        else goal_verdict(plan, goal, fps, prediction, options)
    )
    # Whoever asked for another goal has what the planner chooses for it.
    slow_s = interval if goal == "throughput" else best_s
    slowest = max(stages, key=lambda stage: stage.interval_s)
    fastest = min([best_s, *(1 / alternative.frames_per_s for alternative in options if alternative.frames_per_s)])
    return Explanation(
        stages=stages,
        interval_s=interval,
        latency_s=prediction.latency_s,
        joules=prediction.joules,
        bound_s=min(best.bound, interval),
        open_gap=best.open_gap,
        relaxed_s=min(relaxed_interval(problem), interval),
        bottleneck=prediction.bottleneck,
        loads=prediction.loads,
        alternatives=choices,
        verdict=kind,
        reason=reason,
        help=(
            *advice(planner, problem, slowest.slowest_operator, slow_s, best_s, fastest),
            *_hop_notes(plan.stages, slowest),
            *planner.notes,
            *offload.notes(own_graph, groups(own_graph), planner.board, refusals),
            *_idle_notes(planner),
        ),
        measured=plan.measured,
        cv=planner.cv,
        unfused=tuple(divided_groups(planner.graph)),
        fallback_share=fallback_share(planner.graph, np.concatenate(group_s).tolist()),
        trade_offs=options,
        traffic_share=outlook.traffic_share(planner, slowest.device, *spans[stages.index(slowest)]),
        idle=tuple(outlook.idle(plan, prediction)),
        changes=tuple(outlook.changes(planner)),
    )


def _idle_notes(planner: Planner) -> Iterator[str]:
    """Yield why a device runs nothing of the model."""
    for device in planner.board.devices:
        is_asked = offload.applies(device) or planner.refusals.get(device.name)
        if is_asked or np.isfinite(planner.seconds_anywhere(device)).any():
            continue
        reasons = Counter(describe_misfit(work, device) for work in group_works(planner.graph))
        counts = "; ".join(f"{reason} ({count} groups)" for reason, count in reasons.most_common())
        yield f"{device.name} runs nothing of this model: {counts}."


def _hop_notes(stages: Sequence[StagePlan], slowest: StageForecast) -> tuple[str, ...]:
    """Return notes on stages hardly longer than a wake-up."""
    if note := describe_short_stages(stages):
        return (note,)
    if not 0 < slowest.interval_s * slowest.replicas < SHORT_S:
        return ()
    note = (
        f"stages this short lose much of their time to handing frames on, about {WAKING_S * 1e6:.0f} us each, as "
        "predicted; fewer stages lose less"
    )
    return (note,)


def _forecast_steps(graph: Graph, stage: StagePlan, footprint: Footprint) -> Iterator[StepForecast]:
    for step, begin, end in step_groups(graph, stage):
        weight_bytes = stage.replicas * int(footprint.parameters[begin:end].sum())
        yield StepForecast(step.device, step.operators, step.seconds - step.transfer_s, step.transfer_s, weight_bytes)


def _forecasts(
    planner: Planner, plan: Plan, group_s: Sequence[np.ndarray], predictions: Sequence[StagePrediction]
) -> Iterator[StageForecast]:
    graph, board = planner.graph, planner.board
    # Both are of the whole plan, and are the same for all of its stages.
    footprint, stage_queues = Footprint.of(graph), queues.stage_queues(plan, graph)
    all_moves, titles = find_moves(plan), plan.titles
    for index, (stage, (begin, end)) in enumerate(queues.stage_groups(plan, graph)):
        device, seconds, moves = board.device(stage.device), group_s[index], all_moves[index]
        queue_bytes = stage.queue_depth * int(footprint.entry_bytes(begin, end))
        # Of several memories, each has its share of the replicas.
        memories = len({board.device(name).memory for name in stage.replica_names})
        nbytes = int(footprint.stage_bytes(begin, end, stage.replicas // memories)) + queue_bytes
        longest = begin + int(np.argmax(seconds))
        yield StageForecast(
            name=stage.name,
            device=stage.device,
            cores=stage.cores,
            replicas=stage.replicas,
            operators=stage.operators,
            compute_s=stage.mean_seconds - stage.transfer_s
            if stage.steps
            else stage.mean_seconds - moves.enter_s - moves.leave_s,
            # What moves between steps comes in as well.
            enter_s=stage.transfer_s - moves.leave_s if stage.steps else moves.enter_s,
            leave_s=moves.leave_s,
            interval_s=predictions[index].interval_s,
            memory_bytes=nbytes,
            memory_share=nbytes / device.memory_bytes if device.memory_bytes else None,
            slowest_operator=next(operator.name for operator in graph.operators if operator.group == longest),
            slowest_share=float(seconds.max() / seconds.sum()) if seconds.any() else 0.0,
            queue_depth=stage.queue_depth,
            queue_cost=queues.queue_cost(stage_queues, index, stage.queue_depth, planner.cv),
            steps=tuple(_forecast_steps(graph, stage, footprint)),
            cause=stage.cause,
            title=titles[index],
            replica_devices=stage.replica_devices,
            basis=planner.basis(stage.device),
        )
