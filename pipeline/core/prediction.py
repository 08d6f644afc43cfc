"""Prediction: what a plan takes, in one place: the time between two frames, the latency, and what limits them.

The time between two frames is the longest of

- each stage's own: its replicas' rates together;
- each shared resource's: the seconds per frame that it works for all stages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pipeline.core.board import Board
from pipeline.core.stage_plan import StagePlan


class StageSet(Protocol):
    """What of a plan is predicted from."""

    @property
    def board(self) -> Board:
        """Devices and links."""

    @property
    def stages(self) -> tuple[StagePlan, ...]:
        """In order."""

    @property
    def frames_in_flight(self) -> int:
        """Bound on frames inside."""


@dataclass(frozen=True)
class StagePrediction:
    """One stage alone.

    Attributes
    ----------
    name : str
    interval_s : float
        Between two frames, all replicas together.
    seconds : float
        Of one frame.
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
        Of one frame when nothing waits.
    queued_latency_s : float
        Of one frame where more come than are taken, so that as many as may be are inside (Little's law).
    joules : float or None
        Energy of one frame above rest; None where a device's power is unknown.
    stages : tuple of StagePrediction
    loads : mapping of str to float
        Seconds per frame of each resource that several stages share.
    bottleneck : str
        Name of the stage or of the resource that sets the pace.
    """

    interval_s: float
    latency_s: float
    queued_latency_s: float
    joules: float | None
    stages: tuple[StagePrediction, ...]
    loads: Mapping[str, float]
    bottleneck: str


def predict(plan: StageSet) -> Prediction:
    """Return what a plan takes."""
    stages = tuple(
        StagePrediction(stage.name, stage_interval(plan.board, stage), stage.seconds) for stage in plan.stages
    )
    loads = dict(_loads(plan.board, plan.stages))
    limits = {**{stage.name: stage.interval_s for stage in stages}, **loads}
    bottleneck = max(limits, key=lambda name: limits[name])
    latency_s = sum(stage.seconds for stage in plan.stages)
    interval_s = limits[bottleneck]
    return Prediction(
        interval_s=interval_s,
        latency_s=latency_s,
        queued_latency_s=max(latency_s, plan.frames_in_flight * interval_s),
        joules=_joules(plan.board, plan.stages),
        stages=stages,
        loads=loads,
        bottleneck=bottleneck,
    )


def stage_interval(board: Board, stage: StagePlan) -> float:
    """Return the seconds between two frames of a stage alone."""
    times = stage.replica_times
    together = 1 / sum(1 / seconds for seconds in times) if min(times) else 0.0
    if not board.device(stage.device).overlaps:
        return together
    # Each device computes one frame at a time, while its other replicas move theirs.
    return max(together, (stage.seconds - stage.transfer_s) / len(set(stage.replica_names)))


def _loads(board: Board, stages: Sequence[StagePlan]) -> Iterator[tuple[str, float]]:
    """Yield each core that stages share, with the seconds per frame that it works."""
    sums: dict[int, float] = defaultdict(float)
    for stage in stages:
        # Only stages with one core share it, where a plan has more stages than cores; all others have theirs alone.
        if len(stage.cores) == 1 and board.device(stage.device).capabilities.occupies_cores:
            sums[stage.cores[0]] += stage.seconds
    for core, seconds in sums.items():
        if sum(stage.cores == (core,) for stage in stages) > 1:
            yield f"core {core}", seconds


def _joules(board: Board, stages: Sequence[StagePlan]) -> float | None:
    """Return the energy of one frame above rest, None where a device's power is unknown."""
    devices = [board.device(stage.device) for stage in stages]
    if not all(device.watts_busy for device in devices):
        return None
    # Power above rest, for the share of the device's cores that one replica keeps busy.
    return sum(
        stage.seconds
        * (device.watts_busy - device.watts_idle)
        * (len(stage.cores) / stage.replicas / len(device.cores) if device.cores else 1.0)
        for stage, device in zip(stages, devices, strict=True)
    )
