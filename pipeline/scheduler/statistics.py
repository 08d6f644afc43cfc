"""Statistics: immutable snapshots of a pipeline's work, and their counters.

Each counter has one writer: a worker its own, the ledger those of the frames.  Nobody waits to read them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pipeline.core.plan.plan import StagePlan

RECENT = 1024
"""Number of the newest durations behind the percentiles: ten of them lie above the 99th."""


@dataclass(frozen=True)
class Percentiles:
    """Median, 95th and 99th percentile of the newest `RECENT` durations in seconds, or zeros."""

    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0


@dataclass(frozen=True)
class StepStatistics:
    """Times of one step of a heterogeneous stage."""

    name: str
    device: str
    busy_s: float
    """Seconds for which it had its device, of all replicas together."""
    # Time of a frame until the device was free, in it, and for changing memory.
    wait_s: Percentiles
    run_s: Percentiles
    copy_s: Percentiles


@dataclass(frozen=True)
class StageStatistics:
    """Counts and times of one stage."""

    name: str
    device: str
    # Frames taken up; those that it ran, that failed here, and that had already failed or been cancelled.
    frames_in: int
    frames_out: int
    failed: int
    skipped: int
    busy: float
    """Share of the pipeline's `elapsed_s` in which it ran or copied, 0 to 1; of several replicas, their mean."""
    busy_s: float
    """The same in seconds, of all replicas together; it never falls."""
    queue_length: int
    """Frames that wait in front of it."""
    # Time of a frame in the queue, in the device, and for changing memory.
    wait_s: Percentiles
    run_s: Percentiles
    copy_s: Percentiles
    replicas: int = 1
    """Number of workers."""
    restarts: int = 0
    """Workers replaced because their device did not come back."""
    steps: tuple[StepStatistics, ...] = ()
    """Steps of a heterogeneous stage; the stage's own times include all that its steps wait, run and copy."""
    interpreter_s: float = 0.0
    """Seconds of `busy_s`, by samples, in which its workers waited behind native code for Python's interpreter, which
    other threads held. Known on Linux, for stages that compute in their worker's thread; 0 elsewhere."""

    @property
    def interpreter_share(self) -> float:
        """Share of `busy_s` that is `interpreter_s`."""
        return min(1.0, self.interpreter_s / self.busy_s) if self.busy_s else 0.0


@dataclass(frozen=True)
class Statistics:
    """Counts and times; ``submitted == delivered + failed + cancelled + sum(dropped) + in_flight``."""

    # Frames accepted, and how they ended.
    submitted: int
    delivered: int
    failed: int
    cancelled: int
    dropped: Mapping[str, int]
    """Frames dropped by the admission policy, by reason."""
    in_flight: int
    """Frames that have not ended, those included that wait at the entrance."""
    elapsed_s: float
    """Seconds from the first submission to the newest end, or until now while frames are in flight."""
    frames_per_s: float
    """Frames delivered in `elapsed_s`."""
    latency_s: Percentiles
    """Time from submission to delivery."""
    stages: tuple[StageStatistics, ...]
    """Stages in the plan's order."""
    waiting: int = 0
    """Frames that wait at the entrance."""
    blocked_callers: int = 0
    """Callers that wait at the entrance, each with a frame that is not submitted yet."""
    forecast_s: float = 0.0
    """Seconds that a frame would take that starts now, by the stages' newest times, or the plan's until there are
    any."""


class Durations:
    """Newest durations in seconds; one writer, any readers."""

    __slots__ = ("_values", "add")

    def __init__(self) -> None:
        # Memory stays flat, however long the pipeline runs.
        self._values: deque[float] = deque(maxlen=RECENT)
        # The deque's own method, three times for each stage and frame: a call of Python's around it costs five times
        # as much.
        self.add: Callable[[float], None] = self._values.append

    def values(self) -> list[float]:
        """Return the stored durations."""
        # The copy is one step for the interpreter: an iteration would meet the writer halfway.
        return list(self._values.copy())

    def newest(self, count: int) -> list[float]:
        """Return the newest `count` of them, the newest last."""
        # Read while the worker writes: at worst a duration stands here twice.
        values = self._values
        return [values[-age] for age in range(min(count, len(values)), 0, -1)]

    def percentiles(self) -> Percentiles:
        """Return percentiles from actual durations."""
        return percentiles(self.values())


