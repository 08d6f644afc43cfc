"""Surroundings: what the workers of a flow know of the pipeline that they work for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.board import Device
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.scheduler.frame import Frame
from pipeline.scheduler.trace import Trace
from pipeline.scheduler.watchdog import Watchdog


@dataclass(frozen=True)
class Surroundings:
    """What the workers of a flow tell the pipeline, and what they get from it.

    Attributes
    ----------
    create : callable
        Makes the runtime of a device.
    freed : callable
        Called when there is room in front of a first stage.
    withdraw : callable
        Ends a frame that no stage has taken up, with an error.
    finished : callable
        Called with each frame that all stages are done with.
    failed : callable
        Called with each frame that a stage failed on, and the error.
    broke : callable
        Called with the error of a worker that broke.
    trace : Trace or None
        Where to note events.
    watchdog : Watchdog or None
        Whom to tell of runs that have a limit.
    limit : callable
        Returns the seconds that a stage may run on one frame, 0 if it has no limit.
    crew : set of int
        Identifiers of the workers' threads.
    """

    create: Callable[[Device], DeviceRuntime]
    freed: Callable[[], None]
    withdraw: Callable[[Frame, BaseException], bool]
    finished: Callable[[Frame], None]
    failed: Callable[[Frame, BaseException], None]
    broke: Callable[[BaseException], None]
    trace: Trace | None = None
    watchdog: Watchdog | None = None
    limit: Callable[[str], float] = lambda _: 0.0
    crew: set[int] = field(default_factory=set)
