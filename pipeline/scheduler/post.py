"""Post: a worker's place in the pipeline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.plans import StagePlan
from pipeline.scheduler.channel import Channel
from pipeline.scheduler.frame import Frame
from pipeline.scheduler.statistics import StageCounters
from pipeline.scheduler.trace import Trace
from pipeline.scheduler.watchdog import Watchdog

Arrival = tuple[Frame, float]
"""A frame and when it began to wait."""


@dataclass(frozen=True)
class Post:
    """A worker's place in the pipeline; one that replaces it takes over all of this.

    Attributes
    ----------
    stage : StagePlan
        What to run.
    replica : int
        Which of the stage's workers it is.
    loads : sequence of (StagePlan, object)
        The stage and its code in each of the flow's builds.
    inbox : Channel
        Frames that wait for the stage, with the time they came.
    counters : StageCounters
        What has been done.
    root : bool
        Whether frames begin here.
    pass_on : callable
        Called with each frame when the stage is done with it; may wait for places.
    failed : callable
        Called with a frame and the error of the stage on it.
    broke : callable
        Called with the error, should the worker itself ever fail.
    cores : tuple of lock
        One for each host core that another stage uses too, in the order of the cores; held while the stage runs.
    trace : Trace or None
        Where to note events.
    watchdog : Watchdog or None
        Whom to tell of runs that have a limit.
    limit : float
        Seconds that a run may take.
    crew : set of int
        Identifiers of the threads of all workers.
    """

    stage: StagePlan
    replica: int
    loads: Sequence[tuple[StagePlan, Any]]
    inbox: Channel[Arrival]
    counters: StageCounters
    root: bool
    pass_on: Callable[[Frame], None]
    failed: Callable[[Frame, BaseException], None]
    broke: Callable[[BaseException], None]
    cores: tuple[threading.Lock, ...] = ()
    trace: Trace | None = None
    watchdog: Watchdog | None = None
    limit: float = 0.0
    crew: set[int] = field(default_factory=set)
