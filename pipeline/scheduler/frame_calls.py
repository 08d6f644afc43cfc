"""FrameCalls: a pipeline's calls for submitting frames and receiving results."""

from __future__ import annotations

import concurrent.futures
import functools
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pipeline.core import arguments
from pipeline.errors import FrameDropped
from pipeline.scheduler.copies import copy_inputs
from pipeline.scheduler.engine import Engine
from pipeline.scheduler.frame import FrameFuture
from pipeline.scheduler.intake import Observer
from pipeline.scheduler.open_inputs import UnknownSize
from pipeline.scheduler.pending_builds import PendingBuilds

if TYPE_CHECKING:
    import asyncio

    from pipeline.scheduler.async_calls import AsyncCalls


class FrameCalls:
    """Calls for frames, on parts set by `Pipeline`."""

    _engine: Engine
    _pending_builds: PendingBuilds

    def submit(  # noqa: PLR0913 - all but the first by keyword
        self,
        inputs: Any,
        *,
        timeout: float | None = None,
        copy: bool = True,
        timestamp: float | None = None,
        metadata: Any = None,
        stream: str = "",
    ) -> FrameFuture:
        """Submit a frame when there is room; dropping policies return at once.

        Parameters
        ----------
        inputs : mapping of str to array, or array
            The inputs by name; an array alone if there is only one.
        timeout : float, optional
            Seconds to wait for a place; None and infinity wait as long as it takes, 0 not at all.
        copy : bool
            Copy the arrays, so that the caller may reuse them at once.  With False they pass by reference: the caller
            promises not to change them until the result is there.
        timestamp : float, optional
            Time of capture, in seconds of `time.time`, which is the default.
        metadata : object, optional
            Travels with the frame: the future has it as its ``metadata``.
        stream : str
            Stream of the frame.  Where the model keeps state, a frame goes on from the stream's frame before; see
            `reset`.  Of frames of 1024 streams the state is kept.

        Returns
        -------
        FrameFuture
            A `concurrent.futures.Future`.  Its result is the output array, or a dictionary of arrays by name if there
            are several outputs; `FrameFuture.outputs` always is that dictionary.  It never changes.  Callbacks run in
            a worker's thread, in the order of the frames.

        Raises
        ------
        ArgumentError
            If `timeout` or `timestamp` is no number of seconds; here as everywhere.
        InputError
            If a name, dtype, rank or shape differs from the plan's, or there is no build for its size and none can be
            made; such a frame leaves no trace.
        TimeoutError
            If there was no place in time, or the caller is a callback, which must not wait for its own pipeline.
        PipelineClosed
            If the pipeline is closed, or was while waiting.
        """
        timeout = arguments.time_limit("timeout", timeout)
        future = self._make_future(timestamp, metadata, stream)
        try:
            # Checked and copied before any lock is taken: this is the caller's own time, and frames in flight go on.
            frame_inputs = copy_inputs(self._engine.deployment.check.accept(inputs), copy=copy)
            self._engine.intake.submit_in_time(frame_inputs, future, timeout, by_reference=not copy)
        except UnknownSize as unknown:
            return self._pending_builds.submit(unknown, future, timeout, copy=copy)
        return future

    def map(
        self, frames: Iterable[Any], *, timeout: float | None = None, copy: bool = True
    ) -> Generator[Any, None, None]:
        """Yield frame results in order, omitting dropped frames.

        Frames are taken from the iterable only as the pipeline has places, so it may be endless.  Closing the
        generator, or the first error, cancels what it has submitted and no stage has taken up.

        Parameters
        ----------
        frames : iterable
            Frames, each as for `submit`.
        timeout : float, optional
            Seconds to wait for each place and each result.
        copy : bool
            True copies the inputs, as for `submit`.

        Raises
        ------
        TimeoutError
            If a result is not there in time.
        StageError
            If a stage failed on the frame whose turn it is.
        """
        # Not a generator itself, so that a wrong argument is refused here and not at the first result.
        return self._map(frames, arguments.time_limit("timeout", timeout), copy=copy)

    async def submit_async(
        self,
        inputs: Any,
        *,
        copy: bool = True,
        timestamp: float | None = None,
        metadata: Any = None,
        stream: str = "",
    ) -> asyncio.Future[Any]:
        """Submit a frame when there is room, suspending only the calling task.

        Arguments and errors are those of `submit`; time limits are asyncio's own, such as ``asyncio.timeout``.

        Returns
        -------
        asyncio.Future
            Future to be awaited for the result; cancelling it cancels the frame if no stage has taken it up.
        """
        return await self._async_calls.submit(inputs, self._make_future(timestamp, metadata, stream), copy=copy)

    def amap(self, frames: AsyncIterable[Any] | Iterable[Any], *, copy: bool = True) -> AsyncGenerator[Any, None]:
        """Yield frame results in order to ``async for``, like `map`.

        Parameters
        ----------
        frames : asynchronous iterable or iterable
            Frames, each as for `submit`; taken only as the pipeline has places.
        copy : bool
            True copies the inputs, as for `submit`.
        """
        return self._async_calls.map(frames, self._make_future, copy=copy)

    def reset(self, stream: str | None = "") -> None:
        """Let a stream begin anew with its next frame, and forget it meanwhile.

        A stream also begins anew after a gap: a frame that was dropped, cancelled or failed before its state was
        computed; after `swap`, `set_params`, and the restart of a stage's device; and when 1024 other streams have had
        frames since.  Frames that are in already finish with the state that they found.

        Parameters
        ----------
        stream : str or None
            Name as for `submit`; None for all streams.
        """
        self._engine.ledger.forget_stream(stream)

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Show incoming frames to `observer`; return the function to end it.

        Parameters
        ----------
        observer : callable
            Function of the inputs in the plan's order and the frame's future, called in the thread that submits.  It
            has to be quick, must not raise, and may read the arrays only until it returns.
        """
        return self._engine.intake.observe(observer)

    @functools.cached_property
    def _async_calls(self) -> AsyncCalls:
        # Late: asyncio, with what it knows of networks, takes a tenth of the time from the start to a first result.
        from pipeline.scheduler.async_calls import AsyncCalls

        return AsyncCalls(self._engine, self._pending_builds)

    def _map(self, frames: Iterable[Any], timeout: float | None, *, copy: bool) -> Generator[Any, None, None]:
        pending_results: deque[FrameFuture] = deque()
        try:
            for frame in frames:
                pending_results.append(self.submit(frame, timeout=timeout, copy=copy))
                # Full: the next submit would wait for the oldest frame anyway, and its result can be given away first.
                if len(pending_results) >= self._engine.deployment.capacity:
                    yield from _results(pending_results.popleft(), timeout)
                # One more than comes in, so that results do not pile up behind a hiccup of the caller.
                if pending_results and pending_results[0].done():
                    yield from _results(pending_results.popleft(), timeout)
            while pending_results:
                yield from _results(pending_results.popleft(), timeout)
        finally:
            for future in pending_results:
                future.cancel()

    def _make_future(self, timestamp: float | None = None, metadata: Any = None, stream: str = "") -> FrameFuture:
        capture_time = time.time() if timestamp is None else arguments.moment("timestamp", timestamp)
        return self._engine.intake.make_future(capture_time, metadata, stream)


def _results(future: FrameFuture, timeout: float | None) -> Iterator[Any]:
    """Yield the result, unless the frame was dropped."""
    try:
        result = future.result(timeout)
    except FrameDropped:
        return
    except concurrent.futures.TimeoutError:
        future.cancel()
        raise TimeoutError(f"frame {future.sequence} was not finished within {timeout} s") from None
    yield result
