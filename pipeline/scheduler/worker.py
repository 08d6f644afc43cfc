"""Worker: the thread of one stage."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from pipeline.errors import PipelineError, StageError
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.plans import StagePlan
from pipeline.scheduler.channel import Channel
from pipeline.scheduler.copies import StageCopies
from pipeline.scheduler.frame import Frame
from pipeline.scheduler.statistics import StageCounters, StageStatistics
from pipeline.scheduler.trace import Trace

logger = logging.getLogger(__name__)

Arrival = tuple[Frame, float]
"""A frame and when it began to wait."""


class Worker:
    """Takes frames from a channel, runs its stage on them and passes them on, in one thread.

    Parameters
    ----------
    stage : StagePlan
        What it runs.
    runtime : DeviceRuntime
        What it runs on; used in the worker's thread only.
    inbox : Channel
        Frames that wait for the stage, with the time they came.
    copies : StageCopies
        What to take from a frame and leave in it.
    root : bool
        Whether frames begin here.
    pass_on : callable
        Called with each frame when the stage is done with it; may wait for places.
    cores : sequence of lock
        One for each host core that another stage uses too, in the order of the cores; held while the stage runs.
    trace : Trace or None
        Where to note events.

    Attributes
    ----------
    counters : StageCounters
        What has been done.
    """

    def __init__(  # noqa: PLR0913 - its surroundings, each on its own
        self,
        stage: StagePlan,
        runtime: DeviceRuntime,
        inbox: Channel[Arrival],
        copies: StageCopies,
        *,
        root: bool,
        pass_on: Callable[[Frame], None],
        cores: Sequence[threading.Lock] = (),
        trace: Trace | None = None,
    ) -> None:
        self.stage, self.inbox, self.counters = stage, inbox, StageCounters()
        self._runtime, self._copies, self._root, self._pass_on = runtime, copies, root, pass_on
        self._cores, self._trace = tuple(cores), trace
        self._thread = threading.Thread(target=self._live, name=f"stage {stage.name}", daemon=True)
        self._started: SimpleQueue[BaseException | None] = SimpleQueue()

    def start(self, code: Any, broke: Callable[[BaseException], None]) -> None:
        """Start the thread and wait until its device has loaded the stage.

        Parameters
        ----------
        code : object
            The built stage.
        broke : callable
            Called with the error, should the worker itself ever fail.

        Raises
        ------
        PipelineError
            If the device cannot be opened or the stage not loaded.
        """
        self._code, self._broke = code, broke
        self._thread.start()
        error = self._started.get()
        if error is None:
            return
        if isinstance(error, PipelineError):
            raise error
        where = f"stage {self.stage.name!r} on device {self.stage.device!r}"
        raise PipelineError(f"{where} cannot start: {type(error).__name__}: {error}") from error

    @property
    def ident(self) -> int | None:
        """The thread's identifier."""
        return self._thread.ident

    def statistics(self, elapsed_s: float) -> StageStatistics:
        """Return a snapshot, with shares of `elapsed_s`."""
        return self.counters.snapshot(self.stage.name, self.stage.device, len(self.inbox), elapsed_s)

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread's end, at most `timeout` seconds, and return whether it has ended."""
        if self._thread.ident is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _live(self) -> None:
        try:
            program = self._open()
        except BaseException as error:  # noqa: BLE001 - raised by start
            self._started.put(error)
            return
        self._started.put(None)
        try:
            self._serve(program)
        except BaseException as error:  # noqa: BLE001 - ends the pipeline, and is its frames' error
            self._broke(error)
        finally:
            self._close()

    def _open(self) -> Any:
        self._runtime.open(self.stage.cores)
        try:
            return self._runtime.load(self.stage, self._code)
        except BaseException:
            self._close()
            raise
        finally:
            del self._code

    def _close(self) -> None:
        try:
            self._runtime.close()
        except Exception:
            logger.exception("device %r of stage %r could not be closed", self.stage.device, self.stage.name)

    def _serve(self, program: Any) -> None:
        while (arrival := self.inbox.get()) is not None:
            self._process(program, *arrival)
            del arrival  # it would keep the frame's tensors while the worker waits for the next

    def _process(self, program: Any, frame: Frame, queued: float) -> None:
        self.counters.frames_in += 1
        if self._root:
            frame.begin()
        if frame.error is None:
            try:
                self._attempt(program, frame, queued)
            except BaseException as error:  # noqa: BLE001 - travels with the frame
                self.counters.failed += 1
                frame.fail(StageError(self.stage.name, self.stage.device, frame.number, error))
        else:
            self.counters.skipped += 1
        self._pass_on(frame)

    def _attempt(self, program: Any, frame: Frame, queued: float) -> None:
        if not self._cores:
            self._run(program, frame, queued)
            return
        for core in self._cores:
            core.acquire()
        try:
            self._run(program, frame, queued)
        finally:
            for core in self._cores:
                core.release()

    def _run(self, program: Any, frame: Frame, queued: float) -> None:
        taken = perf_counter()
        inputs = self._copies.take(frame)
        ready = perf_counter()
        outputs = self._runtime.run(program, inputs)
        ran = perf_counter()
        self._copies.leave(frame, outputs)
        left = perf_counter()
        self.counters.ran(taken - queued, ready - taken + left - ran, ran - ready)
        if self._trace is not None:
            self._note(self._trace, frame.number, (queued, taken, ready, ran, left))

    def _note(self, trace: Trace, number: int, times: tuple[float, float, float, float, float]) -> None:
        for kind, start, end in zip(("queue", "copy", "run", "copy"), times, times[1:], strict=False):
            if kind != "copy" or self._copies.needed:
                trace.add(self.stage.name, number, kind, start, end)
