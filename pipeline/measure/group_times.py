"""Group times: measured seconds of fused groups on a device."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple

from pipeline.core.board.board import Device
from pipeline.core.numerics import EXACT, Numerics
from pipeline.core.plan.plan import StagePlan
from pipeline.executor import devices, parameters
from pipeline.executor.build import Progress, compile_stage
from pipeline.executor.executable import CompileOptions
from pipeline.executor.stage_code import StageCode
from pipeline.measure import cost_cache
from pipeline.measure.cost_cache import CostCache, OutputLayout, TimeRecord
from pipeline.measure.frame_pass import FramePass, TimedGroup
from pipeline.measure.sampling import FULL, MeasureOptions, Sampling
from pipeline.split import extract
from pipeline.split.graph import Graph
from pipeline.system.threads import run_in_thread

CreatePass = Callable[[Device, Sequence[int], Sequence[TimedGroup]], FramePass]
"""Makes the pass of a frame through groups on some cores of a device."""

MOST_OTHERS = 7
"""On so many other cores, at most, the same frames are computed meanwhile: each takes as much memory."""


class GroupTimes(NamedTuple):
    """Seconds of one frame in each group."""

    isolated: list[float]
    """Seconds while nothing else runs on the device."""
    contended: list[float]
    """Seconds while its other cores are busy with frames of the same model, as in a pipeline or by replicas: they share
    the memory, and often a cache. The same as `isolated` if it has none."""

    @staticmethod
    def of(records: Sequence[TimeRecord]) -> GroupTimes:
        """Return the times of one record per group."""
        return GroupTimes(
            [record.seconds for record in records],
            [record.seconds if record.contended is None else record.contended for record in records],
        )

    def scale(self, model: GroupTimes) -> GroupTimes:
        """Scale the times to the sum of the unsplit model's."""
        return GroupTimes(*(_scale(times, total) for times, (total,) in zip(self, model, strict=True)))


def _scale(times: Sequence[float], total: float) -> list[float]:
    # Groups that only show tensors in another shape may take no time at all.
    factor = total / (sum(times) or 1.0)
    return [factor * seconds for seconds in times]


def measure(
    pairs: Sequence[tuple[StagePlan, Any]],
    device: Device,
    options: MeasureOptions,
    *,
    cores: int = 1,
    create_pass: CreatePass = FramePass,
) -> GroupTimes:
    """Return the seconds of one frame in each group.

    Equal groups are built once, and have one time. `create_pass` makes what runs a frame through them, once for each
    core that is busy.
    """
    timer = GroupTimer(device, cores, options.cache, options.sampling, create_pass, options.numerics)
    return timer.time(timer.prepare(pairs, options.progress), options.progress)


def extract_groups(graph: Graph, cuts: Sequence[int]) -> list[tuple[StagePlan, Any]]:
    """Return the groups between cuts, with modules."""
    return [
        (StagePlan(f"group{number}", "", part.inputs, part.outputs), extract.module(part))
        for number, part in enumerate(extract.parts(graph, cuts))
    ]


def fastest_cores(device: Device, cores: int) -> tuple[int, ...]:
    """Return a device's last fastest cores: the first are disturbed more."""
    best = max(map(device.speed, device.cores), default=1.0)
    return tuple(core for core in device.cores if device.speed(core) == best)[-cores:]


