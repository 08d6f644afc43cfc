"""Pending builds: frames of new sizes wait for a build, others pass."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pipeline.core.shapes import Build, Size, describe_size
from pipeline.errors import BuildError, FrameDropped, InputError, PipelineError, describe_error
from pipeline.scheduler.engine import Engine
from pipeline.scheduler.frame import Frame, FrameFuture
from pipeline.scheduler.interrupts import uninterrupted
from pipeline.scheduler.open_inputs import UnknownSize
from pipeline.scheduler.waiting import SafeCondition
from pipeline.system.memory import snapshot

SizeBuilder = Callable[[Size], Build]
"""Makes the build for a size."""

_Key = tuple[tuple[str, int], ...]


class PendingFrame(NamedTuple):
    """A waiting frame."""

    frame: Frame
    """Frame that is in the books already, and may be withdrawn like any other."""
    arrays: Sequence[np.ndarray]
    """Inputs in the plan's order."""
    by_reference: bool
    """True if the arrays still belong to the caller."""


class PendingBuilds:
    """Builds sizes in a separate thread, then admits their frames.

    `build` makes the build for a size; without it frames of other sizes are refused.
    """

    def __init__(self, engine: Engine, build: SizeBuilder | None) -> None:
        self._engine, self._build = engine, build
        # The ledger's lock guards all of this: what waits here is in its books.
        self._change = SafeCondition(engine.ledger.lock)
        engine.queue.on_unbuilt_change = self._change.notify_all
        self._waiting: dict[_Key, deque[PendingFrame]] = {}
        # Never tried again: a compiler takes seconds, and frames of that size may come by the second.
        self._failures: dict[_Key, BaseException] = {}
        self._busy = False

    def submit(self, unknown: UnknownSize, future: FrameFuture, timeout: float | None, *, copy: bool) -> FrameFuture:
        """Queue a frame for its build and return its future.

        Raises `UnknownSize` if no build can be made; its cause is why the last attempt failed; `TimeoutError` if too
        many frames are waiting already, and nothing changes within `timeout` seconds; `PipelineClosed` if the pipeline
        is closed.
        """
        size = tuple(unknown.size.items())
        # Copied before anybody waits: the caller may reuse its buffers as soon as this returns.
        arrays = [snapshot(array) for array in unknown.arrays] if copy else unknown.arrays
        with self._change:
            if self._build is None or size in self._failures:
                raise unknown from self._failures.get(size)
            # Where nobody may wait, the oldest of the frames that have no build goes instead, below.
            if not self._engine.queue.drops:
                self._wait_for_room(timeout)
            self._enter(size, future, arrays, by_reference=not copy)
        if self._engine.queue.drops:
            # Without the lock: the callbacks of a dropped frame may call the pipeline.
            self._drop_oldest()
        return future

    def forget(self) -> None:
        """Stop building: the running stages no longer match the source."""
        with self._change:
            self._build = None

    def _wait_for_room(self, timeout: float | None) -> None:
        engine, queue = self._engine, self._engine.queue
        if not self._change.wait_for(
            lambda: len(queue.unbuilt_frames) < engine.deployment.capacity or engine.closing,
            # A callback holds up the frames whose end would make room.
            0 if engine.must_not_wait() else timeout,
        ):
            raise TimeoutError(
                f"no place for the frame: {len(queue.unbuilt_frames)} frames wait for builds of their sizes already"
            )

    @uninterrupted
    def _enter(self, size: _Key, future: FrameFuture, arrays: Sequence[np.ndarray], *, by_reference: bool) -> None:
        frame = self._engine.intake.submit_unbuilt(future)
        self._waiting.setdefault(size, deque()).append(PendingFrame(frame, arrays, by_reference))
        if not self._busy:
            # Under the lock, like the last look in `_next`: either the thread sees the frame, or a new thread is
            # started.
            self._busy = True
            # Not a daemon: the interpreter must not end while the compiler runs.
            threading.Thread(target=self._serve, name="builds for new sizes").start()

    def after_fork(self) -> None:
        """Forget waiting frames in a forked process; the engine failed them."""
        self._change = SafeCondition(self._engine.ledger.lock)
        self._engine.queue.on_unbuilt_change = self._change.notify_all
        # The thread that made builds is the parent's.
        self._waiting, self._busy = {}, False

    def _drop_oldest(self) -> None:
        limit = self._engine.deployment.capacity
        # As many wait here as may be in flight: they keep their inputs in memory as those do.
        for frame in self._engine.queue.unbuilt_frames[:-limit]:
            self._engine.intake.withdraw(frame, FrameDropped(frame.number, "full"))

    def _serve(self) -> None:
        while (size := self._next()) is not None:
            self._open(size)

    def _open(self, size: _Key) -> None:
        try:
            self._bring(dict(size))
        except BaseException as error:  # noqa: BLE001 - it is the end of all frames of this size
            self._fail(size, error)
        else:
            for pending_frame in self._take(size):
                self._let_in(pending_frame)

    def _next(self) -> _Key | None:
        """Return the next awaited size."""
        with self._change:
            unbuilt_frames = set(self._engine.queue.unbuilt_frames)
            for size, pending_frames in list(self._waiting.items()):
                if any(pending_frame.frame in unbuilt_frames for pending_frame in pending_frames):
                    return size
                # All of its frames have been withdrawn: no compiler has to run for them.
                del self._waiting[size]
            self._busy = False
            return None

    def _bring(self, size: Size) -> None:
        if self._is_there(size):  # it came while the frame was on its way here
            return
        # Without any lock, since the compiler takes seconds: frames of other sizes, swaps and closes go on meanwhile.
        fresh_build = None if self._build is None else self._build(size)
        with self._engine.changing:
            # Looked at again: a swap may have come while the compiler ran.
            if fresh_build is None or self._build is None:
                raise InputError(
                    f"{describe_size(size)}: the pipeline runs another bundle by now, which has no build for that"
                )
            deployment = self._engine.deployment
            self._engine.swap(self._engine.open((*deployment.builds, fresh_build), deployment.shapes), for_unbuilt=True)

    def _is_there(self, size: Size) -> bool:
        deployment = self._engine.deployment
        return deployment.shapes is not None and any(
            deployment.shapes.at(size) == build.inputs for build in deployment.builds
        )

    def _fail(self, size: _Key, error: BaseException) -> None:
        with self._change:
            # Before the frames end: one that comes in between must be refused, or it would wait for a build that nobody
            # makes.
            self._failures[size] = error
        if not isinstance(error, PipelineError):
            cause = error
            error = BuildError(f"no build for {describe_size(dict(size))} could be made: {describe_error(cause)}")
            error.__cause__ = cause
        for pending_frame in self._take(size):
            self._engine.intake.withdraw(pending_frame.frame, error)

    def _take(self, size: _Key) -> deque[PendingFrame]:
        with self._change:
            return self._waiting.pop(size, deque())

    def _let_in(self, pending_frame: PendingFrame) -> None:
        try:
            deployment = self._engine.deployment
            arrays_by_name = zip((spec.name for spec in deployment.plan.inputs), pending_frame.arrays, strict=True)
            self._engine.intake.admit(
                pending_frame.frame,
                # Checked again: the stages may have been replaced since the frame was submitted.
                deployment.check.accept(dict(arrays_by_name)),
                by_reference=pending_frame.by_reference,
            )
        except BaseException as error:  # noqa: BLE001 - it is the frame's end
            self._engine.intake.withdraw(pending_frame.frame, error)
