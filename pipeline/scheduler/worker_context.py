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
from pipeline.scheduler.options import PipelineOptions
from pipeline.scheduler.statistics import StageCounters
from pipeline.scheduler.stream_states import KeptTensor
from pipeline.scheduler.turns import DeviceTurns, Turns
from pipeline.scheduler.wiring import StageWiring
from pipeline.system.watchdog import Watchdog

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
    """Turns of borrowed devices."""
    # Each thread adds and removes itself; single steps, which need no lock.
    worker_threads: set[int] = field(default_factory=set)
    """Identifiers of the workers' threads."""


@dataclass(frozen=True)
class Assignment:
    """Work of one worker, inherited by its replacement."""

    context: WorkerContext
    """The pipeline."""
    stage: StagePlan
    """Stage to run."""
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
