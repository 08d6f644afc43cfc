"""Frame: one input on its way through the stages."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pipeline.scheduler.flow import Flow

Result = np.ndarray | dict[str, np.ndarray]
"""One output as its array, several as arrays by name."""

_NONE: Mapping[int, int] = MappingProxyType({})
_ENDED = CancelledError("this frame has ended")
_WAITING, _BEGUN, _WITHDRAWN = range(3)


class FrameFuture(Future[Any]):
    """What `Pipeline.submit` returns: the result to come, and whose it is.

    Attributes
    ----------
    sequence : int
        Number of the frame, from 0, in the order of submission.
    timestamp : float
        When the frame was captured, as the caller gave it; else `time.time` at submission.
    metadata : object
        Whatever the caller gave.
    frame : Frame or None
        What it stands for, as long as that is on its way; the scheduler's own.
    """

    def __init__(self, timestamp: float, metadata: Any) -> None:
        super().__init__()
        self.sequence = -1
        self.timestamp = timestamp
        self.metadata = metadata
        self.frame: Frame | None = None

    def cancel(self) -> bool:
        """Take the frame back if no stage has taken it up yet; its place is free at once.

        Returns
        -------
        bool
            Whether the frame is cancelled.
        """
        cancelled = super().cancel()
        frame = self.frame  # gone when the frame ends, which may be now
        if cancelled and frame is not None:
            frame.flow.withdraw(frame, CancelledError())
        return cancelled


class Frame:
    """One input on its way: its number, its live tensors, its first error and its future.

    Parameters
    ----------
    future : FrameFuture
        What the caller holds.
    flow : Flow
        The workers that it goes through, also after `swap` has brought others.
    tensors : list
        One place for each slot of the wiring, the model inputs filled in; taken over.
    borrowed : sequence of ndarray
        Arrays among them that still belong to the caller.
    waiting : mapping of int to int
        For each stage that joins branches, how many of them it waits for.
    readers : mapping of int to int
        For each slot with several readers, how many there are.

    Attributes
    ----------
    number : int
        Its sequence number; -1 until it is submitted.
    entered : float
        `time.perf_counter` when it started.
    error : BaseException or None
        Why the remaining stages leave the frame alone; the first one stays.
    finished : bool
        Whether all stages are done with it.
    build : int
        Which of the flow's builds runs it.
    crop : mapping or None
        What of its outputs is the result, if its inputs were padded.
    """

    __slots__ = (
        "_copying", "_lock", "_readers", "_state", "_unannounced", "_waiting",
        "borrowed", "build", "crop", "entered", "error", "finished", "flow", "future", "number", "tensors",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917 - made in one place, and for each frame
        self,
        future: FrameFuture,
        flow: Flow,
        tensors: list[Any],
        borrowed: Sequence[np.ndarray] = (),
        waiting: Mapping[int, int] = _NONE,
        readers: Mapping[int, int] = _NONE,
    ) -> None:
        self.number = -1
        self.entered = 0.0
        self.future, self.flow, self.tensors, self.borrowed = future, flow, tensors, borrowed
        self.error: BaseException | None = None
        self.finished = False
        self.build = 0
        self.crop: Mapping[str, tuple[slice, ...]] | None = None
        self._state, self._unannounced = _WAITING, False
        self._lock = threading.Lock()
        # A lock of its own: a copy may take long, or hang, and the frame must be able to end meanwhile.
        self._copying = threading.Lock() if readers else self._lock
        self._waiting = dict(waiting)
        self._readers = dict(readers)

    def begin(self) -> bool:
        """Note that a stage takes the frame up; from now on its future cannot be cancelled.  It may have been before.

        Returns
        -------
        bool
            False if the frame has been withdrawn: then it is nobody's.
        """
        with self._lock:
            if self._state == _WAITING:
                self._state = _BEGUN
                if not self.future.set_running_or_notify_cancel() and self.error is None:
                    self.error = CancelledError()
            return self._state == _BEGUN

    def withdraw(self, reason: BaseException) -> bool:
        """End the frame with `reason`, or as cancelled if it was, unless a stage has taken it up: then return False."""
        with self._lock:
            if self._state != _WAITING:
                return False
            self._state = _WITHDRAWN
            self.error = reason if self.future.set_running_or_notify_cancel() else CancelledError()
            return True

    def fail(self, error: BaseException) -> None:
        """Keep the first error."""
        with self._lock:
            if self.error is None:
                self.error = error

    def arrived(self, stage: int) -> bool:
        """Count one branch that reached a joining stage; True for the last."""
        with self._lock:
            self._waiting[stage] -= 1
            return not self._waiting[stage]

    def release(self, slot: int) -> None:
        """Count one reader that is done with the slot; the last empties it."""
        if slot in self._readers:
            with self._lock:
                self._readers[slot] -= 1
                if self._readers[slot]:
                    return
        self.tensors[slot] = None

    def exclusively(self) -> threading.Lock:
        """Return the lock under which stages that work on this frame at the same time share its copies."""
        return self._copying

    def abandon(self, reason: BaseException) -> None:
        """Give the frame up: it ends as cancelled if no stage has taken it up yet, else failed with `reason`."""
        with self._lock:
            if self._state == _WITHDRAWN:  # it is ending already
                return
            if self._state == _WAITING:
                self._unannounced, self._state = True, _BEGUN
                reason = CancelledError()
            if self.error is None:
                self.error = reason
            self.finished = True

    def announce_cancellation(self) -> None:
        """Let the future end as cancelled, for those too who wait for several futures at once."""
        if self._unannounced:
            # As a caller's own cancellation would, but for the frame, which is ending already.
            Future.cancel(self.future)
            self.future.set_running_or_notify_cancel()

    def end(self) -> None:
        """Let go of everything.

        An error refers by its traceback to the code that handled the frame, and so to the frame: were the frame to
        refer to the error, tensors would stay in memory until Python searches for cycles.
        """
        self.error = _ENDED
        self.tensors, self.borrowed = [], ()
        self.future.frame = None
        del self.future
