"""Stream loop: frames into a running pipeline, ordered results out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from typing import Any

import numpy as np

from pipeline.errors import FrameDropped, PipelineError
from pipeline.scheduler.channel import Channel
from pipeline.scheduler.frame import FrameFuture
from pipeline.scheduler.interrupts import uninterrupted
from pipeline.scheduler.pipeline import Pipeline
from pipeline.scheduler.waiting import Latch


class SubmittedFrame:
    """A submitted frame and its end time.

    `end_time`: time of the end, by `time.time`; 0 before.  Its result may be handed over long after.
    """

    # One object for each frame, of which a stream may have hundreds of thousands.
    __slots__ = ("end_time", "future")

    def __init__(self, future: FrameFuture) -> None:
        self.future, self.end_time = future, 0.0
        future.notify_at_end(self._note_end)

    def _note_end(self, _: object) -> None:
        self.end_time = time.time()


Outputs = Mapping[str, "np.ndarray"]


class StreamLoop:
    """Submits frames in the caller's thread, delivering results in another.

    Nothing piles up: while results are not taken, `submit` waits. The thread begins with the first frame, so that
    nothing is left behind by whoever is interrupted before, and ends with `close`, whatever has happened. Whoever
    opened the pipeline closes it, after the loop.

    Parameters
    ----------
    deliver : callable
        Function to call with each frame and its outputs by name.
    fail : callable
        Function to call with the error of each frame that failed; an error that it raises ends the loop.
    drop : callable
        Function to call with each frame that was dropped or cancelled, which is no failure.

    Attributes
    ----------
    error : BaseException or None
        The first one that `deliver` or `fail` raised; from then on results are not handed over.
    """

    def __init__(
        self,
        running: Pipeline,
        deliver: Callable[[SubmittedFrame, Outputs], object],
        fail: Callable[[PipelineError], object],
        name: str,
        drop: Callable[[SubmittedFrame], object] = lambda _: None,
    ) -> None:
        self._running, self._deliver, self._fail, self._drop = running, deliver, fail, drop
        # More than are inside, so that the pipeline never waits for its results to be taken.
        # And no `queue.Queue`, which an interrupt of the main thread may leave locked for ever.
        self._capacity = 2 * running.plan.frames_in_flight + 2
        self._line = Channel[SubmittedFrame](self._capacity)
        self._thread = threading.Thread(target=self._take, name=name, daemon=True)
        self._end = Latch()
        self.error: BaseException | None = None

    @property
    def full(self) -> bool:
        """True if the next frame would wait for results' delivery."""
        return len(self._line) >= self._capacity

    def submit(self, inputs: Any, **options: Any) -> None:
        """Submit a frame, with the `options` of `Pipeline.submit`."""
        # By its number and no flag: an interrupt is raised behind the start, which has happened then.
        if self._thread.ident is None:
            uninterrupted(self._thread.start)()
        # In the order of submission: `submit` is called by one thread at a time.
        self._line.put(SubmittedFrame(self._running.submit(inputs, **options)))

    def abandon(self, error: BaseException) -> None:
        """Hand no result over any more, because of `error`."""
        # The first one says what went wrong; later ones follow from it.
        self.error = self.error or error

    def close(self) -> None:
        """Accept no more frames, deliver the remaining results, and return."""
        self._line.close()
        if self._thread.ident is not None:
            # A join that was interrupted once takes the thread for ended ever after.
            self._end.wait()
            self._thread.join()

    def _take(self) -> None:
        try:
            while (frame := self._line.get()) is not None:
                if self.error is not None:
                    # Nobody takes its result: the pipeline need not compute it.
                    frame.future.cancel()
                    continue
                try:
                    self._hand_over(frame)
                except BaseException as error:  # noqa: BLE001 - whatever it is, whoever closes the loop gets it
                    self.abandon(error)
        finally:
            self._end.set()

    def _hand_over(self, frame: SubmittedFrame) -> None:
        try:
            outputs = frame.future.outputs()
        # Dropped by the admission, or cancelled with the pipeline: neither is a failure.
        except (FrameDropped, CancelledError):
            self._drop(frame)
        except PipelineError as error:
            self._fail(error)
        else:
            self._deliver(frame, outputs)