def percentiles(values: Sequence[float]) -> Percentiles:
    """Return the percentiles of `values` by nearest rank."""
    if not values:
        return Percentiles()
    # Nearest rank, without interpolation: each answer is a duration that some frame had.
    ascending = sorted(values)
    return Percentiles(*(ascending[math.ceil(share * len(ascending)) - 1] for share in (0.5, 0.95, 0.99)))


_SECONDS = ("busy_s", "interpreter_s", "sampled_s")


class StageCounters:
    """Counts and times of a worker or step, written by its thread alone."""

    __slots__ = (
        "busy_s",
        "copy",
        "failed",
        "frames_in",
        "frames_out",
        "interpreter_s",
        "restarts",
        "run",
        "sampled_s",
        "skipped",
        "steps",
        "wait",
    )  # fmt: skip

    def __init__(self, steps: int = 0) -> None:
        self.steps = [StageCounters() for _ in range(steps)]
        self.frames_in = self.frames_out = self.failed = self.skipped = self.restarts = 0
        self.busy_s = self.interpreter_s = self.sampled_s = 0.0
        self.wait, self.run, self.copy = Durations(), Durations(), Durations()

    def count_run(self, wait: float, copy: float, run: float) -> None:
        """Count a frame's run, with times in seconds."""
        self.frames_out += 1
        self.busy_s += copy + run
        self.wait.add(wait)
        self.copy.add(copy)
        self.run.add(run)

    def absorb(self, group: Sequence[StageCounters]) -> None:
        """Add the counts of ended workers."""
        for member in group:
            for name in ("frames_in", "frames_out", "failed", "skipped", "restarts", *_SECONDS):
                setattr(self, name, getattr(self, name) + getattr(member, name))
            for name in ("wait", "run", "copy"):
                for seconds in getattr(member, name).values():
                    getattr(self, name).add(seconds)
            # A stage that another bundle has given other steps has nothing to add them to.
            if len(self.steps) == len(member.steps):
                for step, member_step in zip(self.steps, member.steps, strict=True):
                    step.absorb([member_step])

    @property
    def passed(self) -> int:
        """Frames finished by the worker."""
        return self.frames_out + self.failed + self.skipped

    def newest(self, count: int) -> list[float]:
        """Return the worker's seconds for the newest `count` frames."""
        pairs = zip(self.run.newest(count), self.copy.newest(count), strict=False)
        return [run + copy for run, copy in pairs]


def summarise_stage(
    stage: StagePlan, workers: Sequence[StageCounters], queue_length: int, elapsed_s: float
) -> StageStatistics:
    """Sum a stage's workers, with shares of `elapsed_s`."""
    # Ends before beginnings, so that no frame has ended which has not come.
    out_count, failed_count, skipped_count = (
        sum(getattr(worker, name) for worker in workers) for name in ("frames_out", "failed", "skipped")
    )
    wait, run, copy = _times(workers)
    busy_s, sampled_s = (sum(getattr(worker, name) for worker in workers) for name in ("busy_s", "sampled_s"))
    return StageStatistics(
        name=stage.name,
        device=stage.device,
        frames_in=max(sum(worker.frames_in for worker in workers), out_count + failed_count + skipped_count),
        frames_out=out_count,
        failed=failed_count,
        skipped=skipped_count,
        # Times and the clock are read one after the other, so that a busy stage could come out just above 1.
        busy=min(1.0, busy_s / (elapsed_s * stage.replicas)) if elapsed_s > 0 else 0.0,
        busy_s=busy_s,
        queue_length=queue_length,
        wait_s=wait,
        run_s=run,
        copy_s=copy,
        replicas=stage.replicas,
        restarts=sum(worker.restarts for worker in workers),
        interpreter_s=busy_s * sum(worker.interpreter_s for worker in workers) / sampled_s if sampled_s else 0.0,
        steps=tuple(_summarise_step(unit, number, workers) for number, unit in enumerate(stage.units) if stage.steps),
    )


def _times(workers: Sequence[StageCounters]) -> tuple[Percentiles, Percentiles, Percentiles]:
    """Return the frames' waiting, running and copying times."""
    wait, run, copy = (
        percentiles([seconds for worker in workers for seconds in getattr(worker, name).values()])
        for name in ("wait", "run", "copy")
    )
    return wait, run, copy


def _summarise_step(unit: StagePlan, number: int, workers: Sequence[StageCounters]) -> StepStatistics:
    # Workers of a former bundle may have had fewer steps.
    counters = [worker.steps[number] for worker in workers if number < len(worker.steps)]
    wait, run, copy = _times(counters)
    return StepStatistics(unit.name, unit.device, sum(step.busy_s for step in counters), wait, run, copy)
