"""Frame: one input on its way through the stages."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future
from types import MappingProxyType
from typing import Any

import numpy as np

Result = np.ndarray | dict[str, np.ndarray]
"""One output as its array, several as arrays by name."""

_NONE: Mapping[int, int] = MappingProxyType({})
_ENDED = CancelledError("this frame has ended")


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
    """

    def __init__(self, timestamp: float, metadata: Any) -> None:
        super().__init__()
        self.sequence = -1
        self.timestamp = timestamp
        self.metadata = metadata


class Frame:
    """One input on its way: its number, its live tensors, its first error and its future.

    Parameters
    ----------
    future : FrameFuture
        What the caller holds.
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
    error : BaseException or None
        Why the remaining stages leave the frame alone; the first one stays.
    finished : bool
        Whether all stages are done with it.
    """

    __slots__ = (
        "_begun", "_lock", "_readers", "_unannounced", "_waiting",
        "borrowed", "entered", "error", "finished", "future", "number", "tensors",
    )  # fmt: skip

    def __init__(
        self,
        future: FrameFuture,
        tensors: list[Any],
        borrowed: Sequence[np.ndarray] = (),
        waiting: Mapping[int, int] = _NONE,
        readers: Mapping[int, int] = _NONE,
    ) -> None:
        self.number = -1
        self.entered = 0.0
        self.future, self.tensors, self.borrowed = future, tensors, borrowed
        self.error: BaseException | None = None
        self.finished = False
        self._begun = self._unannounced = False
        self._lock = threading.Lock()
        self._waiting = dict(waiting)
        self._readers = dict(readers)

    def begin(self) -> None:
        """Note that a stage takes the frame up: from now on its future cannot be cancelled; it may have been."""
        with self._lock:
            if not self._begun:
                self._begun = True
                if not self.future.set_running_or_notify_cancel() and self.error is None:
                    self.error = CancelledError()

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
        return self._lock

    def abandon(self, reason: BaseException) -> None:
        """Give the frame up: it ends as cancelled if no stage has taken it up yet, else failed with `reason`."""
        with self._lock:
            self._unannounced, self._begun = not self._begun, True
            if self.error is None:
                self.error = CancelledError() if self._unannounced else reason

    def announce_cancellation(self) -> None:
        """Let the future end as cancelled, for those too who wait for several futures at once."""
        if self._unannounced:
            self.future.cancel()
            self.future.set_running_or_notify_cancel()

    def end(self) -> None:
        """Let go of everything.

        An error refers by its traceback to the code that handled the frame, and so to the frame: were the frame to
        refer to the error, tensors would stay in memory until Python searches for cycles.
        """
        self.error = _ENDED
        self.tensors, self.borrowed = [], ()
        del self.future
