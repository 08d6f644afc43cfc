"""Prediction: what a plan takes, in one place: the time between two frames, the latency, and what limits them.

The time between two frames is the longest of

- each stage's own: its replicas at work, each at its own pace, so that their rates add up;
- each shared resource's: the seconds per frame for which all stages together use it, one after the other;
- the frames' inside: as many as may be, each for as long as it takes.  Results leave in order, so that those behind
  one that a slow replica has stay inside until it is done;
- of workers that borrow devices, that in which they wait for each other, frame by frame.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.core.board import Board
from pipeline.core.borrowing import borrowed_devices, step_moves
from pipeline.core.contention import contended_interval, worker_groups
from pipeline.core.memory_pools import memory_pools
from pipeline.core.moves import StageMoves, StageSet, find_moves
from pipeline.core.reordering import ordered_interval
from pipeline.core.stage_plan import StagePlan

FRAMES_INSIDE = "frames in flight"
"""What limits a plan with too few of them."""


TURNS = "turns of borrowed devices"
"""What limits a plan whose workers wait for each other, although no device is busy all the time."""


@dataclass(frozen=True)
class StagePrediction:
    """One stage alone.

    Attributes
    ----------
    name : str
    interval_s : float
        Between two frames, all replicas together.
    seconds : float
        Of one frame, in the slowest replica.
    """

    name: str
    interval_s: float
    seconds: float


@dataclass(frozen=True)
class Prediction:
    """What a plan takes.

    Attributes
    ----------
    interval_s : float
        Between two frames.
    latency_s : float
        Of one frame when nothing waits, at most: where replicas differ, in the slowest one.
    queued_latency_s : float
        Of one frame where more come than are taken, so that as many as may be are inside (Little's law).
    joules : float or None
        Energy of one frame above rest; None where a device's power is unknown.
    stages : tuple of StagePrediction
    loads : mapping of str to float
        Seconds per frame for which all stages together use what they share, by its name.
    bottleneck : str
        Name of the stage or of the resource that sets the pace, or `FRAMES_INSIDE`.
    """

    interval_s: float
    latency_s: float
    queued_latency_s: float
    joules: float | None
    stages: tuple[StagePrediction, ...]
    loads: Mapping[str, float]
    bottleneck: str

    @property
    def frames_per_s(self) -> float:
        """Rate; 0 where no time is known."""
        return 1 / self.interval_s if self.interval_s else 0.0


def predict(plan: StageSet) -> Prediction:
    """Return what a plan takes."""
    board, moves = plan.board, find_moves(plan)
    stages = tuple(
        StagePrediction(stage.name, _stage_interval(board, stage, stage_moves), max(stage.replica_times))
        for stage, stage_moves in zip(plan.stages, moves, strict=True)
    )
    loads = _loads(board, plan.stages, moves)
    limits = {stage.name: stage.interval_s for stage in stages} | loads
    limits[FRAMES_INSIDE] = _inside_interval(plan)
    limits[TURNS] = _contended_interval(plan, moves)
    # The first of several: a stage's own name says more than what it shares.
    bottleneck = max(limits, key=lambda name: limits[name])
    latency_s = _longest_path(plan.stages, [stage.seconds for stage in stages])
    return Prediction(
        interval_s=limits[bottleneck],
        latency_s=latency_s,
        queued_latency_s=max(latency_s, plan.frames_in_flight * limits[bottleneck]),
        joules=_joules(board, plan.stages),
        stages=stages,
        loads=loads,
        bottleneck=bottleneck,
    )


def _contended_interval(plan: StageSet, moves: Sequence[StageMoves]) -> float:
    """Return the time between two frames of workers that wait for devices which they borrow; 0 if none does."""
    if not any(stage.steps for stage in plan.stages):
        return 0.0
    groups = worker_groups(plan.board, plan.stages, moves, serial_devices(plan.board, plan.stages))
    return contended_interval(groups, plan.frames_in_flight)


def _stage_interval(board: Board, stage: StagePlan, moves: StageMoves) -> float:
    """Return the seconds between two frames of a stage alone."""
    together = stage.mean_seconds / stage.replicas
    if not board.device(stage.device).overlaps:
        return together
    # Each device computes one frame at a time, while its other replicas move theirs.
    return max(together, max(stage.mean_seconds - moves.copy_s, 0.0) / len(set(stage.replica_names)))


def _inside_interval(plan: StageSet) -> float:
    """Return the seconds between two frames that the bound on frames inside allows."""
    means = [stage.mean_seconds for stage in plan.stages]
    path_s, inside = _longest_path(plan.stages, means), plan.frames_in_flight
    interval = path_s / inside
    for stage in plan.stages:
        # With as many as follow from the plan, all replicas always have a frame.
        if stage.replica_seconds and inside < sum(each.frames_at_work + each.queue_depth for each in plan.stages):
            rest_s = max(0.0, path_s - stage.mean_seconds)
            interval = max(interval, ordered_interval(stage.replica_times, inside, rest_s))
    return interval


def _longest_path(stages: Sequence[StagePlan], seconds: Sequence[float]) -> float:
    """Return the time of the longest path through the stages; those beside each other work at the same time."""
    ends: dict[str, float] = {}
    longest = 0.0
    for stage, stage_s in zip(stages, seconds, strict=True):
        # What no stage makes comes from the caller.
        end = stage_s + max((ends.get(spec.name, 0.0) for spec in stage.inputs), default=0.0)
        ends |= {spec.name: end for spec in stage.outputs}
        longest = max(longest, end)
    return longest


def _loads(board: Board, stages: Sequence[StagePlan], moves: Sequence[StageMoves]) -> dict[str, float]:
    """Return the seconds per frame of whatever stages share."""
    loads: dict[str, float] = defaultdict(float)
    for name, seconds in (
        *_core_loads(board, stages),
        *_device_loads(board, stages, moves),
        *_memory_loads(board, stages),
    ):
        loads[name] += seconds
    within_stages = (moved for stage in stages if stage.steps for moved in step_moves(board, stage))
    for stage_moves in (*moves, *within_stages):
        for move in stage_moves.copies:
            if move.ends:
                loads[f"link {' - '.join(move.ends)}"] += move.seconds
    return dict(loads)


def shared_cores(board: Board, stages: Sequence[StagePlan]) -> set[int]:
    """Return the cores that several stages keep busy in turns."""
    # Where a run keeps no core busy, stages on the same core do not wait for each other.
    busy = (stage for stage in stages if board.device(stage.device).capabilities.occupies_cores)
    users = Counter(core for stage in busy for core in stage.cores)
    return {core for core, count in users.items() if count > 1}


def _core_loads(board: Board, stages: Sequence[StagePlan]) -> Iterator[tuple[str, float]]:
    cores = shared_cores(board, stages)
    for stage in stages:
        for replica, seconds in enumerate(stage.replica_times):
            for core in cores.intersection(stage.cores_of(replica)):
                yield f"core {core}", seconds * stage.share(replica)


def serial_devices(board: Board, stages: Sequence[StagePlan]) -> set[str]:
    """Return the devices that compute one frame at a time, of whichever stage or replica asks first."""
    # What overlaps is the moving of tensors.  A device that is its cores is shared by those.
    takers = (device for device in board.devices if device.overlaps or (device.places > 1 and not device.cores))
    borrowed = {name for stage in stages for name in borrowed_devices(board, stage)}
    return borrowed | {device.name for device in takers if device.capabilities.computes}


def _device_loads(
    board: Board, stages: Sequence[StagePlan], moves: Sequence[StageMoves]
) -> Iterator[tuple[str, float]]:
    devices = serial_devices(board, stages)
    for stage, stage_moves in zip(stages, moves, strict=True):
        for step, moved in zip(stage.steps, step_moves(board, stage) if stage.steps else (), strict=True):
            # Others have a borrowed device while tensors move.
            if step.device in devices:
                yield f"device {step.device}", max(0.0, step.seconds - moved.copy_s)
        for replica, seconds in enumerate(stage.replica_times):
            if not stage.steps and (name := stage.replica_names[replica]) in devices:
                yield f"device {name}", max(0.0, seconds - stage_moves.copy_s) * stage.share(replica)


def _memory_loads(board: Board, stages: Sequence[StagePlan]) -> Iterator[tuple[str, float]]:
    for pool in memory_pools(board):
        nbytes = sum(stage.memory_traffic for stage in stages if board.device(stage.device).memory in pool.memories)
        if pool.bytes_per_s and nbytes:
            yield f"memory {pool.name}", nbytes / pool.bytes_per_s


def _joules(board: Board, stages: Sequence[StagePlan]) -> float | None:
    """Return the energy of one frame above rest, None where a device's power is unknown."""
    total = 0.0
    for stage in stages:
        for name, seconds, share in _work(board, stage):
            device = board.device(name)
            if not device.watts_busy:
                return None
            total += seconds * (device.watts_busy - device.watts_idle) * share
    return total


def _work(board: Board, stage: StagePlan) -> Iterator[tuple[str, float, float]]:
    """Yield devices with the seconds of a frame for which a share of them is at work, 0 to 1."""
    if stage.steps:
        for step in stage.steps:
            share = _core_share(board, stage, 0) if step.device == stage.device else 1.0
            yield step.device, step.seconds, share
        return
    for replica, seconds in enumerate(stage.replica_times):
        yield stage.replica_names[replica], seconds * stage.share(replica), _core_share(board, stage, replica)


def _core_share(board: Board, stage: StagePlan, replica: int) -> float:
    """Return the share of its device's power that a replica takes: that of its cores, by their speed."""
    device, cores = board.device(stage.device), stage.cores_of(replica)
    if not device.cores:
        return 1.0
    return sum(map(device.speed, cores)) / sum(map(device.speed, device.cores))
