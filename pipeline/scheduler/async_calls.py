"""Calls for asyncio, without blocking the event loop or extra threads."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any

from pipeline.errors import FrameDropped
from pipeline.scheduler.admission_queue import Ticket
from pipeline.scheduler.copies import copy_inputs
from pipeline.scheduler.engine import Engine
from pipeline.scheduler.frame import FrameFuture
from pipeline.scheduler.open_inputs import UnknownSize
from pipeline.scheduler.pending_builds import PendingBuilds


class AsyncTicket(Ticket):
    """Wait of a task for its frame to start.

    `settlement` ends when the frame has started, or never will.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self.settlement: asyncio.Future[None] = loop.create_future()

    def settle(self, error: BaseException | None = None) -> None:
        """Tell the event loop; called in any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            # The only call of asyncio that other threads may make; it waits for nothing, and so is fit for the ledger's
            # lock.
            self._loop.call_soon_threadsafe(self._settle, error)

    def _settle(self, error: BaseException | None) -> None:
        if self.settlement.done():
            return
        if error is None:
            self.settlement.set_result(None)
        else:
            self.settlement.set_exception(error)


class AsyncCalls:
    """The calls behind `Pipeline.submit_async` and `Pipeline.amap`."""

    def __init__(self, engine: Engine, pending_builds: PendingBuilds) -> None:
        self._engine, self._pending_builds = engine, pending_builds

    async def submit(self, inputs: Any, future: FrameFuture, *, copy: bool) -> asyncio.Future[Any]:
        """Submit a frame when there is room; return an awaitable."""
        engine, ticket = self._engine, AsyncTicket(asyncio.get_running_loop())
        try:
            frame_inputs = copy_inputs(engine.deployment.check.accept(inputs), copy=copy)
        except UnknownSize as unknown:
            # It may wait for room among the frames that wait for builds, on a condition of threads: not in the loop's
            # thread.
            submission = functools.partial(self._pending_builds.submit, unknown, future, None, copy=copy)
            return _wrap(await asyncio.to_thread(submission))
        if engine.intake.submit(frame_inputs, future, lambda: ticket, by_reference=not copy) is not None:
            try:
                await ticket.settlement
            except asyncio.CancelledError:
                # The frame may have started between the cancellation and its delivery to this task.
                if not engine.queue.leave(ticket):
                    future.cancel()
                raise
        return _wrap(future)

    async def map(
        self, frames: AsyncIterable[Any] | Iterable[Any], make_future: Callable[[], FrameFuture], *, copy: bool
    ) -> AsyncGenerator[Any, None]:
        """Yield the result of each frame, in order."""
        pending_results: deque[asyncio.Future[Any]] = deque()
        try:
            # Not more results than frames in flight: a slow consumer holds up the source, and memory stays flat.
            async for frame in _iterate(frames):
                pending_results.append(await self.submit(frame, make_future(), copy=copy))
                while pending_results and (
                    len(pending_results) >= self._engine.deployment.capacity or pending_results[0].done()
                ):
                    async for result in _results(pending_results.popleft()):
                        yield result
            while pending_results:
                async for result in _results(pending_results.popleft()):
                    yield result
        finally:
            for future in pending_results:
                # An error that nobody will ask for is not worth asyncio's complaint.
                if not future.cancel() and not future.cancelled():
                    future.exception()


def _wrap(future: FrameFuture) -> asyncio.Future[Any]:
    awaitable = asyncio.wrap_future(future)

    def accept_drop(_: object) -> None:
        # A drop is what the policy is there for: asyncio shall not complain if nobody asks for it.
        if not awaitable.cancelled() and isinstance(future.exception(0), FrameDropped):
            awaitable.exception()

    awaitable.add_done_callback(accept_drop)
    return awaitable


async def _iterate(frames: AsyncIterable[Any] | Iterable[Any]) -> AsyncIterator[Any]:
    if isinstance(frames, AsyncIterable):
        async for frame in frames:
            yield frame
    else:
        for frame in frames:
            yield frame


async def _results(future: asyncio.Future[Any]) -> AsyncIterator[Any]:
    """Yield the result, unless the frame was dropped."""
    try:
        result = await future
    except FrameDropped:
        return
    yield result
