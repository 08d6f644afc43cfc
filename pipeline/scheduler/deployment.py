"""Deployment: one bundle's workers and channels; `swap` replaces it as a unit."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from pipeline.core import packed_value
from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.core.shapes import Build, OpenShapes
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.prediction.borrowing import borrowed_devices
from pipeline.scheduler.channel import Channel, EntryChannel, Inlet
from pipeline.scheduler.copies import output_arrays
from pipeline.scheduler.forecast import Forecast
from pipeline.scheduler.frame import Frame, FrameFuture, FrameResult
from pipeline.scheduler.heterogeneous import HeterogeneousRuntime
from pipeline.scheduler.inputs import AcceptedInputs
from pipeline.scheduler.open_inputs import make_input_check
from pipeline.scheduler.statistics import StageCounters
from pipeline.scheduler.stream_states import stage_state
from pipeline.scheduler.wiring import wire
from pipeline.scheduler.worker_context import Arrival, Assignment, WorkerContext
from pipeline.scheduler.worker_group import WorkerGroup

_END = -1
"""The number under which a frame's last stages are joined."""


class Deployment:
    """A running plan, with the workers of its stages.

    The builds are the same stages for frames of several sizes, whose extents vary as `shapes` says; `check` finds the
    build for a frame, and `plan` is that of the first one, which all others follow but for the tensors' shapes. A
    deployment is given up where its workers hang and nobody waits for them. Raises `PipelineError` if a device cannot
    be opened or a stage not loaded; no thread is left then.
    """

    def __init__(self, builds: Sequence[Build], shapes: OpenShapes | None, context: WorkerContext) -> None:
        self.builds, self.shapes, self._context = tuple(builds), shapes, context
        # Numbers the builds as `loads` does: the build that it finds for a frame is the program that the workers run.
        self.check = make_input_check(builds, shapes)
        self.plan = plan = builds[0].plan
        self.keeps_state = bool(plan.states)
        self.capacity, self.output_names = plan.frames_in_flight, tuple(spec.name for spec in plan.outputs)
        self._packed_outputs = [number for number, spec in enumerate(plan.outputs) if packed_value.is_packed(spec)]
        # All runtimes are there before the first one opens: where they work decides how tensors travel.
        makers = [[self._maker(stage, name) for name in stage.replica_names] for stage in plan.stages]
        runtimes = [[make() for make in replicas] for replicas in makers]
        self._wiring = wire(plan, list(map(_memory, plan.stages, runtimes)))
        # The usual case: one array, given as it is.
        is_only = len(plan.outputs) == 1 and not self._packed_outputs
        self._only_output = self._wiring.outputs[0] if is_only else None
        # Channels and locks before workers: an assignment refers to its neighbours' channels.
        self._inboxes, self._inlet = self._make_channels()
        self._cores = _shared_cores(plan, runtimes)
        self._lent_devices = {name for stage in plan.stages for name in borrowed_devices(plan.board, stage)}
        self.group, self.is_given_up = WorkerGroup(context), False
        self.counters: dict[str, list[StageCounters]] = {stage.name: [] for stage in plan.stages}
        for number, stage in enumerate(plan.stages):
            for replica, runtime in enumerate(runtimes[number]):
                assignment = self._assign(number, replica, makers[number][replica], runtime)
                self.group.add(assignment, runtime)
                self.counters[stage.name].append(assignment.counters)
        self._forecast = Forecast(plan, self._wiring, list(self.counters.values()))
        self._prepare_frames()
        self._open()

    def make_frame(self, frame_inputs: AcceptedInputs, future: FrameFuture, *, by_reference: bool) -> Frame:
        """Return a frame with the pipeline's inputs."""
        tensors = self._empty.copy()
        for slot, array in zip(self._wiring.inputs, frame_inputs.arrays, strict=True):
            # An input that no stage reads would stay in memory until the frame ends.
            if self._wiring.readers[slot]:
                tensors[slot] = array
        frame = Frame(future, self, tensors, frame_inputs.arrays if by_reference else (), self._joins, self._readers)
        frame.build, frame.crop = frame_inputs.build, frame_inputs.crop
        return frame

    def accepted_inputs(self, frame: Frame) -> AcceptedInputs:
        """Return the inputs of a frame before its first stage, None if unread."""
        arrays = [frame.tensors[slot] for slot in self._wiring.inputs]
        return AcceptedInputs(self.check, arrays, frame.build, frame.crop)

    def has_room(self) -> bool:
        """Test for room at all first stages, under the ledger's lock."""
        return self._inlet.has_room()

    def start(self, frame: Frame) -> None:
        """Pass a frame to the first stages, under the ledger's lock."""
        # Together, so that whoever takes the frame back knows whether it was counted.
        self._forecast.starts, frame.entry_s = self._forecast.starts + 1, perf_counter()
        self._inlet.put((frame, frame.entry_s))

    def forecast(self) -> float:
        """Return the expected seconds of a frame started now."""
        return self._forecast()

    def withdraw(self, frame: Frame, reason: BaseException) -> bool:
        """End a frame before its first stage with `reason`; return success."""
        return self._context.withdraw(frame, reason)

    def take_back(self, frame: Frame) -> None:
        """Free a withdrawn frame's places, under the ledger's lock."""
        # An interrupt may have come between the books and the channel: then the frame was never counted.
        if frame.entry_s:
            self._forecast.starts -= 1
        self._inlet.take_back((frame, frame.entry_s))

    def wake(self) -> None:
        """Wake the first stages after an interrupted `start`."""
        self._inlet.wake()

    def result(self, frame: Frame) -> FrameResult:
        """Return the outputs of a finished frame."""
        if self._only_output is not None and frame.crop is None and not frame.caller_arrays:
            array: np.ndarray = frame.tensors[self._only_output]
            return array
        arrays = output_arrays(frame, self._wiring)
        if frame.crop is not None:
            # The padding was ours, and what it became is none of the caller's results.
            arrays = [array[frame.crop[spec.name]] for array, spec in zip(arrays, self.plan.outputs, strict=True)]
        values = list(arrays)
        for number in self._packed_outputs:
            values[number] = packed_value.unpack(arrays[number])
        # A map alone would be taken for several outputs.
        if len(values) == 1 and not isinstance(values[0], dict):
            return values[0]
        return {spec.name: value for spec, value in zip(self.plan.outputs, values, strict=True)}

    def queue_length(self, number: int) -> int:
        """Count the frames waiting at a stage."""
        return len(self._inboxes[number])

    def shut(self) -> None:
        """End all workers after their current frames."""
        for inbox in self._inboxes:
            inbox.close()

    def _make_channels(self) -> tuple[list[Channel[Arrival]], Inlet[Arrival]]:
        """Return the channels of all stages, and of the first ones."""
        stages, on_room = self.plan.stages, self._context.on_room
        entries = {number: EntryChannel[Arrival](stages[number].queue_depth, on_room) for number in self._wiring.roots}
        inboxes = [
            entries[number] if number in entries else Channel[Arrival](stage.queue_depth)
            for number, stage in enumerate(stages)
        ]
        return inboxes, Inlet(list(entries.values()))

    def _maker(self, stage: StagePlan, device: str) -> Callable[[], DeviceRuntime]:
        """Return the factory of a worker's runtime, also for replacements."""
        create, turns = self._context.options.create, self._context.turns
        if stage.steps:
            return partial(HeterogeneousRuntime, self.plan, stage, create, turns)
        return partial(create, self.plan.board.device(device))

    def _assign(
        self, number: int, replica: int, make_runtime: Callable[[], DeviceRuntime], runtime: DeviceRuntime
    ) -> Assignment:
        stage = self.plan.stages[number]
        # In the order of the cores: two stages that share several take them in the same order, and so never cross.
        cores = sorted(set(stage.cores_of(replica)) & self._cores.keys()) if runtime.occupies_cores else []
        device = stage.replica_names[replica]
        is_lent = not stage.steps and device in self._lent_devices
        return Assignment(
            self._context,
            stage,
            replica,
            make_runtime,
            self._wiring.stages[number],
            self._wiring.readers,
            [_load(build, number) for build in self.builds],
            self._inboxes[number],
            self._route(number),
            tuple(self._cores[core] for core in cores),
            self._context.options.supervision.limit(stage.name),
            StageCounters(len(stage.steps)),
            self._context.turns.of(device) if is_lent else None,
            stage_state(self.plan, stage),
        )

    def _route(self, number: int) -> Callable[[Frame], None]:
        stages, leaves, on_finish = self._wiring.stages, self._wiring.leaves, self._context.on_finish
        targets = [
            (self._inboxes[successor], successor if len(stages[successor].predecessors) > 1 else None)
            for successor in stages[number].successors
        ]

        def pass_on(frame: Frame) -> None:
            for inbox, join in targets:
                if join is None or frame.count_arrival(join):
                    # May wait for a place: that is how a slow stage holds up those in front of it.
                    inbox.put((frame, perf_counter()))

        # With one last stage there is nothing to join, and a frame ends without a lock.
        def end(frame: Frame) -> None:
            if frame.count_arrival(_END):
                on_finish(frame)

        return pass_on if targets else on_finish if len(leaves) == 1 else end

    def _prepare_frames(self) -> None:
        # Made once: a frame copies them, so that submitting one costs no loop over the stages.
        wiring = self._wiring
        self._empty: list[Any] = [None] * len(wiring.readers)
        joins = {number: len(stage.predecessors) for number, stage in enumerate(wiring.stages)}
        joins[_END] = len(wiring.leaves)
        self._joins = {number: branches for number, branches in joins.items() if branches > 1}
        self._readers = {slot: readers for slot, readers in enumerate(wiring.readers) if readers > 1}

    def _open(self) -> None:
        try:
            # A device that cannot be opened must leave no thread behind: the caller has no pipeline to close.
            self.group.open()
        except BaseException as error:
            self.shut()
            for worker in self.group.workers:
                # Ctrl-C does not wait for a device that is being loaded.
                worker.join(None if isinstance(error, Exception) else 0)
            raise


