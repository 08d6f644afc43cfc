"""Frame: one input on its way through the stages."""

from __future__ import annotations

import concurrent.futures
import functools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from pipeline.scheduler.inputs import AcceptedInputs
from pipeline.scheduler.interrupts import contain, uninterrupted
from pipeline.scheduler.stream_states import StreamTurn
from pipeline.scheduler.waiting import SafeCondition
from pipeline.system.affinity import call_unpinned

logger = logging.getLogger(__name__)

FrameResult = np.ndarray | dict[str, np.ndarray]
"""One output as its array, several as arrays by name."""

_NONE: Mapping[int, int] = MappingProxyType({})
_ENDED = CancelledError("this frame has ended")
# The two ends of `_WAITING` exclude each other: a stage takes the frame up, or somebody takes it back.
_WAITING, _BEGUN, _WITHDRAWN = range(3)


class FrameFuture(Future[Any]):
    """Future result of a frame, from `Pipeline.submit`.

    Whatever a callback raises ends that callback alone, and is logged.

    Parameters
    ----------
    timestamp, metadata, stream
        Attributes of the same names.
    output_names : sequence of str
        Names of the pipeline's outputs.
    callers : set of int, optional
        Identifiers of the threads that are in callbacks of the pipeline's frames; they note themselves there.

    Attributes
    ----------
    sequence : int
        Number of the frame, from 0, in the order of submission.
    timestamp : float
        Time of capture, as the caller gave it; else `time.time` at submission.
    metadata : object
        Metadata of the caller.
    stream : str
        Stream whose state the frame reads and changes.
    frame : Frame or None
        Frame of the future, as long as that is on its way; the scheduler's own.
    """

    def __init__(
        self,
        timestamp: float,
        metadata: Any,
        output_names: Sequence[str],
        callers: set[int] | None = None,
        stream: str = "",
    ) -> None:
        super().__init__()
        # A layer without state of its own, and so the cheapest way to have waits that can be interrupted.
        self._condition.__class__ = SafeCondition
        self.sequence = -1
        self.timestamp = timestamp
        self.metadata = metadata
        self.stream = stream
        # For `cancel`; the frame refers back, and cuts this when it ends, so that no cycle keeps its tensors.
        self.frame: Frame | None = None
        self._output_names = output_names
        self._callers = set() if callers is None else callers

    def outputs(self, timeout: float | None = None) -> dict[str, np.ndarray]:
        """Wait like `result`, and return all outputs by name.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait.

        Raises
        ------
        concurrent.futures.TimeoutError
            If they are not there in time.
        CancelledError, FrameDropped, StageError, PipelineClosed
            If the frame has ended without a result.
        """
        result = self.result(timeout)
        return result if isinstance(result, dict) else {self._output_names[0]: result}

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call `fn` at the end; its threads are not pinned to stage cores."""
        # Letting the thread go and catching it again takes 10 to 20 us.  What asyncio puts here only wakes its loop.
        starts_nothing = getattr(fn, "__module__", "") == "asyncio.futures"
        self.notify_at_end(fn if starts_nothing else functools.partial(call_unpinned, fn))

    def notify_at_end(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call `fn` at the end; it must start no thread or process."""
        callers = self._callers

        def call(future: Future[Any]) -> None:
            me = threading.get_ident()
            # A callback may end another frame of the same pipeline, and so run that one's callbacks inside of this one.
            is_nested = me in callers
            callers.add(me)
            try:
                error = contain(fn, future)
            finally:
                if not is_nested:
                    callers.discard(me)
            if error is not None:
                self._report(error)

        super().add_done_callback(call)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for any end, at most `timeout` seconds; return success."""
        try:
            self.exception(timeout)
        except (CancelledError, concurrent.futures.TimeoutError):
            return self.done()
        return True

    def after_fork(self, error: BaseException) -> None:
        """Fail with `error` in a forked process; waiters are the parent's."""
        # The parent's thread that held the old one, or waited on it, is not in this process.
        self._condition = SafeCondition()
        self._waiters.clear()
        self._done_callbacks: list[Callable[[Future[Any]], object]] = []
        if not self.done():
            self.set_exception(error)

    @uninterrupted
    def cancel(self) -> bool:
        """Withdraw the frame before its first stage, freeing its place at once.

        Returns
        -------
        bool
            True if the frame is cancelled.
        """
        # In this order: the future's own lock decides against a stage that takes the frame up at this moment.
        is_cancelled = super().cancel()
        frame = self.frame  # gone when the frame ends, which may be now
        if is_cancelled and frame is not None:
            frame.deployment.withdraw(frame, CancelledError())
        return is_cancelled

    def _report(self, error: BaseException) -> None:
        outcome = f"{type(error).__name__}, which ended only the callback"
        logger.error("a callback of frame %d raised %s", self.sequence, outcome, exc_info=error)


class Carrier(Protocol):
    """A frame's deployment, as the frame and the ledger see it."""

    keeps_state: bool

    def accepted_inputs(self, frame: Frame) -> AcceptedInputs:
        """Return the inputs of a frame before its first stage."""

    def has_room(self) -> bool:
        """Test for room, under the ledger's lock."""

    def forecast(self) -> float:
        """Return the expected seconds of a frame started now."""

    def start(self, frame: Frame) -> None:
        """Pass a frame to the first stages, under the ledger's lock."""

    def wake(self) -> None:
        """Let the first stages look for frames."""

    def take_back(self, frame: Frame) -> None:
        """Free a withdrawn frame's places, under the ledger's lock."""

    def withdraw(self, frame: Frame, reason: BaseException) -> bool:
        """End a frame before its first stage with `reason`; return success."""

    def result(self, frame: Frame) -> FrameResult:
        """Return the outputs of a finished frame."""


