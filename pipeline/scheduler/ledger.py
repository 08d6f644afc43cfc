"""Ledger: numbers the frames, and lets each of them end in exactly one way, in order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError

from pipeline.errors import PipelineClosed
from pipeline.scheduler.frame import Frame, Result
from pipeline.scheduler.statistics import Durations

logger = logging.getLogger(__name__)


class Ledger:
    """The frames in flight, by number.

    Frames end in the thread that finds the next one finished, one at a time, in the order of submission and without
    any lock held, so that a future's callbacks may call back into the pipeline.

    Parameters
    ----------
    start : callable
        Hands an admitted frame to the first stages; must not wait.
    result : callable
        Makes a finished frame's result.
    ended : callable
        Called when a frame has left the pipeline, just before its future ends.
    drained : callable
        Called once nothing is in flight any more and nothing more will come; may be called twice.

    Attributes
    ----------
    submitted, delivered, failed, cancelled : int
        Frames accepted, and how they ended.
    latency : Durations
        From submission to delivery.
    first, last : float
        `time.perf_counter` at the first submission and the newest end.
    """

    def __init__(
        self,
        start: Callable[[Frame], None],
        result: Callable[[Frame], Result],
        ended: Callable[[], None],
        drained: Callable[[], None],
    ) -> None:
        self._start, self._result, self._ended, self._drained = start, result, ended, drained
        # Reentrant: a forgotten pipeline may be closed by the garbage collector, at any place in any thread.
        self._lock = threading.RLock()
        self._frames: dict[int, Frame] = {}
        self._next = 0
        self._delivering = False
        self._closing = False
        self.submitted = self.delivered = self.failed = self.cancelled = 0
        self.latency = Durations()
        self.first = self.last = 0.0

    @property
    def closing(self) -> bool:
        """Whether no more frames are accepted."""
        return self._closing

    def admit(self, frame: Frame) -> None:
        """Give the frame its number and start it.

        Raises
        ------
        PipelineClosed
            If no more frames are accepted; the frame then leaves no trace.
        """
        with self._lock:
            if self._closing:
                raise PipelineClosed("the pipeline is closed; it takes no more frames")
            frame.number = frame.future.sequence = self.submitted
            frame.entered = time.perf_counter()
            self.first = self.first or frame.entered
            self._frames[frame.number] = frame
            self.submitted += 1
            self._start(frame)

    def finish(self, frame: Frame) -> None:
        """Note that all stages are done with the frame, and let all frames end whose turn it is."""
        frame.finished = True
        self._deliver()

    def close(self) -> None:
        """Accept no more frames; those in flight go on."""
        self._closing = True
        self._deliver()

    def abandon(self, reason: BaseException) -> None:
        """Accept no more frames and give up those in flight, also where a device keeps its worker busy."""
        with self._lock:
            self._closing = True
            unfinished = [frame for frame in self._frames.values() if not frame.finished]
        for frame in unfinished:
            frame.abandon(reason)
            frame.finished = True
        self._deliver()

    def _deliver(self) -> None:
        with self._lock:
            if self._delivering:  # whoever it is sees what has been noted by now
                return
            self._delivering = True
        while (frame := self._take_next()) is not None:
            self._end(frame)

    def _take_next(self) -> Frame | None:
        with self._lock:
            frame = self._frames.get(self._next)
            if frame is not None and frame.finished:
                del self._frames[self._next]
                self._next += 1
                return frame
            self._delivering = False
            drained = self._closing and not self._frames
        if drained:
            self._drained()
        return None

    def _end(self, frame: Frame) -> None:
        self.last = time.perf_counter()
        try:
            self._complete(frame, *self._outcome(frame))
        except BaseException:  # callbacks are the caller's code, and this thread must survive it
            logger.exception("a callback of frame %d failed", frame.number)
        frame.end()

    def _outcome(self, frame: Frame) -> tuple[Result | None, BaseException | None]:
        if frame.error is not None:
            return None, frame.error
        try:
            return self._result(frame), None
        except BaseException as error:  # noqa: BLE001 - it is the frame's end
            return None, error

    def _complete(self, frame: Frame, result: Result | None, error: BaseException | None) -> None:
        # Counted and out before the future ends: its callbacks may look, and submit the next frame.
        if error is None:
            self.delivered += 1
            self.latency.add(self.last - frame.entered)
            self._ended()
            frame.future.set_result(result)
        elif isinstance(error, CancelledError):
            self.cancelled += 1
            self._ended()
            frame.announce_cancellation()
        else:
            self.failed += 1
            self._ended()
            frame.future.set_exception(error)