def _load(build: Build, number: int) -> tuple[StagePlan, Any]:
    """Return a stage of a build with its code, or steps' codes."""
    stages = build.plan.stages
    first = sum(len(stage.units) for stage in stages[:number])
    if stages[number].steps:
        return stages[number], build.codes[first : first + len(stages[number].steps)]
    return stages[number], build.codes[first]


def _memory(stage: StagePlan, runtimes: Sequence[DeviceRuntime]) -> str:
    """Return the replicas' common memory; differing ones exchange arrays."""
    memories = {runtime.memory for runtime in runtimes}
    # The next frame may meet any replica, so that tensors can stay in a memory only if all of them work there.
    return memories.pop() if len(memories) == 1 else f"those of {stage.name}"


def _shared_cores(plan: Plan, runtimes: Sequence[Sequence[DeviceRuntime]]) -> dict[int, threading.Lock]:
    """Return a lock per host core shared by stages."""
    pairs = zip(plan.stages, runtimes, strict=True)
    users = Counter(chain.from_iterable(set(stage.cores) for stage, replicas in pairs if replicas[0].occupies_cores))
    # Two stages that compute on one core at once would only slow each other down, so they take turns.  A core of one
    # stage needs no lock.
    return {core: threading.Lock() for core, count in users.items() if count > 1}


