"""Results of a simulation, as immutable values."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.scheduler.statistics import Percentiles
from pipeline.scheduler.trace import TraceEvent


@dataclass(frozen=True)
class SimulatedStage:
    """One stage."""

    name: str
    device: str
    frames: int
    """Frames that it ran."""
    busy: float
    """Share of the time in which it runs or copies, per replica, 0 to 1."""
    blocked: float
    """Share of the time in which it cannot hand its frame on because the next queue is full, per replica."""
    queue_mean: float
    """Frames that wait in front of it, on average over the time."""
    queue_longest: int
    """The most that ever waited."""
    wait_s: Percentiles
    """Time that frames wait there."""
    replicas: int = 1


@dataclass(frozen=True)
class Simulation:
    """A stream of frames through a plan."""

    model: str
    board: str
    frames: int
    """Frames that came."""
    delivered: int
    """Frames that were delivered, in order."""
    dropped: dict[str, int]
    """The others, by the reason."""
    seconds: float
    """Simulated time until the last one."""
    frames_per_s: float
    """Rate between the first and the last result: filling the pipeline belongs to the latency."""
    latency_s: Percentiles
    """Time from a frame's start to its result."""
    since_arrival_s: Percentiles
    """Time from its arrival in front of the pipeline; as `latency_s` where frames arrive as they are taken."""
    stages: tuple[SimulatedStage, ...]
    links: dict[str, float] = field(default_factory=dict)
    """Share of the time in which each link is in use."""
    events: tuple[TraceEvent, ...] = ()
    """Work of each stage over time, if that was asked for."""

    @property
    def bottleneck(self) -> str:
        """Name of the busiest stage."""
        return max(self.stages, key=lambda stage: stage.busy).name