class Frame:
    """An input on its way: number, live tensors, first error, future.

    It goes through the workers of `deployment`, also after `swap` has brought others. The list `tensors`, which is
    taken over, has a place for each slot of the wiring, the model inputs filled in; `caller_arrays` among them still
    belong to the caller. `joins` has the number of branches that each joining stage waits for, and `readers` that of
    the readers of each slot with several.

    Attributes
    ----------
    number : int
        Sequence number; -1 until it is submitted.
    entry_s : float
        `time.perf_counter` when it started.
    error : BaseException or None
        Reason that the remaining stages leave the frame alone; the first one stays.
    is_finished : bool
        True if all stages are done with it.
    build : int
        Number of the deployment's build that runs it.
    crop : mapping or None
        Part of its outputs that is the result, if its inputs were padded.
    turn : StreamTurn or None
        Place in its stream, where stages keep state.
    """

    __slots__ = (
        "_announces_late",
        "_copying",
        "_lock",
        "_missing_branches",
        "_readers",
        "_state",
        "build",
        "caller_arrays",
        "crop",
        "deployment",
        "entry_s",
        "error",
        "future",
        "is_finished",
        "number",
        "tensors",
        "turn",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917 - made in one place, and for each frame
        self,
        future: FrameFuture,
        deployment: Carrier,
        tensors: list[Any],
        caller_arrays: Sequence[np.ndarray] = (),
        joins: Mapping[int, int] = _NONE,
        readers: Mapping[int, int] = _NONE,
    ) -> None:
        self.number = -1
        self.entry_s = 0.0
        self.future, self.deployment, self.tensors, self.caller_arrays = future, deployment, tensors, caller_arrays
        self.error: BaseException | None = None
        self.is_finished = False
        self.build = 0
        self.crop: Mapping[str, tuple[slice, ...]] | None = None
        self.turn: StreamTurn | None = None
        self._state, self._announces_late = _WAITING, False
        # Guards state, error and the two counts.  Taken by workers, the watchdog and whoever cancels, some of whom hold
        # the ledger's lock; so nobody who holds this one may ask for that one.
        self._lock = threading.Lock()
        # A lock of its own: a copy may take long, or hang, and the frame must be able to end meanwhile.
        self._copying = threading.Lock() if readers else self._lock
        self._missing_branches = dict(joins)
        self._readers = dict(readers)

    def begin(self) -> bool:
        """Mark the frame as begun by a stage, beyond cancellation.

        Returns False if the frame has been withdrawn: then it is nobody's.
        """
        with self._lock:
            if self._state == _WAITING:
                self._state = _BEGUN
                # Cancelled, and whoever did it has not come to `withdraw` yet: stages leave the frame alone, and it
                # ends in its turn.
                if not self.future.set_running_or_notify_cancel() and self.error is None:
                    self.error = CancelledError()
            return self._state == _BEGUN

    def withdraw(self, reason: BaseException) -> bool:
        """End the frame before its first stage, with `reason` or as cancelled."""
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

    def count_arrival(self, stage: int) -> bool:
        """Count an arriving branch at a joining stage; True for the last."""
        with self._lock:
            self._missing_branches[stage] -= 1
            return not self._missing_branches[stage]

    def release(self, slot: int) -> None:
        """Count a finished reader of the slot; the last empties it."""
        # Counted only where there are several readers; most slots have one, which needs no lock.
        if slot in self._readers:
            with self._lock:
                self._readers[slot] -= 1
                if self._readers[slot]:
                    return
        self.tensors[slot] = None

    def copy_lock(self) -> threading.Lock:
        """Return the lock for copies shared by concurrent stages."""
        return self._copying

    def abandon(self, reason: BaseException) -> None:
        """Give the frame up: cancelled before its first stage, else failed with `reason`."""
        with self._lock:
            if self._state == _WITHDRAWN:  # it is ending already
                return
            if self._state == _WAITING:
                # As if begun, so that neither a worker nor a cancellation ends it a second time; the future hears of it
                # when its turn comes.
                self._announces_late, self._state = True, _BEGUN
                reason = CancelledError()
            if self.error is None:
                self.error = reason
            self.is_finished = True

    def announce_cancellation(self) -> None:
        """Notify waiters of several futures about the cancellation too."""
        if self._announces_late:
            # As a caller's own cancellation would, but for the frame, which is ending already.
            Future.cancel(self.future)
            self.future.set_running_or_notify_cancel()

    def take_over(self, substitute: Frame) -> None:
        """Adopt `substitute`'s content, keeping number, future and state."""
        # The frame itself stays, since it is in the books, and its caller may hold its future already.
        self.deployment, self.tensors, self.caller_arrays = (
            substitute.deployment,
            substitute.tensors,
            substitute.caller_arrays,
        )
        self.build, self.crop = substitute.build, substitute.crop
        self._missing_branches, self._readers = substitute._missing_branches, substitute._readers
        self._copying = substitute._copying

    def end(self) -> None:
        """Let go of everything.

        An error refers by its traceback to the code that handled the frame, and so to the frame: were the frame to
        refer to the error, tensors would stay in memory until Python searches for cycles.
        """
        self.error = _ENDED
        self.tensors, self.caller_arrays, self.turn = [], (), None
        self.future.frame = None
        del self.future
