"""Newcomers: frames of a size that has no build yet; they wait outside while it is made, and others pass."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import NamedTuple

import numpy as np

from pipeline.errors import FrameDropped, InputError
from pipeline.scheduler.copies import snapshot
from pipeline.scheduler.engine import Engine
from pipeline.scheduler.entrance import Ticket
from pipeline.scheduler.frame import FrameFuture
from pipeline.scheduler.open_inputs import UnknownSize
from pipeline.sizes import Build, Size, told

Builder = Callable[[Size], Build]
"""Makes the build for a size."""

_Key = tuple[tuple[str, int], ...]


class Newcomer(NamedTuple):
    """A frame that waits.

    Attributes
    ----------
    arrays : sequence of ndarray
        Its inputs, in the plan's order.
    future : FrameFuture
        What the caller holds.
    borrowed : bool
        Whether the arrays still belong to the caller.
    """

    arrays: Sequence[np.ndarray]
    future: FrameFuture
    borrowed: bool


class Newcomers:
    """Has builds made in a thread of its own, one after the other, and lets the frames in that wait for them.

    A frame is submitted, and counted, once its build is there.

    Parameters
    ----------
    engine : Engine
    build : callable, optional
        Makes the build for a size; without it frames of other sizes are refused.
    changing : lock
        Held by whoever brings another flow.
    """

    def __init__(self, engine: Engine, build: Builder | None, changing: threading.Lock) -> None:
        self._engine, self._build, self._changing = engine, build, changing
        self._changed = threading.Condition()
        self._waiting: dict[_Key, deque[Newcomer]] = {}
        self._failed: dict[_Key, BaseException] = {}
        self._busy = False

    def submit(self, unknown: UnknownSize, future: FrameFuture, timeout: float | None, *, copy: bool) -> FrameFuture:
        """Let a frame wait for its build, and return its future.

        Raises
        ------
        UnknownSize
            If no build can be made; its cause is why the last attempt failed.
        TimeoutError
            If too many frames are waiting already, and nothing changes within `timeout` seconds.
        PipelineClosed
            If the pipeline is closed.
        """
        size = tuple(unknown.size.items())
        with self._changed:
            if self._build is None or size in self._failed:
                raise unknown from self._failed.get(size)
            self._make_room(timeout)
            if self._engine.closing:
                raise self._engine.closed()
            arrays = [snapshot(array) for array in unknown.arrays] if copy else unknown.arrays
            self._waiting.setdefault(size, deque()).append(Newcomer(arrays, future, not copy))
            if not self._busy:
                self._busy = True
                # Not a daemon: the interpreter must not end while the compiler runs.
                threading.Thread(target=self._serve, name="builds for new sizes").start()
        return future

    def forget(self) -> None:
        """Make no more builds: the stages that run are no longer those that builds are made from."""
        with self._changed:
            self._build = None

    def wait(self, timeout: float | None) -> float | None:
        """Wait at most so long until no frame waits for a build, and return the rest of the time."""
        if not self._busy or self._engine.inside():
            return timeout
        deadline = None if timeout is None else monotonic() + timeout
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, timeout)
        return None if deadline is None else max(0.0, deadline - monotonic())

    def cancel(self) -> None:
        """Cancel the frames that wait."""
        with self._changed:
            left = [each.future for waiting in self._waiting.values() for each in waiting]
            self._waiting.clear()
            self._changed.notify_all()
        for future in left:
            _cancel(future)

    def _make_room(self, timeout: float | None) -> None:
        most = self._engine.flow.capacity
        if self._engine.entrance.admission.drops:
            while self._count() >= most:
                self._drop(next(waiting for waiting in self._waiting.values() if waiting))
        elif not self._changed.wait_for(lambda: self._count() < most or self._engine.closing, timeout):
            raise TimeoutError

    def _count(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _drop(self, waiting: deque[Newcomer]) -> None:
        _end(waiting.popleft().future, FrameDropped(-1, "full"))

    def _serve(self) -> None:
        while (size := self._next()) is not None:
            self._open(size)

    def _open(self, size: _Key) -> None:
        try:
            self._bring(dict(size))
        except BaseException as error:  # noqa: BLE001 - it is the end of all frames of this size
            self._fail(size, error)
            return
        while (each := self._first(size)) is not None:
            self._let_in(each)

    def _next(self) -> _Key | None:
        with self._changed:
            size = next(iter(self._waiting), None)
            self._busy = size is not None
            self._changed.notify_all()
            return size

    def _bring(self, size: Size) -> None:
        if self._is_there(size):  # it came while the frame was on its way here
            return
        made = None if self._build is None else self._build(size)
        with self._changing:
            if made is None or self._build is None:
                raise InputError(f"{told(size)}: the pipeline runs another bundle by now, which has no build for that")
            flow = self._engine.flow
            self._engine.swap(self._engine.open((*flow.builds, made), flow.shapes))

    def _is_there(self, size: Size) -> bool:
        flow = self._engine.flow
        return flow.shapes is not None and any(flow.shapes.at(size) == build.inputs for build in flow.builds)

    def _fail(self, size: _Key, error: BaseException) -> None:
        with self._changed:
            self._failed[size] = error
            waiting = self._waiting.pop(size, deque())
        for each in waiting:
            _end(each.future, error)

    def _first(self, size: _Key) -> Newcomer | None:
        with self._changed:
            waiting = self._waiting.get(size)
            if not waiting:
                # From now on the check accepts this size.
                self._waiting.pop(size, None)
                return None
            self._changed.notify_all()
            return waiting.popleft()

    def _let_in(self, newcomer: Newcomer) -> None:
        if not newcomer.future.cancelled():
            try:
                self._submit(newcomer)
            except BaseException as error:  # noqa: BLE001 - it is the frame's end
                _end(newcomer.future, error)
        else:
            newcomer.future.set_running_or_notify_cancel()

    def _submit(self, newcomer: Newcomer) -> None:
        flow = self._engine.flow
        named = zip((spec.name for spec in flow.plan.inputs), newcomer.arrays, strict=True)
        accepted = flow.check.accept(dict(named))
        ticket = self._engine.submit(accepted, newcomer.future, Ticket, borrowed=newcomer.borrowed)
        if ticket is not None:
            ticket.wait()


def _end(future: FrameFuture, error: BaseException) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)


def _cancel(future: FrameFuture) -> None:
    if future.cancel():
        future.set_running_or_notify_cancel()
