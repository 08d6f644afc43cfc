"""Intake: entrance of frames, and their withdrawal before a first stage."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any

import numpy as np

from pipeline.errors import FrameDropped, InputError, PipelineClosed
from pipeline.scheduler.admission_queue import AdmissionQueue, Ticket
from pipeline.scheduler.deployment import Deployments
from pipeline.scheduler.frame import Frame, FrameFuture
from pipeline.scheduler.inputs import AcceptedInputs
from pipeline.scheduler.interrupts import contain, uninterrupted
from pipeline.scheduler.ledger import Ledger

logger = logging.getLogger(__name__)

Observer = Callable[[Sequence[np.ndarray], FrameFuture], None]
"""Observer of the inputs and the future of a frame that has come in."""


class Intake:
    """The way in, and the way back, guarded by the ledger's lock.

    Those who come too late get `closed_error`; `must_not_wait` tests for a calling thread that must not wait for
    frames. Observers are called with each frame that comes in.
    """

    def __init__(
        self,
        ledger: Ledger,
        queue: AdmissionQueue,
        deployments: Deployments,
        *,
        closed_error: Callable[[], PipelineClosed],
        must_not_wait: Callable[[], bool],
    ) -> None:
        self._ledger, self._queue, self._deployments = ledger, queue, deployments
        self._closed_error, self._must_not_wait = closed_error, must_not_wait
        self.closing = False
        # Replaced as a whole, so that `submit` can go through them without the lock.
        self.observers: tuple[Observer, ...] = ()

    def make_future(self, timestamp: float, metadata: Any, stream: str) -> FrameFuture:
        """Return the future of a new frame."""
        return FrameFuture(timestamp, metadata, self._deployments.current.output_names, self._ledger.callers, stream)

    def submit_in_time(
        self, frame_inputs: AcceptedInputs, future: FrameFuture, timeout: float | None, *, by_reference: bool
    ) -> None:
        """Submit a frame and wait for its start; see `Pipeline.submit`.

        Raises `TimeoutError` if there was no place in time, or the caller must not wait; `PipelineClosed` if the
        pipeline is closed, or was while waiting.
        """
        try:
            # No ticket for those who would not wait: then no frame enters the queue only to leave it at once.
            ticket = self.submit(frame_inputs, future, None if timeout == 0 else Ticket, by_reference=by_reference)
        except TimeoutError:
            raise self._no_place(timeout) from None
        if ticket is not None:
            self._wait(ticket, timeout)

    def submit(
        self,
        frame_inputs: AcceptedInputs,
        future: FrameFuture,
        make_ticket: Callable[[], Ticket] | None = Ticket,
        *,
        by_reference: bool = False,
    ) -> Ticket | None:
        """Start, queue or drop a frame, or raise `PipelineClosed`; see `AdmissionQueue.submit`."""
        try:
            ticket = self._enter(frame_inputs, future, make_ticket, by_reference=by_reference)
        except BaseException:
            # Between any two steps, if it is an interrupt.
            self._undo(future)
            raise
        if ticket is not None or self._queue.drops:
            # Also for room that was made while the frame took its place in the queue.
            self._queue.settle()
        for observer in self.observers:
            if (error := contain(observer, frame_inputs.arrays, future)) is not None:
                logger.error("an observer of frame %d failed", future.sequence, exc_info=error)
        return ticket

    def submit_unbuilt(self, future: FrameFuture) -> Frame:
        """Book a frame waiting for a build until `admit`, under the ledger's lock."""
        if self.closing:
            raise self._closed_error()
        # Without tensors until there is a build; its caller can cancel it meanwhile like any other.
        frame = future.frame = Frame(future, self._deployments.current, [])
        self._ledger.number(frame)
        self._queue.unbuilt_frames.append(frame)
        return frame

    def admit(self, frame: Frame, frame_inputs: AcceptedInputs, *, by_reference: bool) -> None:
        """Admit a frame with its finished build, unless withdrawn."""
        with self._ledger.lock:
            # Withdrawn while its build was made.
            if frame not in self._queue.unbuilt_frames:
                return
            frame.take_over(self._make_frame(frame_inputs, frame.future, by_reference=by_reference))
            self._queue.admit(frame)
        self._queue.settle()

    def move(self, frame: Frame) -> None:
        """Move a queued frame to the current deployment if compatible; under the ledger's lock."""
        with contextlib.suppress(InputError):
            frame_inputs = frame.deployment.accepted_inputs(frame)
            frame.take_over(self._make_frame(frame_inputs, frame.future, by_reference=bool(frame.caller_arrays)))

    @uninterrupted
    def withdraw(self, frame: Frame, reason: BaseException) -> bool:
        """End a frame before its first stage with `reason`; return success."""
        # Before the ledger's lock is taken: the frame's own state decides who may end it, and most lose here.
        if not frame.withdraw(reason):
            return False
        with self._ledger.lock:
            self._queue.remove(frame)
            if frame in self._ledger:
                # It lies in the channels of the first stages: its places must be free before the next frame looks for
                # room.
                frame.deployment.take_back(frame)
        self._ledger.end_withdrawn(frame)
        return True

    def flush(self) -> int:
        """Drop all frames before their first stage and return their count."""
        with self._ledger.lock:
            frames = [*self._ledger.frames(), *self._queue.frames()]
        # The newest first: a place that becomes free shall not be taken by a frame that is to be dropped.
        return sum(self.withdraw(frame, FrameDropped(frame.number, "flushed")) for frame in reversed(frames))

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Show incoming frames to `observer`; return the function to end it."""
        with self._ledger.lock:
            self.observers = (*self.observers, observer)

        def end() -> None:
            with self._ledger.lock:
                self.observers = tuple(entry for entry in self.observers if entry is not observer)

        return end

    def _enter(
        self,
        frame_inputs: AcceptedInputs,
        future: FrameFuture,
        make_ticket: Callable[[], Ticket] | None,
        *,
        by_reference: bool,
    ) -> Ticket | None:
        with self._ledger.lock:
            if self.closing:
                raise self._closed_error()
            frame = future.frame = self._make_frame(frame_inputs, future, by_reference=by_reference)
            ticket = self._queue.submit(frame, make_ticket)
            # The lock is reentrant for that: the handler runs in this very thread.
            if self.closing:  # by a signal handler, in the middle of this
                raise self._closed_error()
            return ticket

    def _make_frame(self, frame_inputs: AcceptedInputs, future: FrameFuture, *, by_reference: bool) -> Frame:
        deployment = self._deployments.current
        if frame_inputs.check is not deployment.check:  # another bundle came meanwhile
            frame_inputs = deployment.check.find(frame_inputs)
        return deployment.make_frame(frame_inputs, future, by_reference=by_reference)

    @uninterrupted
    def _undo(self, future: FrameFuture) -> None:
        """Roll back an interrupted or refused `submit`."""
        frame = future.frame
        if frame is None:
            return
        with self._ledger.lock:
            # With a number it is in the books, and must end there; without one it leaves no trace.
            is_submitted = frame.number >= 0
            if not is_submitted:
                self._queue.remove(frame)
                frame.end()
        if is_submitted:
            # The interrupt may have come between the item and its token: a reader would sleep on.
            frame.deployment.wake()
            # If it has begun meanwhile, it is finished: nobody waits for it.
            self.withdraw(frame, CancelledError())

    def _wait(self, ticket: Ticket, timeout: float | None) -> None:
        in_callback = self._must_not_wait()
        try:
            # In a callback it would wait for a place that becomes free only when the callback has returned.
            ticket.wait(0 if in_callback else timeout)
        except TimeoutError:
            if self._queue.leave(ticket):
                raise self._no_place(timeout, in_callback=in_callback) from None
            ticket.wait()  # it was settled at the last moment
        except BaseException:
            self._queue.leave(ticket)
            raise

    def _no_place(self, timeout: float | None, *, in_callback: bool = False) -> TimeoutError:
        plan = self._deployments.current.plan
        reason = f"none became free within {timeout} s"
        if in_callback:
            reason = "a callback must not wait for its own pipeline"
        limit = f"the pipeline {plan.model!r} takes {plan.frames_in_flight} frames at once"
        return TimeoutError(f"no place for the frame: {reason}; {limit}")
