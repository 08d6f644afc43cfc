"""Worker context: one worker's work, and the pipeline around it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.core.plan.plan import StagePlan
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.scheduler.channel import Channel
from pipeline.scheduler.frame import Frame
from pipeline.scheduler.heterogeneous import StepTimes
from pipeline.scheduler.options import PipelineOptions
from pipeline.scheduler.statistics import StageCounters
from pipeline.scheduler.stream_states import KeptTensor
from pipeline.scheduler.turns import DeviceTurns, Turns
from pipeline.scheduler.wiring import StageWiring
from pipeline.system.watchdog import Watchdog

RunTimes = tuple[float, float, float, float, float]
"""When a frame came, was taken up, had its inputs, had run, and was stored, by `time.perf_counter`."""


class RunNotes:
    """Counters of a worker, with an optional trace."""

    def __init__(self, assignment: Assignment, *, may_copy: bool) -> None:
        self._stage, self._replica, self._counters = assignment.stage, assignment.replica, assignment.counters
        self._trace, self._may_copy = assignment.context.options.trace, may_copy

    def run(self, number: int, times: RunTimes) -> None:
        """Note a run on a frame."""
        arrival_s, begin_s, ready_s, ran_s, stored_s = times
        self._counters.count_run(begin_s - arrival_s, ready_s - begin_s + stored_s - ran_s, ran_s - ready_s)
        if self._trace is None:
            return
        for kind, start, end in zip(("queue", "copy", "run", "copy"), times, times[1:], strict=False):
            if kind != "copy" or self._may_copy:
                self.event(number, kind, start, end)

    def steps(self, number: int, step_times: Sequence[StepTimes]) -> None:
        """Note the steps of a run."""
        for unit, counters, times in zip(self._stage.units, self._counters.steps, step_times, strict=True):
            copy_s = times.asked - times.start + times.end - times.ran
            counters.count_run(times.begin - times.asked, copy_s, times.ran - times.begin)
            if self._trace is not None:
                self._trace.add(unit.name, number, "step", times.begin, times.ran, self._replica, unit.device)

    def event(self, number: int, kind: str, start: float, end: float) -> None:
        """Trace a frame's time span here."""
        if self._trace is not None:
            self._trace.add(self._stage.name, number, kind, start, end, self._replica)


Arrival = tuple[Frame, float]
"""A frame and when it began to wait, by `time.perf_counter`."""


@dataclass(frozen=True)
class WorkerContext:
    """Pipeline in its workers' view, common to all deployments."""

    options: PipelineOptions
    """The runtimes' maker, the limits of the stages and the trace."""
    watchdog: Watchdog | None
    """Whom to tell of runs that have a limit."""
    on_room: Callable[[], None]
    """Function to call when there is room in front of a first stage."""
    withdraw: Callable[[Frame, BaseException], bool]
    """Ends a frame that no stage has taken up, with an error."""
    on_finish: Callable[[Frame], None]
    """Function to call with each frame that all stages are done with."""
    on_failure: Callable[[Frame, BaseException], None]
    """Function to call with each frame that a stage failed on, and the error."""
    stop: Callable[[BaseException], None]
    """Ends the pipeline with an error."""
    on_break: Callable[[BaseException], None]
    """Function to call with the error of a worker that broke."""
    turns: DeviceTurns = field(default_factory=DeviceTurns)
    # Each thread adds and removes itself; single steps, which need no lock.
    worker_threads: set[int] = field(default_factory=set)
    """Identifiers of the workers' threads."""


@dataclass(frozen=True)
class Assignment:
    """Work of one worker, inherited by its replacement."""

    context: WorkerContext
    """The pipeline."""
    stage: StagePlan
    replica: int
    """Number of the worker among those of its stage."""
    make_runtime: Callable[[], DeviceRuntime]
    """Returns what to run it on, for the worker and for each that replaces it."""
    wiring: StageWiring
    """The stage's slots in a frame."""
    readers: Sequence[int]
    """Number of reads of each slot of the pipeline."""
    loads: Sequence[tuple[StagePlan, Any]]
    """The stage and its code, or those of its steps, in each of the deployment's builds."""
    inbox: Channel[Arrival]
    """Frames that wait for the stage, with the time they came."""
    pass_on: Callable[[Frame], None]
    """Function to call with each frame when the stage is done with it; may wait for places."""
    cores: tuple[threading.Lock, ...] = ()
    """Lock for each host core that another stage uses too, in the order of the cores; held while the stage runs."""
    limit: float = 0.0
    """Seconds that a run may take, 0 if it has no limit."""
    # Outlives the worker: its successor goes on counting, so that no sum ever falls.
    counters: StageCounters = field(default_factory=StageCounters)
    """Counters of the finished work."""
    turns: Turns | None = None
    """Turns with the stage's device, if steps of other stages borrow it."""
    states: tuple[KeptTensor, ...] = ()
    """Tensors that the stage keeps for the stream's next frame."""
