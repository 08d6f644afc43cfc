"""Prediction: interval, latency and bottleneck of a plan, in one place.

The time between two frames is the longest of

- each stage's own: its replicas at work, each at its own pace, so that their rates add up;
- each shared resource's: the seconds per frame for which all stages together use it, one after the other;
- the frames' inside: as many as may be, each for as long as it takes;
- of workers that wait for each other, that which following them frame by frame shows: those that need the same devices,
  links or memory, and replicas that are not alike, since results leave in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from pipeline.core.board.board import Board
from pipeline.core.plan.moves import StageMoves, StageSet, find_moves
from pipeline.core.plan.stage_plan import StagePlan
from pipeline.prediction.borrowing import stage_parts
from pipeline.prediction.contention import flow_interval, has_turns, hop_seconds, worker_groups, worker_phases
from pipeline.prediction.frame_flow import Phase, WorkerGroup
from pipeline.prediction.shared_loads import serial_devices, shared_loads

FRAMES_INSIDE = "frames in flight"
"""Bottleneck of a plan with too few frames inside."""

TURNS = "turns of devices and links"
"""Bottleneck of a plan whose workers lose much time waiting for each other, although no device is always busy."""

NOTABLE = 1.02
"""Waiting for each other is called the bottleneck if it makes the interval this much longer than all else."""

COUNTING = 2e-3
"""Relative error of a mean over some frames. A smaller loss by waiting is not reported."""


@dataclass(frozen=True)
class StagePrediction:
    """One stage alone."""

    name: str
    interval_s: float
    """Seconds between two frames, all replicas together."""
    seconds: float
    """Seconds of one frame, in the slowest replica."""


@dataclass(frozen=True)
class Prediction:
    """Predicted times of a plan."""

    interval_s: float
    """Seconds between two frames."""
    latency_s: float
    """Longest latency of one frame when nothing waits: where replicas differ, in the slowest one."""
    queued_latency_s: float
    """Latency of one frame where more come than are taken, so that as many as may be are inside (Little's law)."""
    joules: float | None
    """Energy of one frame above rest; None where a device's power is unknown."""
    stages: tuple[StagePrediction, ...]
    loads: Mapping[str, float]
    """Seconds per frame for which all stages together use what they share, by its name."""
    bottleneck: str
    """Name of the stage or of the resource that sets the pace, or `FRAMES_INSIDE`."""

    @property
    def frames_per_s(self) -> float:
        """Rate; 0 where no time is known."""
        return 1 / self.interval_s if self.interval_s else 0.0


def predict(plan: StageSet, *, waiting: bool = True) -> Prediction:
    """Return the predicted times of a plan.

    Without `waiting` nobody waits in line: the interval is no longer than with it, and all else is equal.
    """
    board, moves, hop_s = plan.board, find_moves(plan), hop_seconds(plan.stages)
    parts, devices = stage_parts(plan, moves), serial_devices(board, plan.stages)
    workers = worker_phases(board, plan.stages, parts, devices)
    stages = tuple(
        _predict_stage(board, stage, stage_moves, phases, hop_s)
        for stage, stage_moves, phases in zip(plan.stages, moves, workers, strict=True)
    )
    loads = shared_loads(board, plan.stages, parts, devices)
    # The first of several limits: a stage's own name says more than what it shares.
    limits = {stage.name: stage.interval_s for stage in stages} | loads
    inside_s = _longest_path(plan.stages, [stage.mean_seconds + hop_s for stage in plan.stages])
    limits[FRAMES_INSIDE] = inside_s / plan.frames_in_flight
    bottleneck = max(limits, key=lambda name: limits[name])
    interval_s = limits[bottleneck]
    if waiting:
        interval_s, bottleneck = _wait(plan, worker_groups(plan.stages, workers, hop_s), interval_s, bottleneck)
    latency_s = _longest_path(plan.stages, [stage.seconds for stage in stages])
    return Prediction(
        interval_s=interval_s,
        latency_s=latency_s,
        queued_latency_s=max(latency_s, plan.frames_in_flight * interval_s),
        joules=frame_joules(board, plan.stages),
        stages=stages,
        loads=loads,
        bottleneck=bottleneck,
    )


def _wait(plan: StageSet, groups: tuple[WorkerGroup, ...], interval_s: float, bottleneck: str) -> tuple[float, str]:
    """Return interval and bottleneck with the workers' waiting included."""
    is_shared = has_turns(groups)
    # Alike workers that share nothing wait for the slowest stage only.
    if not is_shared and not any(stage.replica_seconds for stage in plan.stages):
        return interval_s, bottleneck
    flow_s = flow_interval(groups, plan.frames_in_flight)
    if flow_s <= interval_s * (1 + COUNTING):
        return interval_s, bottleneck
    if flow_s <= interval_s * NOTABLE:
        return flow_s, bottleneck
    return flow_s, TURNS if is_shared else FRAMES_INSIDE


def _predict_stage(
    board: Board, stage: StagePlan, moves: StageMoves, workers: Sequence[Sequence[Phase]], hop_s: float
) -> StagePrediction:
    """Return a stage's isolated times, bounded by its memory, hop included."""
    stalls = [sum(max(0.0, phase.memory_s - phase.seconds) for phase in phases) for phases in workers]
    times = [seconds + stall_s + hop_s for seconds, stall_s in zip(stage.replica_times, stalls, strict=True)]
    interval_s = 1 / sum(1 / seconds for seconds in times) if min(times) else 0.0
    if board.device(stage.device).overlaps:
        # Each slot of a device computes one frame at a time, while other replicas move theirs.
        runs = [phases[len(moves.entries)] for phases in workers]
        compute_s = fmean(max(phase.seconds, phase.memory_s) for phase in runs)
        slots = sum(board.device(name).slot_count for name in set(stage.replica_names))
        interval_s = max(interval_s, compute_s / slots)
    return StagePrediction(stage.name, interval_s, max(times))


def _longest_path(stages: Sequence[StagePlan], seconds: Sequence[float]) -> float:
    """Return the time of the longest path through the stages."""
    ends: dict[str, float] = {}
    longest = 0.0
    for stage, stage_s in zip(stages, seconds, strict=True):
        # What no stage makes comes from the caller.
        end = stage_s + max((ends.get(spec.name, 0.0) for spec in stage.inputs), default=0.0)
        ends |= {spec.name: end for spec in stage.outputs}
        longest = max(longest, end)
    return longest


def frame_joules(board: Board, stages: Sequence[StagePlan]) -> float | None:
    """Return one frame's energy above rest; None without power figures."""
    total = 0.0
    for stage in stages:
        for name, seconds, share in _work(board, stage):
            device = board.device(name)
            if not device.watts_busy:
                return None
            total += seconds * (device.watts_busy - device.watts_idle) * share
    return total


def _work(board: Board, stage: StagePlan) -> Iterator[tuple[str, float, float]]:
    """Yield device, seconds per frame, and its busy share (0 to 1)."""
    for replica, seconds in enumerate(stage.replica_times):
        core_share, frames = _core_share(board, stage, replica), stage.share(replica)
        for step in stage.at_replica(replica).steps:
            yield step.device, step.seconds * frames, core_share if step.device == stage.device else 1.0
        if not stage.steps:
            yield stage.replica_names[replica], seconds * frames, core_share


def _core_share(board: Board, stage: StagePlan, replica: int) -> float:
    """Return a replica's share of its device's power, by core speed."""
    device, cores = board.device(stage.device), stage.cores_of(replica)
    if not device.cores or device.capabilities.has_slots:
        return 1 / device.slot_count
    return sum(map(device.speed, cores)) / sum(map(device.speed, device.cores))
