"""Flow: the workers of one bundle and the channels between them.  `swap` replaces a flow as a whole."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from time import monotonic, perf_counter
from typing import Any

from pipeline.executor.devices.base import DeviceRuntime
from pipeline.plans import Plan, StagePlan
from pipeline.scheduler.channel import Channel
from pipeline.scheduler.copies import StageCopies, results
from pipeline.scheduler.forecast import Forecast
from pipeline.scheduler.frame import Frame, FrameFuture, Result
from pipeline.scheduler.inputs import Accepted
from pipeline.scheduler.open_inputs import check_for
from pipeline.scheduler.post import Arrival, Post
from pipeline.scheduler.statistics import StageCounters
from pipeline.scheduler.surroundings import Surroundings
from pipeline.scheduler.watchdog import Run
from pipeline.scheduler.wiring import wire
from pipeline.scheduler.worker import Worker
from pipeline.sizes import Build, OpenShapes

_END = -1
"""The number under which a frame's last stages are joined."""


class Flow:
    """A plan that is running.

    Parameters
    ----------
    builds : sequence of Build
        What to run; the same stages for frames of several sizes.
    shapes : OpenShapes or None
        What varies between them.
    around : Surroundings
        The pipeline.

    Attributes
    ----------
    plan : Plan
        That of the first build, which all others follow but for the tensors' shapes.
    check : InputCheck
        What finds the build for a frame.
    capacity : int
        How many frames may be in flight.
    withdraw : callable
        That of the surroundings.
    workers : list of Worker
        Those that are at work.
    given_up : list of Worker
        Those whose device did not come back in time.
    counters : dict of str to list of StageCounters
        Those of each stage's workers.
    forecast : Forecast
        When a frame that starts now will end.

    Raises
    ------
    PipelineError
        If a device cannot be opened or a stage not loaded; no thread is left then.
    """

    def __init__(self, builds: Sequence[Build], shapes: OpenShapes | None, around: Surroundings) -> None:
        self.builds, self.shapes, self._around = tuple(builds), shapes, around
        self.check = check_for(builds, shapes)
        self.plan = plan = builds[0].plan
        self.capacity, self.withdraw = plan.frames_in_flight, around.withdraw
        self._replicas = [[plan.board.device(name) for name in stage.replica_names] for stage in plan.stages]
        runtimes = [[around.create(device) for device in devices] for devices in self._replicas]
        self._wiring = wire(plan, [_memory(stage, made) for stage, made in zip(plan.stages, runtimes, strict=True)])
        roots = self._wiring.roots
        self._inboxes = [
            Channel[Arrival](stage.queue_depth, around.freed if number in roots else None)
            for number, stage in enumerate(plan.stages)
        ]
        self._roots = [self._inboxes[number] for number in roots]
        self._cores = _shared_cores(plan, runtimes)
        self._lock = threading.Lock()
        self.given_up: list[Worker] = []
        self.workers = [
            self._worker(self._post(number, replica, runtime), runtime)
            for number, made in enumerate(runtimes)
            for replica, runtime in enumerate(made)
        ]
        self.counters: dict[str, list[StageCounters]] = {}
        for worker in self.workers:
            self.counters.setdefault(worker.post.stage.name, []).append(worker.counters)
        self.forecast = Forecast(plan, self._wiring, list(self.counters.values()))
        self._prepare_frames()
        self._open()

    def frame(self, accepted: Accepted, future: FrameFuture, *, borrowed: bool) -> Frame:
        """Return a frame that holds the pipeline's inputs."""
        tensors = self._empty.copy()
        for slot, array in zip(self._wiring.inputs, accepted.arrays, strict=True):
            if self._wiring.readers[slot]:
                tensors[slot] = array
        frame = Frame(future, self, tensors, accepted.arrays if borrowed else (), self._waiting, self._readers)
        frame.build, frame.crop = accepted.build, accepted.crop
        return frame

    def reserve(self) -> bool:
        """Take a place in front of each first stage, if there is one in front of all, and return whether there was."""
        for number, inbox in enumerate(self._roots):
            if not inbox.places.try_take():
                for taken in self._roots[:number]:
                    taken.places.give()
                return False
        return True

    def give_back(self) -> None:
        """Free the places that were reserved."""
        for inbox in self._roots:
            inbox.places.give()

    def start(self, frame: Frame) -> None:
        """Hand a frame to the first stages, on places that are reserved."""
        self.forecast.started += 1
        for inbox in self._roots:
            inbox.put_reserved((frame, frame.entered))

    def take_back(self, frame: Frame) -> None:
        """Free the places of a withdrawn frame."""
        self.forecast.started -= 1
        for inbox in self._roots:
            inbox.take_back((frame, frame.entered))

    def result(self, frame: Frame) -> Result:
        """Return the outputs of a finished frame."""
        arrays = results(frame, self._wiring)
        if frame.crop is not None:
            arrays = [array[frame.crop[spec.name]] for array, spec in zip(arrays, self.plan.outputs, strict=True)]
        if len(arrays) == 1:
            return arrays[0]
        return {spec.name: array for spec, array in zip(self.plan.outputs, arrays, strict=True)}

    def queue_length(self, number: int) -> int:
        """Return how many frames wait in front of a stage."""
        return len(self._inboxes[number])

    def replace(self, run: Run) -> None:
        """Start a new worker, with a new runtime, in place of one that does not come back; it passes the frame on."""
        post = run.worker.post
        device = self._replicas[self.plan.stages.index(post.stage)][post.replica]
        fresh = self._worker(post, self._around.create(device), run.frame)
        post.counters.restarts += 1
        with self._lock:
            self.workers[self.workers.index(run.worker)] = fresh
            self.given_up = [worker for worker in self.given_up if not worker.join(0)] + [run.worker]
        fresh.start()

    def shut(self) -> None:
        """Let each worker end after what it is doing, or waits for."""
        for inbox in self._inboxes:
            inbox.close()

    def join(self, deadline: float | None = None) -> bool:
        """Wait for the end of the workers until `time.monotonic` is `deadline`, and return whether they have ended.

        A worker that is given up meanwhile is not waited for, but the one in its place is.
        """
        ended: set[Worker] = set()
        while rest := [worker for worker in self.workers if worker not in ended]:
            if not rest[0].wait_left(None if deadline is None else max(0.0, deadline - monotonic())):
                return False
            ended.add(rest[0])
        return True

    def _post(self, number: int, replica: int, runtime: DeviceRuntime) -> Post:
        stage, around = self.plan.stages[number], self._around
        mine = sorted(set(stage.cores_of(replica)) & self._cores.keys()) if runtime.occupies_cores else []
        limit = around.limit(stage.name)
        return Post(
            stage,
            replica,
            [(build.plan.stages[number], build.codes[number]) for build in self.builds],
            self._inboxes[number],
            StageCounters(),
            root=not self._wiring.stages[number].predecessors,
            pass_on=self._route(number),
            failed=around.failed,
            broke=around.broke,
            cores=tuple(self._cores[core] for core in mine),
            trace=around.trace,
            watchdog=around.watchdog if limit else None,
            limit=limit,
            crew=around.crew,
        )

    def _worker(self, post: Post, runtime: DeviceRuntime, first: Frame | None = None) -> Worker:
        wiring = self._wiring.stages[self.plan.stages.index(post.stage)]
        return Worker(post, runtime, StageCopies(runtime, wiring, self._wiring.readers), first)

    def _route(self, number: int) -> Callable[[Frame], None]:
        stages, leaves, finished = self._wiring.stages, self._wiring.leaves, self._around.finished
        targets = [
            (self._inboxes[next_], next_ if len(stages[next_].predecessors) > 1 else None)
            for next_ in stages[number].successors
        ]

        def pass_on(frame: Frame) -> None:
            for inbox, join in targets:
                if join is None or frame.arrived(join):
                    inbox.put((frame, perf_counter()))

        def end(frame: Frame) -> None:
            if frame.arrived(_END):
                finished(frame)

        return pass_on if targets else finished if len(leaves) == 1 else end

    def _prepare_frames(self) -> None:
        wiring = self._wiring
        self._empty: list[Any] = [None] * len(wiring.readers)
        joins = {number: len(stage.predecessors) for number, stage in enumerate(wiring.stages)}
        joins[_END] = len(wiring.leaves)
        self._waiting = {number: branches for number, branches in joins.items() if branches > 1}
        self._readers = {slot: readers for slot, readers in enumerate(wiring.readers) if readers > 1}

    def _open(self) -> None:
        try:
            # One after the other: many devices are loaded by code that only one thread may run at a time.
            for worker in self.workers:
                worker.start()
                worker.wait_opened()
        except BaseException as error:
            self.shut()
            for worker in self.workers:
                # Ctrl-C does not wait for a device that is being loaded.
                worker.join(None if isinstance(error, Exception) else 0)
            raise


def _memory(stage: StagePlan, runtimes: Sequence[DeviceRuntime]) -> str:
    """Return the memory of all replicas, or one of their own if it differs: then their tensors travel as arrays."""
    memories = {runtime.memory for runtime in runtimes}
    return memories.pop() if len(memories) == 1 else f"those of {stage.name}"


def _shared_cores(plan: Plan, runtimes: Sequence[Sequence[DeviceRuntime]]) -> dict[int, threading.Lock]:
    """Return a lock for each host core that several stages compute on."""
    pairs = zip(plan.stages, runtimes, strict=True)
    users = Counter(chain.from_iterable(set(stage.cores) for stage, made in pairs if made[0].occupies_cores))
    return {core: threading.Lock() for core, count in users.items() if count > 1}
