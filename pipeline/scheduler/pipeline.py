"""Pipeline: submit, map, close; the caller's end of a plan that is running."""

from __future__ import annotations

import concurrent.futures
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pipeline.board import Device
from pipeline.errors import FrameDropped
from pipeline.executor import devices
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.plans import Plan
from pipeline.scheduler import interpreter, snapshot
from pipeline.scheduler.admission import Admission
from pipeline.scheduler.asynchronous import AsyncCalls
from pipeline.scheduler.change import Changes, checked_codes
from pipeline.scheduler.copies import kept_apart
from pipeline.scheduler.engine import Engine
from pipeline.scheduler.entrance import Ticket
from pipeline.scheduler.forgotten import watch
from pipeline.scheduler.frame import FrameFuture
from pipeline.scheduler.inputs import InputCheck
from pipeline.scheduler.lifecycle import LifeCycle
from pipeline.scheduler.newcomers import Builder, Newcomers
from pipeline.scheduler.observation import Observation
from pipeline.scheduler.open_inputs import UnknownSize
from pipeline.scheduler.original import OriginalCalls
from pipeline.scheduler.settings import Settings
from pipeline.scheduler.statistics import Statistics
from pipeline.scheduler.supervision import Supervision
from pipeline.scheduler.trace import Trace
from pipeline.sizes import Build, OpenShapes


class Pipeline(LifeCycle, Changes, AsyncCalls, OriginalCalls, Observation):
    """A plan that is running: frames go in, results come out in order.

    Each stage has one worker thread per replica, each with its own device runtime.  Leaving the ``with`` block finishes
    what is in; leaving it by an exception gives up what is in and returns at once.

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
        open: for the whole process; see `pipeline.scheduler.interpreter`.
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
    ValueError
        If an option is unknown or does not go with the others.

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
        build: Builder | None = None,
    ) -> None:
        super().__init__()
        supervision = Supervision(on_error, {} if stage_timeout is None else stage_timeout, on_timeout)
        supervision.check(stage.name for stage in plan.stages)
        settings = Settings(create, Admission(admission, waiting, deadline), supervision, trace)
        self._interval = interpreter.Interval(switch_interval)
        try:
            self._engine = Engine([Build(plan, checked_codes(plan, codes)), *more], shapes, settings)
        except BaseException:
            self._interval.end()
            raise
        self._newcomers = Newcomers(self._engine, build, self._changing)
        watch(self, self._engine)

    @property
    def plan(self) -> Plan:
        """What new frames follow; `swap` changes it."""
        return self._engine.flow.plan

    @property
    def _check(self) -> InputCheck:
        return self._engine.flow.check

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
            Seconds to wait for a place; None waits as long as it takes, 0 not at all.
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
            are several outputs; it never changes.  Callbacks run in a worker's thread, in the order of the frames.

        Raises
        ------
        InputError
            If a name, dtype, rank or shape differs from the plan's, or there is no build for its size and none can be
            made; such a frame leaves no trace.
        TimeoutError
            If there was no place in time, or the caller is a callback, which must not wait for its own pipeline.
        PipelineClosed
            If the pipeline is closed, or was while waiting.
        """
        future = FrameFuture(time.time() if timestamp is None else timestamp, metadata)
        try:
            accepted = kept_apart(self._check.accept(inputs), copy=copy)
            ticket = self._engine.submit(accepted, future, None if timeout == 0 else Ticket, borrowed=not copy)
        except UnknownSize as unknown:
            return self._newcomers.submit(unknown, future, timeout, copy=copy)
        except TimeoutError:
            raise self._no_place(timeout) from None
        if ticket is not None:
            self._wait(ticket, timeout)
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
        waiting: deque[FrameFuture] = deque()
        try:
            for frame in frames:
                waiting.append(self.submit(frame, timeout=timeout, copy=copy))
                if len(waiting) >= self._engine.flow.capacity:
                    yield from _results(waiting.popleft(), timeout)
                # One more than comes in, so that results do not pile up behind a hiccup of the caller.
                if waiting and waiting[0].done():
                    yield from _results(waiting.popleft(), timeout)
            while waiting:
                yield from _results(waiting.popleft(), timeout)
        finally:
            for future in waiting:
                future.cancel()

    def statistics(self) -> Statistics:
        """Return an immutable snapshot of what the pipeline has done so far."""
        return snapshot.take(self._engine)

    def __repr__(self) -> str:
        stages = ", ".join(f"{stage.name} on {stage.device}" for stage in self.plan.stages)
        return f"<Pipeline {self.plan.model!r}, {'closed' if self.closed else 'running'}: {stages}>"

    def _wait(self, ticket: Ticket, timeout: float | None) -> None:
        inside = self._engine.inside()
        try:
            ticket.wait(0 if inside else timeout)
        except TimeoutError:
            if self._engine.entrance.leave(ticket):
                raise self._no_place(timeout, inside=inside) from None
            ticket.wait()  # it was settled at the last moment
        except KeyboardInterrupt:
            self._engine.entrance.leave(ticket)
            raise

    def _no_place(self, timeout: float | None, *, inside: bool = False) -> TimeoutError:
        why = "a callback must not wait for its own pipeline" if inside else f"none became free within {timeout} s"
        most = f"{self.plan.model!r} takes {self.plan.frames_in_flight} frames at once"
        return TimeoutError(f"no place for the frame: {why}; the pipeline {most}")


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
