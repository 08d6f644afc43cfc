"""Pipeline: the caller's end of a plan that is running; all of its calls are here."""

from __future__ import annotations

import concurrent.futures
import functools
import math
import time
import warnings
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core import arguments, forks
from pipeline.core.board import Device
from pipeline.core.plan import Plan
from pipeline.core.shapes import Build, OpenShapes
from pipeline.errors import FrameDropped
from pipeline.executor import devices
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.scheduler.admission import Admission
from pipeline.scheduler.change import Changes, RunnableBundle, check_codes
from pipeline.scheduler.copies import copy_inputs
from pipeline.scheduler.engine import Engine
from pipeline.scheduler.frame import FrameFuture
from pipeline.scheduler.intake import Observer
from pipeline.scheduler.open_inputs import UnknownSize
from pipeline.scheduler.options import PipelineOptions, Supervision
from pipeline.scheduler.original_calls import OriginalCalls
from pipeline.scheduler.pending_builds import PendingBuilds, SizeBuilder
from pipeline.scheduler.statistics import Statistics
from pipeline.scheduler.switch_interval import SwitchInterval
from pipeline.scheduler.trace import Trace
from pipeline.scheduler.unclosed import unwatch, watch

if TYPE_CHECKING:
    import asyncio

    from typing_extensions import Self

    from pipeline.scheduler.async_calls import AsyncCalls

GRACE_S = 0.5
"""Seconds that an abrupt end waits for devices that are in the middle of something."""


