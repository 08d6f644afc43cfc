"""Calls for asyncio: nothing here waits in the event loop's thread, and no thread is needed beside the workers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from pipeline.errors import FrameDropped
from pipeline.scheduler.copies import kept_apart
from pipeline.scheduler.entrance import Ticket
from pipeline.scheduler.frame import FrameFuture
from pipeline.scheduler.open_inputs import UnknownSize

if TYPE_CHECKING:
    from pipeline.scheduler.engine import Engine
    from pipeline.scheduler.inputs import InputCheck
    from pipeline.scheduler.newcomers import Newcomers


class AsyncTicket(Ticket):
    """What a task holds that waits for its frame to start.

    Attributes
    ----------
    settled : asyncio.Future
        Ends when the frame has started, or never will.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self.settled: asyncio.Future[None] = loop.create_future()

    def settle(self, error: BaseException | None = None) -> None:
        """Tell the event loop; called in any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            self._loop.call_soon_threadsafe(self._settle, error)

    def _settle(self, error: BaseException | None) -> None:
        if self.settled.done():
            return
        if error is None:
            self.settled.set_result(None)
        else:
            self.settled.set_exception(error)


class AsyncCalls:
    """Adds the calls to `Pipeline`.  Time limits are asyncio's own: ``asyncio.wait_for``, ``asyncio.timeout``.

    Examples
    --------
    >>> future = await running.submit_async(image)  # doctest: +SKIP
    >>> result = await future  # doctest: +SKIP
    >>> async for result in running.amap(camera):  # doctest: +SKIP
    ...     print(result.argmax())
    """

    _engine: Engine
    _newcomers: Newcomers

    if TYPE_CHECKING:

        @property
        def _check(self) -> InputCheck:
            """What the inputs have to look like."""

    async def submit_async(
        self, inputs: Any, *, copy: bool = True, timestamp: float | None = None, metadata: Any = None
    ) -> asyncio.Future[Any]:
        """Let one frame in as soon as there is a place for it; only the calling task waits for that.

        Parameters
        ----------
        inputs, copy, timestamp, metadata
            As for `Pipeline.submit`.

        Returns
        -------
        asyncio.Future
            To be awaited for the result; cancelling it cancels the frame if no stage has taken it up.

        Raises
        ------
        InputError, PipelineClosed
            As `Pipeline.submit` does.
        """
        future = FrameFuture(time.time() if timestamp is None else timestamp, metadata)
        ticket = AsyncTicket(asyncio.get_running_loop())
        try:
            accepted = kept_apart(self._check.accept(inputs), copy=copy)
        except UnknownSize as unknown:
            waiting = functools.partial(self._newcomers.submit, unknown, future, None, copy=copy)
            return asyncio.wrap_future(await asyncio.to_thread(waiting))
        if self._engine.submit(accepted, future, lambda: ticket, borrowed=not copy) is not None:
            try:
                await ticket.settled
            except asyncio.CancelledError:
                if not self._engine.entrance.leave(ticket):
                    future.cancel()
                raise
        return asyncio.wrap_future(future)

    async def amap(self, frames: AsyncIterable[Any] | Iterable[Any], *, copy: bool = True) -> AsyncGenerator[Any, None]:
        """Yield the result of each frame, in order, as `Pipeline.map` does.

        Parameters
        ----------
        frames : asynchronous iterable or iterable
            Each as for `Pipeline.submit`; taken only as the pipeline has places.
        copy : bool
            As for `Pipeline.submit`.

        Raises
        ------
        StageError
            If a stage failed on the frame whose turn it is.
        """
        waiting: deque[asyncio.Future[Any]] = deque()
        try:
            async for frame in _each(frames):
                waiting.append(await self.submit_async(frame, copy=copy))
                while waiting and (len(waiting) >= self._engine.flow.capacity or waiting[0].done()):
                    async for result in _results(waiting.popleft()):
                        yield result
            while waiting:
                async for result in _results(waiting.popleft()):
                    yield result
        finally:
            for future in waiting:
                # An error that nobody will ask for is not worth asyncio's complaint.
                if not future.cancel() and not future.cancelled():
                    future.exception()


async def _each(frames: AsyncIterable[Any] | Iterable[Any]) -> AsyncIterator[Any]:
    if isinstance(frames, AsyncIterable):
        async for frame in frames:
            yield frame
    else:
        for frame in frames:
            yield frame


async def _results(future: asyncio.Future[Any]) -> AsyncIterator[Any]:
    """Yield the result, or nothing if the frame was dropped."""
    try:
        result = await future
    except FrameDropped:
        return
    yield result
