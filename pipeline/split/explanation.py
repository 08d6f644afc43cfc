"""Explanation: what a plan is predicted to do, what limits it, what would help, and what else was considered."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StageForecast:
    """What one stage is predicted to do.

    Attributes
    ----------
    name, device : str
    cores : tuple of int
    replicas : int
    operators : tuple of str
        The first and the last one.
    compute_s, enter_s, leave_s : float
        Of one frame: computing, and its tensors coming in and going out.
    interval_s : float
        Between two frames.
    memory_bytes : int
        Parameters, working tensors and waiting frames, of all replicas.
    memory_share : float or None
        Share of its memory; None where its size is unknown.
    slowest_operator : str
        First of the fused group that takes the longest.
    slowest_share : float
        That group's share of the computing.
    queue_depth : int
        How many frames may wait in front of it.
    queue_cost : float
        Share of the frame rate that this queue is expected to cost, as stages' times vary, 0 to 1.
    """

    name: str
    device: str
    cores: tuple[int, ...]
    replicas: int
    operators: tuple[str, ...]
    compute_s: float
    enter_s: float
    leave_s: float
    interval_s: float
    memory_bytes: int
    memory_share: float | None
    slowest_operator: str
    slowest_share: float
    queue_depth: int
    queue_cost: float

    @property
    def seconds(self) -> float:
        """Time of one frame, transfers included."""
        return self.compute_s + self.enter_s + self.leave_s


@dataclass(frozen=True)
class Alternative:
    """Another way to run the model.

    Attributes
    ----------
    name : str
    stages, replicas : int
    frames_per_s, latency_s : float
    """

    name: str
    stages: int
    replicas: int
    frames_per_s: float
    latency_s: float


@dataclass(frozen=True)
class Explanation:
    """A plan, explained.

    Attributes
    ----------
    stages : tuple of StageForecast
    interval_s : float
        Between two frames.
    latency_s : float
        Of one frame when nothing waits.
    joules : float or None
        Energy of one frame above rest; None where the board's power is unknown.
    bound_s : float
        An interval that no plan can beat, proved by a complete search.
    relaxed_s : float
        One that none could beat even if work could be cut anywhere and nothing had to be moved.
    bottleneck : str
        Name of the stage that sets the pace.
    alternatives : tuple of Alternative
    verdict : str
        ``"pipeline"``, ``"replicate instead"``, ``"do not pipeline"``, or for a plan of one stage ``"one stage"`` or
        ``"replicas"``.
    reason : str
        The verdict as a sentence.
    help : tuple of str
        What would gain most.
    measured : bool
        Whether the times rest on measurements.
    variance : float
        Standard deviation of a stage's time, as a share of it, for which queues were chosen.
    """

    stages: tuple[StageForecast, ...]
    interval_s: float
    latency_s: float
    joules: float | None
    bound_s: float
    relaxed_s: float
    bottleneck: str
    alternatives: tuple[Alternative, ...]
    verdict: str
    reason: str
    help: tuple[str, ...]
    measured: bool
    variance: float

    @property
    def frames_per_s(self) -> float:
        """Predicted rate."""
        return 1 / self.interval_s if self.interval_s else 0.0

    @property
    def gap(self) -> float:
        """How much longer the interval is than the bound, as a share of it."""
        return self.interval_s / self.bound_s - 1 if self.bound_s else 0.0