class GroupTimer:
    """Builds and times a model's uncached groups on one device; see `measure`."""

    def __init__(  # noqa: PLR0913, PLR0917 - all that a measurement depends on
        self,
        device: Device,
        cores: int,
        cache: CostCache,
        sampling: Sampling = FULL,
        create_pass: CreatePass = FramePass,
        numerics: Numerics = EXACT,
    ) -> None:
        self._device, self._cores, self._cache, self._sampling = device, cores, cache, sampling
        self._create_pass, self._numerics = create_pass, numerics
        self._measuring_cores = fastest_cores(device, cores)
        remote = devices.is_remote(device)
        # Cores of another machine cannot be kept busy from here.
        fastest = () if remote else fastest_cores(device, len(device.cores))
        self._busy_cores = [core for core in fastest if core not in self._measuring_cores][:MOST_OTHERS]
        # Another machine would have to be sent all groups again for each turn.
        self._turns = 1 if remote else sampling.turns
        # A contended time depends on how many others there were, so that their number is part of the key.
        self._processor = {**cost_cache.describe_processor(device, cores, numerics), "others": len(self._busy_cores)}
        self._records: dict[str, TimeRecord] = {}
        self._codes: dict[str, tuple[StageCode, tuple[OutputLayout, ...]]] = {}
        self._layouts: dict[str, tuple[OutputLayout, ...]] = {}

    def prepare(self, pairs: Sequence[tuple[StagePlan, Any]], progress: Progress) -> list[TimedGroup]:
        """Build the uncached groups."""
        return list(self._groups(pairs, progress))

    def time(self, groups: Sequence[TimedGroup], progress: Progress = lambda _: None) -> GroupTimes:
        """Return group seconds, measuring the built ones at every call."""
        if any(group.code is not None for group in groups):
            progress("measuring")
            self._time(groups)
        return GroupTimes.of([self._records[group.key] for group in groups])

    def _groups(self, pairs: Sequence[tuple[StagePlan, Any]], progress: Progress) -> Iterator[TimedGroup]:
        """Yield the groups, uncached ones built for their predecessors' layout.

        A layout is changed at a stage's borders only.
        """
        names_in_stage_layout: set[str] = set()
        for number, (stage, module) in enumerate(pairs):
            flags = [spec.name in names_in_stage_layout for spec in stage.inputs]
            key = cost_cache.key_of_group(self._processor, stage, module, flags)
            # Asked once for each key: networks repeat their groups, and equal ones share a record.
            if key not in self._records and (record := self._cache.get(key)) is not None:
                self._records[key] = record
            if key not in self._records and key not in self._codes:
                progress(f"building group {number + 1} of {len(pairs)}")
                self._codes[key] = self._compile(stage, module, names_in_stage_layout)
            code, outputs = self._codes[key] if key in self._codes else (None, self._records[key].outputs)
            names_in_stage_layout.update(
                spec.name for spec, layout in zip(stage.outputs, outputs, strict=True) if layout.inner
            )
            yield TimedGroup(key, stage, outputs, _nbytes(stage, module), code)

    def _compile(
        self, stage: StagePlan, module: Any, names_in_stage_layout: set[str]
    ) -> tuple[StageCode, tuple[OutputLayout, ...]]:
        names = {spec.name for spec in stage.inputs} & names_in_stage_layout
        options = CompileOptions(channels_last=names, numerics=self._numerics)
        code = compile_stage(module, self._device, self._cores, options)
        return code, tuple(OutputLayout(spec.shape, spec.name in names) for spec in stage.outputs)

    def _time(self, groups: Sequence[TimedGroup]) -> None:
        isolated_turns, contended_turns = [], []
        kind = devices.thread_kind(self._device, self._measuring_cores)
        for _ in range(self._turns):
            # In another thread, which is pinned to the cores: the caller must not be.
            isolated_turns.append(run_in_thread(lambda: self._time_turn(groups), "group times", kind))
            # In turn with the isolated ones, so that a disturbance of the machine meets both.
            if self._busy_cores:
                with self._contention(groups):
                    contended_turns.append(run_in_thread(lambda: self._time_turn(groups), "group times", kind))
        for key in isolated_turns[0]:
            seconds = statistics.median(turn[key] for turn in isolated_turns)
            contended_s = statistics.median(turn[key] for turn in contended_turns) if contended_turns else None
            self._records[key] = TimeRecord(key, seconds, self._layouts[key], contended_s)
            self._cache.put(self._records[key])

    def _time_turn(self, groups: Sequence[TimedGroup]) -> dict[str, float]:
        """Return the built groups' times by key."""
        with closing(self._create_pass(self._device, self._measuring_cores, groups)) as frame:
            rounds: list[dict[int, float]] = []
            end = time.perf_counter() + self._sampling.turn_s
            # Some rounds, however slow the model is, and some time, however fast it is.
            while len(rounds) < self._sampling.rounds or time.perf_counter() < end:
                rounds.append(frame.run())
            self._layouts = frame.outputs
        times: dict[str, list[float]] = {}
        for number in rounds[0]:
            seconds = statistics.median(round_times[number] for round_times in rounds)
            times.setdefault(groups[number].key, []).append(seconds)
        # A group that is repeated has one time, whichever of its positions a later plan asks for.
        return {key: statistics.median(positions) for key, positions in times.items()}

    @contextmanager
    def _contention(self, groups: Sequence[TimedGroup]) -> Iterator[None]:
        """Keep the other cores busy with frames in threads of their own."""
        stop = threading.Event()

        def work(frame: FramePass) -> None:
            while not stop.is_set():
                frame.run()

        with ExitStack() as stack:
            threads = [stack.enter_context(ThreadPoolExecutor(1, f"busy {core}")) for core in self._busy_cores]
            # A runtime belongs to the thread that opens it.
            opening = [
                thread.submit(self._create_pass, self._device, [core], groups)
                for thread, core in zip(threads, self._busy_cores, strict=True)
            ]
            # All are open before the measurement begins: none of them is idle while it runs.
            frames = [future.result() for future in opening]
            working = [thread.submit(work, frame) for thread, frame in zip(threads, frames, strict=True)]
            try:
                yield
            finally:
                stop.set()
                for thread, frame in zip(threads, frames, strict=True):
                    # One thread each, so that closing waits behind the work that is just told to stop.
                    thread.submit(frame.close)
            # What failed on a core must not pass for contention that costs nothing.
            for future in working:
                future.result()


def _nbytes(stage: StagePlan, module: Any) -> int:
    weights = sum(array.nbytes for array in parameters.lift(module["main"])[1].values())
    return weights + sum(spec.nbytes for spec in (*stage.inputs, *stage.outputs))