class Pipeline:
    """A plan that is running: frames go in, results come out in order.

    Each stage has one worker thread per replica, each with its own device runtime.  Those of CPU stages rest when it is
    closed, without taking time of any core, and the next pipeline on the same cores uses them again.  Leaving the
    ``with`` block finishes what is in; leaving it by an exception gives up what is in and returns at once.

    Every frame that was submitted ends as exactly one of delivered, failed (`StageError`, `PipelineClosed`), cancelled
    and dropped (`FrameDropped`, with its reason).

    Parameters
    ----------
    plan : Plan
        The stages, their devices and what travels between them.
    codes : sequence, optional
        What each stage's device loads, in the plan's order; None if no stage has code.
    create : callable, optional
        Makes the runtime of a device.
    trace : Trace, optional
        Where to note which stage worked on which frame when.
    admission : str
        What happens to a frame that finds no room: ``"block"``, ``"latest"``, ``"drop-oldest"`` or ``"deadline"``;
        see `Admission`.
    waiting : int
        How many frames may wait at the entrance, where the policy drops frames; 0 for its default.
    deadline : float
        Seconds after a frame's timestamp when its result is of no use any more, for ``"deadline"``.
    on_error : str
        ``"skip"``: a failed frame ends alone.  ``"stop"``: the first one ends the pipeline; see `Supervision`.
    stage_timeout : float or mapping of str to float, optional
        Seconds that a stage may run on one frame, for all stages or by name.
    on_timeout : str
        ``"fail-frame"`` and restart the stage's device, or ``"fail-pipeline"``.
    switch_interval : float, optional
        Seconds after which a thread that is busy in Python hands over the interpreter, as long as the pipeline is
        open: for the whole process; see `pipeline.scheduler.switch_interval`.
    shapes : OpenShapes, optional
        What varies in the shapes of the inputs.
    more : sequence of Build
        The stages for frames of other sizes than the plan's.
    build : callable, optional
        Makes such a build for a size that has none, when the first frame of it comes.

    Raises
    ------
    PlanError
        If the number of codes is not that of the stages.
    PipelineError
        If a device cannot be opened or a stage not loaded; no thread is left then.
    ArgumentError
        If an option is unknown, not in its range, or does not go with the others.

    Examples
    --------
    >>> with Pipeline(plan, codes) as running:  # doctest: +SKIP
    ...     for result in running.map(images):
    ...         print(result.argmax())
    """

    def __init__(  # noqa: PLR0913 - all but the first two by keyword
        self,
        plan: Plan,
        codes: Sequence[Any] | None = None,
        *,
        create: Callable[[Device], DeviceRuntime] = devices.create,
        trace: Trace | None = None,
        admission: str = "block",
        waiting: int = 0,
        deadline: float = math.inf,
        on_error: str = "skip",
        stage_timeout: float | Mapping[str, float] | None = None,
        on_timeout: str = "fail-frame",
        switch_interval: float | None = None,
        shapes: OpenShapes | None = None,
        more: Sequence[Build] = (),
        build: SizeBuilder | None = None,
    ) -> None:
        supervision = Supervision(on_error, {} if stage_timeout is None else stage_timeout, on_timeout)
        supervision.check(stage.name for stage in plan.stages)
        options = PipelineOptions(create, Admission(admission, waiting, deadline), supervision, trace)
        # Before the engine, whose threads it is for; taken back if they do not start.
        self._switch_interval = SwitchInterval(switch_interval)
        try:
            self._engine = Engine([Build(plan, check_codes(plan, codes)), *more], shapes, options)
        except BaseException:
            self._switch_interval.end()
            raise
        self._pending_builds = PendingBuilds(self._engine, build)
        self._changes = Changes(self._engine, self._pending_builds)
        self._original_calls = OriginalCalls()
        # Last of all: there is nothing to end before the threads run.
        watch(self, self._engine)
        forks.watch(self)

    @property
    def plan(self) -> Plan:
        """Plan that new frames follow; `swap` changes it."""
        return self._engine.deployment.plan

    @property
    def closed(self) -> bool:
        """True if no more frames are accepted."""
        return self._engine.closing

    @property
    def error(self) -> BaseException | None:
        """Error that has ended the pipeline before it was closed, None if nothing has."""
        return self._engine.error

    @property
    def trace(self) -> Trace | None:
        """Trace in which events are noted, None if they are not."""
        return self._engine.options.trace

    def submit(
        self,
        inputs: Any,
        *,
        timeout: float | None = None,
        copy: bool = True,
        timestamp: float | None = None,
        metadata: Any = None,
    ) -> FrameFuture:
        """Let one frame in, as soon as there is a place for it; with a policy that drops frames, return at once.

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
            When the frame was captured, in seconds of `time.time`, which is the default.
        metadata : object, optional
            Travels with the frame: the future has it as its ``metadata``.

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
        future = self._make_future(timestamp, metadata)
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
        """Yield the result of each frame, in order; dropped frames are left out.

        Frames are taken from the iterable only as the pipeline has places, so it may be endless.  Closing the
        generator, or the first error, cancels what it has submitted and no stage has taken up.

        Parameters
        ----------
        frames : iterable
            Each as for `submit`.
        timeout : float, optional
            Seconds to wait for each place and each result.
        copy : bool
            As for `submit`.

        Raises
        ------
        TimeoutError
            If a result is not there in time.
        StageError
            If a stage failed on the frame whose turn it is.
        """
        # Not a generator itself, so that a wrong argument is refused here and not at the first result.
        return self._map(frames, arguments.time_limit("timeout", timeout), copy=copy)

    @functools.cached_property
    def _async_calls(self) -> AsyncCalls:
        # Late: asyncio, with what it knows of networks, takes a tenth of the time from the start to a first result.
        from pipeline.scheduler.async_calls import AsyncCalls

        return AsyncCalls(self._engine, self._pending_builds)

    async def submit_async(
        self, inputs: Any, *, copy: bool = True, timestamp: float | None = None, metadata: Any = None
    ) -> asyncio.Future[Any]:
        """Let one frame in as soon as there is a place for it; only the calling task waits for that.

        Arguments and errors are those of `submit`; time limits are asyncio's own, such as ``asyncio.timeout``.

        Returns
        -------
        asyncio.Future
            To be awaited for the result; cancelling it cancels the frame if no stage has taken it up.
        """
        return await self._async_calls.submit(inputs, self._make_future(timestamp, metadata), copy=copy)

    def amap(self, frames: AsyncIterable[Any] | Iterable[Any], *, copy: bool = True) -> AsyncGenerator[Any, None]:
        """Yield the result of each frame, in order, as `map` does, to ``async for``.

        Parameters
        ----------
        frames : asynchronous iterable or iterable
            Each as for `submit`; taken only as the pipeline has places.
        copy : bool
            As for `submit`.
        """
        return self._async_calls.map(frames, self._make_future, copy=copy)

    def set_input(self, name: str, value: Any) -> None:
        """Set one input of the next `run` to a copy of `value`; it stays set for later runs until it is set again.

        Raises
        ------
        InputError
            If there is no such input, or its dtype or shape differs; nothing is set then.
        """
        self._original_calls.set_input(self._engine.deployment.check, name, value)

    def run(self, *, timeout: float | None = None) -> None:
        """Let a frame of the inputs that are set enter the pipeline, as `submit` does.

        Raises
        ------
        InputError
            If an input has never been set.
        """
        inputs = self._original_calls.inputs([spec.name for spec in self.plan.inputs])
        # The values are snapshots already, but results must not share memory with the next run's inputs.
        self._original_calls.add(self.submit(inputs, timeout=timeout, copy=False))

    def get_output(self, *, timeout: float | None = None) -> list[np.ndarray]:
        """Wait for the oldest frame that `run` let in and return its outputs in the plan's order.

        Raises
        ------
        TimeoutError
            If it is not there within `timeout` seconds; the next call waits for the same frame.
        StageError
            If a stage failed on it; the next call waits for the next frame.
        PipelineClosed
            If the pipeline is closed and all outputs have been read.
        """
        return self._original_calls.outputs(arguments.time_limit("timeout", timeout))

    def stop(self) -> None:
        """Finish what is in and close the pipeline."""
        self.close()

    def set_params(self, group: str, values: Mapping[str, Any]) -> None:
        """Give a stage other parameters, for all frames submitted after the call; it does not wait for frames.

        Parameters
        ----------
        group : str
            Name of the stage.
        values : mapping of str to array
            New values by the parameters' names; the others stay.  They are copied.

        Raises
        ------
        InputError
            If there is no such stage or parameter, or a dtype or shape differs; nothing is changed then.
        PipelineClosed
            If the pipeline is closed.
        """
        self._changes.set_params(group, values)

    def swap(self, bundle: RunnableBundle) -> None:
        """Run another bundle, for all frames submitted after the call; it does not wait for frames.

        Parameters
        ----------
        bundle : Bundle
            Its inputs and outputs are those of the bundle that it replaces; its stages may be others.

        Raises
        ------
        PlanError, PipelineError
            If it has other inputs or outputs, or cannot be loaded; nothing is changed then.
        PipelineClosed
            If the pipeline is closed.
        """
        self._changes.swap(bundle)

    def statistics(self) -> Statistics:
        """Return an immutable snapshot of what the pipeline has done so far."""
        return self._engine.statistics()

    def latencies(self) -> list[float]:
        """Return the newest durations from submission to delivery in seconds, in no order; at most 1024."""
        return self._engine.ledger.latency.values()

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Show each frame that comes in from now on to `observer`; return what ends that.

        Parameters
        ----------
        observer : callable
            Given the inputs in the plan's order and the frame's future, in the thread that submits.  It has to be
            quick, must not raise, and may read the arrays only until it returns.
        """
        return self._engine.intake.observe(observer)

    def drain(self, *, timeout: float | None = None) -> None:
        """Wait at most `timeout` seconds until the frames submitted so far have ended; more may come meanwhile.

        Raises
        ------
        TimeoutError
            If they had not ended in time, or the caller is a callback, which must not wait for its own pipeline.
        """
        self._engine.drain(arguments.time_limit("timeout", timeout))

    def flush(self) -> int:
        """Drop the frames that no stage has taken up, with the reason ``"flushed"``, and return how many there were."""
        return self._engine.intake.flush()

    def pause(self) -> None:
        """Start no more frames; those that have started are finished, those submitted wait or are dropped."""
        self._engine.pause()

    def resume(self) -> None:
        """Start frames again."""
        self._engine.resume()

    def close(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Take no more frames and end the workers; may be called again, from any thread and from callbacks.

        Called from a callback it only begins the end, since a worker cannot wait for itself.  Once frames have been
        given up, here or because of an error, devices that are still at them are not waited for.

        Parameters
        ----------
        drain : bool
            Finish the frames that are in, also those that wait.  With False those that no stage has taken up are
            cancelled, and the others fail with `PipelineClosed`.
        timeout : float, optional
            Seconds to wait for frames to finish; those left are given up.
        """
        timeout = arguments.time_limit("timeout", timeout)
        unwatch(self)
        engine = self._engine
        # First of all: nobody comes in while the rest is being ended.
        engine.close()
        self._original_calls.end()
        self._switch_interval.end()
        # The end goes on in the other threads; whoever waits for it calls this again from outside.
        if engine.must_not_wait():
            if not drain:
                engine.abandon(engine.unfinished_error())
            return
        is_complete = False
        try:
            is_complete = drain and engine.join(timeout)
        finally:
            # Also when Ctrl-C ends the wait.
            if not is_complete:
                engine.abandon(engine.unfinished_error())
            self._warn_of_busy_stages()

    def after_fork(self) -> None:
        """Be closed in a process that was forked from the one that it belongs to; called there."""
        unwatch(self)
        self._engine.after_fork()
        self._pending_builds.after_fork()
        self._original_calls.after_fork()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(drain=error_type is None)

    def __repr__(self) -> str:
        stages = ", ".join(f"{stage.name} on {stage.device}" for stage in self.plan.stages)
        return f"<Pipeline {self.plan.model!r}, {'closed' if self.closed else 'running'}: {stages}>"

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

    def _make_future(self, timestamp: float | None = None, metadata: Any = None) -> FrameFuture:
        capture_time = time.time() if timestamp is None else arguments.moment("timestamp", timestamp)
        return self._engine.intake.make_future(capture_time, metadata)

    def _warn_of_busy_stages(self) -> None:
        if busy := self._engine.deployments.busy(GRACE_S):
            names = ", ".join(repr(name) for name in busy)
            warnings.warn(
                f"stages that are still busy in their device: {names}; their threads end when the device returns",
                ResourceWarning,
                stacklevel=3,
            )


def _results(future: FrameFuture, timeout: float | None) -> Iterator[Any]:
    """Yield the result, or nothing if the frame was dropped."""
    try:
        result = future.result(timeout)
    except FrameDropped:
        return
    except concurrent.futures.TimeoutError:
        future.cancel()
        raise TimeoutError(f"frame {future.sequence} was not finished within {timeout} s") from None
    yield result
