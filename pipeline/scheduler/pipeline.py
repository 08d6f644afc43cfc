"""Pipeline: submit, map, close; the caller's end of a plan that is running."""

from __future__ import annotations

import concurrent.futures
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from types import TracebackType
from typing import Any

from pipeline.board import Device
from pipeline.errors import PlanError
from pipeline.executor import devices
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.plans import Plan
from pipeline.scheduler.admission import InputCheck
from pipeline.scheduler.copies import snapshot
from pipeline.scheduler.flow import GRACE, Flow, closed_before
from pipeline.scheduler.forgotten import unwatch, watch
from pipeline.scheduler.frame import FrameFuture
from pipeline.scheduler.original import OriginalCalls
from pipeline.scheduler.statistics import Statistics
from pipeline.scheduler.trace import Trace


class Pipeline(OriginalCalls):
    """A plan that is running: frames go in, results come out in order.

    Each stage has one worker thread with its own device runtime.  Leaving the ``with`` block finishes what is in;
    leaving it by an exception gives up what is in and returns at once.

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

    Raises
    ------
    PlanError
        If the number of codes is not that of the stages.
    PipelineError
        If a device cannot be opened or a stage not loaded; no thread is left then.

    Examples
    --------
    >>> with Pipeline(plan, codes) as running:  # doctest: +SKIP
    ...     for result in running.map(images):
    ...         print(result.argmax())
    """

    def __init__(
        self,
        plan: Plan,
        codes: Sequence[Any] | None = None,
        *,
        create: Callable[[Device], DeviceRuntime] = devices.create,
        trace: Trace | None = None,
    ) -> None:
        super().__init__()
        if codes is not None and len(codes) != len(plan.stages):
            raise PlanError(f"{len(codes)} codes were given for {len(plan.stages)} stages; give one for each")
        self.plan = plan
        self._check = InputCheck(plan.inputs)
        self._flow = Flow(plan, [None] * len(plan.stages) if codes is None else codes, create, trace)
        watch(self, self._flow)

    def submit(
        self,
        inputs: Any,
        *,
        timeout: float | None = None,
        copy: bool = True,
        timestamp: float | None = None,
        metadata: Any = None,
    ) -> FrameFuture:
        """Let one frame in, as soon as there is a place for it.

        Parameters
        ----------
        inputs : mapping of str to array, or array
            The inputs by name; an array alone if there is only one.
        timeout : float, optional
            Seconds to wait for a place; None waits as long as it takes, 0 not at all.
        copy : bool
            Copy the arrays, so that the caller may reuse them at once.  With False they pass by reference: the caller
            promises not to change them until the result is there.
        timestamp : float, optional
            When the frame was captured, in seconds of the caller's clock; default `time.time`.
        metadata : object, optional
            Travels with the frame: the future has it as its ``metadata``.

        Returns
        -------
        FrameFuture
            A `concurrent.futures.Future`.  Its result is the output array, or a dictionary of arrays by name if there
            are several outputs; it never changes.  Callbacks run in a worker's thread, in the order of the frames.

        Raises
        ------
        InputError
            If a name, dtype, rank or shape differs from the plan's; such a frame leaves no trace.
        TimeoutError
            If there was no place in time, or the caller is a callback, which must not wait for its own pipeline.
        PipelineClosed
            If the pipeline is closed, or was while waiting.
        """
        arrays = self._check.arrays(inputs)
        if copy:
            arrays = [snapshot(array) for array in arrays]
        future = FrameFuture(time.time() if timestamp is None else timestamp, metadata)
        frame = self._flow.frame(arrays, future, borrowed=not copy)
        self._flow.enter(frame, timeout)
        return future

    def map(
        self, frames: Iterable[Any], *, timeout: float | None = None, copy: bool = True
    ) -> Generator[Any, None, None]:
        """Yield the result of each frame, in order.

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
        waiting: deque[FrameFuture] = deque()
        try:
            for frame in frames:
                waiting.append(self.submit(frame, timeout=timeout, copy=copy))
                if len(waiting) >= self.plan.frames_in_flight:
                    yield _result(waiting.popleft(), timeout)
                # One more than comes in, so that results do not pile up behind a hiccup of the caller.
                if waiting and waiting[0].done():
                    yield _result(waiting.popleft(), timeout)
            while waiting:
                yield _result(waiting.popleft(), timeout)
        finally:
            for future in waiting:
                future.cancel()

    def statistics(self) -> Statistics:
        """Return an immutable snapshot of what the pipeline has done so far."""
        return self._flow.statistics()

    @property
    def closed(self) -> bool:
        """Whether no more frames are accepted."""
        return self._flow.ledger.closing

    def close(self, *, drain: bool = True, timeout: float | None = None) -> None:
        """Take no more frames and end the workers; may be called again, from any thread, also from callbacks.

        Called from a callback it only begins the end, since a worker cannot wait for itself.

        Parameters
        ----------
        drain : bool
            Finish the frames that are in.  With False those that no stage has taken up are cancelled, and the others
            fail with `PipelineClosed`.
        timeout : float, optional
            Seconds to wait for frames to finish; those left are given up.
        """
        unwatch(self)
        self._flow.close()
        self._end_of_runs()
        if self._flow.inside():
            if not drain:
                self._flow.abandon(closed_before(self.plan.model))
            return
        ended = False
        try:
            ended = drain and self._flow.join(timeout)
        finally:
            # Also when Ctrl-C ends the wait.
            if not ended:
                self._give_up()

    def __enter__(self) -> Pipeline:  # noqa: PYI034 - Self is newer than the oldest Python
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(drain=kind is None)

    def __repr__(self) -> str:
        stages = ", ".join(f"{stage.name} on {stage.device}" for stage in self.plan.stages)
        return f"<Pipeline {self.plan.model!r}, {'closed' if self.closed else 'running'}: {stages}>"

    def _give_up(self) -> None:
        self._flow.abandon(closed_before(self.plan.model))
        if not self._flow.join(GRACE):
            busy = ", ".join(repr(name) for name in self._flow.alive())
            warnings.warn(
                f"stages that are still busy in their device: {busy}; their threads end when the device returns",
                ResourceWarning,
                stacklevel=3,
            )


def _result(future: FrameFuture, timeout: float | None) -> Any:
    try:
        return future.result(timeout)
    except concurrent.futures.TimeoutError:
        future.cancel()
        raise TimeoutError(f"frame {future.sequence} was not finished within {timeout} s") from None