class Deployments:
    """Current and former deployments, changed under the ledger's lock.

    Former ones still have frames in them; `retired_counters` are the counts of the workers of those before, by stage.
    """

    current: Deployment
    """Deployment of new frames."""

    def __init__(self) -> None:
        self.former: list[Deployment] = []
        self.retired_counters: dict[str, StageCounters] = {}
        # Empty, but their workers may not have ended yet.
        self._ending: list[Deployment] = []

    def swap(self, successor: Deployment) -> None:
        """Let new frames go through `successor`."""
        self.former.append(self.current)
        self.current = successor

    def retire(self, frames: Iterable[Frame]) -> None:
        """End former deployments without any of `frames`, the complete list."""
        live_deployments = {frame.deployment for frame in frames}
        for deployment in [deployment for deployment in self.former if deployment not in live_deployments]:
            deployment.shut()
            # Under the lock, and in the step that takes the deployment off the list: a snapshot sees its counts exactly
            # once.
            for name, counters in deployment.counters.items():
                self.retired_counters.setdefault(name, StageCounters(len(counters[0].steps))).absorb(counters)
            self.former.remove(deployment)
            # Swept here, or the list would grow with every swap.
            self._ending = [ending for ending in self._ending if not ending.group.join(0.0)] + [deployment]

    def list_alive(self) -> list[Deployment]:
        """Return deployments with possibly live workers."""
        return [self.current, *self.former, *self._ending]

    def counters(self, stage: str) -> list[StageCounters]:
        """Return a stage's counters of all workers so far."""
        retired = [self.retired_counters[stage]] if stage in self.retired_counters else []
        running = (*self.former, self.current)
        return retired + [counters for deployment in running for counters in deployment.counters.get(stage, ())]

    def shut(self) -> None:
        """Let all workers end."""
        for deployment in self.list_alive():
            deployment.shut()

    def join(self, deadline: float | None) -> bool:
        """Wait for the workers until `deadline` (`time.monotonic`); return success."""
        waited = [deployment for deployment in self.list_alive() if not deployment.is_given_up]
        return all(deployment.group.join(deadline) for deployment in waited)

    def busy(self, timeout: float) -> list[str]:
        """Return stages with workers, even abandoned, alive after `timeout` seconds."""
        deadline = monotonic() + timeout
        groups = [deployment.group for deployment in self.list_alive()]
        # Those given up too: their threads are still in native code.
        workers = [worker for group in groups for worker in (*group.workers, *group.given_up)]
        return [worker.assignment.stage.name for worker in workers if not worker.join(max(0.0, deadline - monotonic()))]
