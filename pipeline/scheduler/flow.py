"""Flow: workers, the channels between them and the ledger, as long as a pipeline runs.

The threads know the flow but not the `Pipeline` in the caller's hands, so that a forgotten one can be noticed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from time import monotonic, perf_counter
from types import MappingProxyType
from typing import Any

import numpy as np

from pipeline.board import Device
from pipeline.errors import PipelineClosed, PipelineError
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.plans import Plan
from pipeline.scheduler.admission import Entrance
from pipeline.scheduler.channel import Channel
from pipeline.scheduler.copies import StageCopies, results
from pipeline.scheduler.frame import Frame, FrameFuture, Result
from pipeline.scheduler.ledger import Ledger
from pipeline.scheduler.statistics import Statistics
from pipeline.scheduler.trace import Trace
from pipeline.scheduler.wiring import wire
from pipeline.scheduler.worker import Arrival, Worker

GRACE = 0.5
"""Seconds that an abrupt end waits for devices that are in the middle of something."""
_END = -1
"""The number under which a frame's last stages are joined."""


class Flow:
    """A plan that is running.

    Parameters
    ----------
    plan : Plan
        What to run.
    codes : sequence
        The built stage for each stage, None for stages without code.
    create : callable
        Makes the runtime of a device.
    trace : Trace or None
        Where to note events.

    Raises
    ------
    PipelineError
        If a device cannot be opened or a stage not loaded; no thread is left then.
    """

    def __init__(
        self, plan: Plan, codes: Sequence[Any], create: Callable[[Device], DeviceRuntime], trace: Trace | None
    ) -> None:
        self.plan = plan
        runtimes = [create(plan.board.device(stage.device)) for stage in plan.stages]
        self._wiring = wire(plan, [runtime.memory for runtime in runtimes])
        self._inboxes = [Channel[Arrival](stage.queue_depth) for stage in plan.stages]
        self._roots = [self._inboxes[number] for number in self._wiring.roots]
        self.entrance = Entrance(plan.frames_in_flight, [inbox.places for inbox in self._roots])
        self.ledger = Ledger(self._start, self._result, self.entrance.room.give, self._shut)
        cores = _shared_cores(plan, runtimes)
        self.workers = [self._worker(number, runtimes[number], cores, trace) for number in range(len(runtimes))]
        self._prepare_frames()
        self._open(codes)

    def frame(self, arrays: Sequence[np.ndarray], future: FrameFuture, *, borrowed: bool) -> Frame:
        """Return a frame that holds the pipeline's inputs."""
        tensors = self._empty.copy()
        for slot, array in zip(self._wiring.inputs, arrays, strict=True):
            if self._wiring.readers[slot]:
                tensors[slot] = array
        return Frame(future, tensors, arrays if borrowed else (), self._waiting, self._readers)

    def enter(self, frame: Frame, timeout: float | None) -> None:
        """Wait for the frame's places and start it; see `Pipeline.submit` for the errors."""
        inside = self.inside()
        try:
            self.entrance.reserve(0.0 if inside else timeout)
        except TimeoutError:
            why = "a callback must not wait for its own pipeline" if inside else f"none became free within {timeout} s"
            most = f"{self.plan.model!r} takes {self.plan.frames_in_flight} frames at once"
            raise TimeoutError(f"no place for the frame: {why}; the pipeline {most}") from None
        try:
            self.ledger.admit(frame)
        except PipelineClosed:
            self.entrance.give_back()
            raise
        except BaseException:
            # Ctrl-C in the middle: some first stages may have got the frame and others not.
            self.abandon(closed_before(self.plan.model))
            raise

    def close(self) -> None:
        """Take no more frames; the workers end once those in flight have."""
        self.entrance.close()
        self.ledger.close()

    def abandon(self, reason: BaseException) -> None:
        """Take no more frames, give up those in flight, and let each worker end after what it is doing."""
        self.entrance.close()
        self._shut()
        self.ledger.abandon(reason)

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the workers' end, at most `timeout` seconds in all, and return whether they have ended."""
        deadline = None if timeout is None else monotonic() + timeout
        return all(
            worker.join(None if deadline is None else max(0.0, deadline - monotonic())) for worker in self.workers
        )

    def alive(self) -> list[str]:
        """Return the names of the stages whose workers have not ended."""
        return [worker.stage.name for worker in self.workers if not worker.join(0)]

    def inside(self) -> bool:
        """Whether the calling thread is one of the workers, which runs callbacks of finished frames."""
        return threading.get_ident() in self._idents

    def statistics(self) -> Statistics:
        """Return a snapshot."""
        ledger = self.ledger
        # In this order, so that no frame has ended which is not yet submitted.
        delivered, failed, cancelled = ledger.delivered, ledger.failed, ledger.cancelled
        in_flight = ledger.submitted - delivered - failed - cancelled
        submitted = delivered + failed + cancelled + in_flight
        elapsed = ((perf_counter() if in_flight else ledger.last) - ledger.first) if submitted else 0.0
        return Statistics(
            submitted=submitted,
            delivered=delivered,
            failed=failed,
            cancelled=cancelled,
            dropped=MappingProxyType({}),
            in_flight=in_flight,
            elapsed_s=elapsed,
            frames_per_s=delivered / elapsed if elapsed else 0.0,
            latency_s=ledger.latency.percentiles(),
            stages=tuple(worker.statistics(elapsed) for worker in self.workers),
        )

    def _worker(
        self, number: int, runtime: DeviceRuntime, cores: dict[int, threading.Lock], trace: Trace | None
    ) -> Worker:
        stage, wiring = self.plan.stages[number], self._wiring.stages[number]
        mine = sorted(set(stage.cores) & cores.keys()) if runtime.occupies_cores else []
        return Worker(
            stage,
            runtime,
            self._inboxes[number],
            StageCopies(runtime, wiring, self._wiring.readers),
            root=not wiring.predecessors,
            pass_on=self._route(number),
            cores=[cores[core] for core in mine],
            trace=trace,
        )

    def _route(self, number: int) -> Callable[[Frame], None]:
        stages, leaves = self._wiring.stages, self._wiring.leaves
        targets = [
            (self._inboxes[next_], next_ if len(stages[next_].predecessors) > 1 else None)
            for next_ in stages[number].successors
        ]

        def pass_on(frame: Frame) -> None:
            for inbox, join in targets:
                if join is None or frame.arrived(join):
                    inbox.put((frame, perf_counter()))

        def end(frame: Frame) -> None:
            if len(leaves) == 1 or frame.arrived(_END):
                self.ledger.finish(frame)

        return pass_on if targets else end

    def _prepare_frames(self) -> None:
        wiring = self._wiring
        self._empty: list[Any] = [None] * len(wiring.readers)
        joins = {number: len(stage.predecessors) for number, stage in enumerate(wiring.stages)}
        joins[_END] = len(wiring.leaves)
        self._waiting = {number: branches for number, branches in joins.items() if branches > 1}
        self._readers = {slot: readers for slot, readers in enumerate(wiring.readers) if readers > 1}

    def _open(self, codes: Sequence[Any]) -> None:
        self._idents: set[int | None] = set()
        try:
            for worker, code in zip(self.workers, codes, strict=True):
                worker.start(code, self._broke)
                self._idents.add(worker.ident)
        except BaseException as error:
            self._shut()
            # Ctrl-C does not wait for a device that is being loaded.
            self.join(None if isinstance(error, Exception) else GRACE)
            raise

    def _start(self, frame: Frame) -> None:
        for inbox in self._roots:
            inbox.put_reserved((frame, frame.entered))

    def _result(self, frame: Frame) -> Result:
        arrays = results(frame, self._wiring)
        if len(arrays) == 1:
            return arrays[0]
        return {spec.name: array for spec, array in zip(self.plan.outputs, arrays, strict=True)}

    def _shut(self) -> None:
        for inbox in self._inboxes:
            inbox.close()

    def _broke(self, error: BaseException) -> None:
        reason = PipelineError(f"a worker of the pipeline {self.plan.model!r} broke: {type(error).__name__}: {error}")
        reason.__cause__ = error
        self.abandon(reason)


def closed_before(model: str) -> PipelineClosed:
    """Return the error of frames that a close did not wait for."""
    return PipelineClosed(f"the pipeline {model!r} was closed before this frame was finished")


def _shared_cores(plan: Plan, runtimes: Sequence[DeviceRuntime]) -> dict[int, threading.Lock]:
    """Return a lock for each host core that several stages compute on."""
    pairs = zip(plan.stages, runtimes, strict=True)
    users = Counter(chain.from_iterable(set(stage.cores) for stage, runtime in pairs if runtime.occupies_cores))
    return {core: threading.Lock() for core, count in users.items() if count > 1}
