"""Measured seconds per fused group on a device of this machine."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pipeline.board import Device
from pipeline.executor import cost_cache, devices, parameters
from pipeline.executor.apart import apart
from pipeline.executor.build import Progress, compile_stage, random_frame
from pipeline.executor.code import StageCode
from pipeline.executor.cost_cache import CostCache, Made, Record
from pipeline.plans import StagePlan, TensorSpec

TURNS = 3
"""So often all groups are timed, by turns alone and while the other cores are busy; the median turn counts, since what
disturbs a machine may last for a second."""

ROUNDS = 4
"""At least so many frames go through all groups in a turn.  The median of a group's times counts: the fastest ones,
added up, are a time that no frame ever takes."""

ENOUGH_S = 0.5
"""And at least for so long."""

MOST_BYTES = 1 << 26
"""So much is read, at most, in place of groups that are not run: what they would push out of the caches."""

MOST_OTHERS = 7
"""On so many other cores, at most, the same frames are computed meanwhile: each takes as much memory."""


class Times(NamedTuple):
    """Seconds of one frame in each group.

    Attributes
    ----------
    alone : list of float
        Nothing else runs on the device.
    crowded : list of float
        Its other cores are busy with frames of the same model, as in a pipeline or by replicas: they share the memory,
        and often a cache.  The same as `alone` if it has none.
    """

    alone: list[float]
    crowded: list[float]

    @staticmethod
    def of(records: Sequence[Record]) -> Times:
        """Return what is recorded of each group."""
        return Times(
            [record.seconds for record in records],
            [record.seconds if record.crowded is None else record.crowded for record in records],
        )

    def scaled(self, whole: Times) -> Times:
        """Return the times of groups so that they add up to those of the whole model, which is a group by itself."""
        return Times(*(_adding_up(times, total) for times, (total,) in zip(self, whole, strict=True)))


def _adding_up(times: Sequence[float], total: float) -> list[float]:
    factor = total / (sum(times) or 1.0)
    return [factor * each for each in times]


def measure(
    pairs: Sequence[tuple[StagePlan, Any]],
    device: Device,
    progress: Progress,
    *,
    cores: int = 1,
    cache: CostCache | None = None,
) -> Times:
    """Return the seconds of one frame in each group.

    Parameters
    ----------
    pairs : sequence of (StagePlan, tvm.IRModule)
        The groups, in order; equal ones are built once, and have one time.
    device : Device
    progress : callable
        Told what is being done.
    cores : int
        How many of its fastest cores they run on.
    cache : CostCache, optional
        Groups whose time it has are neither built nor run; by default everything is measured.
    """
    bench = Bench(device, cores, CostCache(None) if cache is None else cache)
    return bench.time(bench.prepare(pairs, progress), progress)


def fastest_cores(device: Device, cores: int) -> tuple[int, ...]:
    """Return the last ones of a device's fastest cores; the first ones are more often disturbed."""
    best = max(map(device.speed, device.cores), default=1.0)
    return tuple(core for core in device.cores if device.speed(core) == best)[-cores:]


@dataclass(frozen=True)
class Group:
    """A group, its key, how its outputs lie in memory, and its code where its time is not known yet."""

    key: str
    stage: StagePlan
    made: tuple[Made, ...]
    nbytes: int
    code: StageCode | None = None


class Bench:
    """Knows, or builds and times, the groups of one model on one device; see `measure`.

    Parameters
    ----------
    device : Device
    cores : int
        How many of its fastest cores they run on.
    cache : CostCache
        Where times may be known from, and where they go.
    """

    def __init__(self, device: Device, cores: int, cache: CostCache) -> None:
        self._device, self._cores, self._cache = device, cores, cache
        self._own = fastest_cores(device, cores)
        far = devices.elsewhere(device)
        fastest = () if far else fastest_cores(device, len(device.cores))
        self._others = [core for core in fastest if core not in self._own][:MOST_OTHERS]
        # What is far would have to be sent again for each.
        self._turns = 1 if far else TURNS
        self._where = {**cost_cache.place(device, cores), "others": len(self._others)}
        self._known: dict[str, Record] = {}
        self._codes: dict[str, tuple[StageCode, tuple[Made, ...]]] = {}
        self._made: dict[str, tuple[Made, ...]] = {}

    def prepare(self, pairs: Sequence[tuple[StagePlan, Any]], progress: Progress) -> list[Group]:
        """Build the groups whose time is not known."""
        return list(self._groups(pairs, progress))

    def time(self, groups: Sequence[Group], progress: Progress = lambda _: None) -> Times:
        """Return the seconds of each group; those of groups that were built are measured, each time anew."""
        if any(group.code is not None for group in groups):
            progress("measuring")
            self._time(groups)
        return Times.of([self._known[group.key] for group in groups])

    def _groups(self, pairs: Sequence[tuple[StagePlan, Any]], progress: Progress) -> Iterator[Group]:
        """Yield each group, built for the layout that the ones before it make unless its time is known.

        A layout is changed at a stage's borders only.
        """
        inner: set[str] = set()
        for number, (stage, module) in enumerate(pairs):
            key = cost_cache.key_of_group(self._where, stage, module, [spec.name in inner for spec in stage.inputs])
            if key not in self._known and (found := self._cache.get(key)) is not None:
                self._known[key] = found
            if key not in self._known and key not in self._codes:
                progress(f"building group {number + 1} of {len(pairs)}")
                self._codes[key] = self._built(stage, module, inner)
            code, made = self._codes[key] if key in self._codes else (None, self._known[key].made)
            inner.update(spec.name for spec, each in zip(stage.outputs, made, strict=True) if each.inner)
            yield Group(key, stage, made, _nbytes(stage, module), code)

    def _built(self, stage: StagePlan, module: Any, inner: set[str]) -> tuple[StageCode, tuple[Made, ...]]:
        names = {spec.name for spec in stage.inputs} & inner
        code = compile_stage(module, self._device, self._cores, inner=names)
        return code, tuple(Made(spec.shape, spec.name in names) for spec in stage.outputs)

    def _time(self, groups: Sequence[Group]) -> None:
        alone, crowded = [], []
        for _ in range(self._turns):
            alone.append(apart(lambda: self._turn(groups), "profile"))
            if self._others:
                with self._busy(groups):
                    crowded.append(apart(lambda: self._turn(groups), "profile"))
        for key in alone[0]:
            seconds = statistics.median(turn[key] for turn in alone)
            slowed = statistics.median(turn[key] for turn in crowded) if crowded else None
            self._known[key] = Record(key, seconds, self._made[key], slowed)
            self._cache.put(self._known[key])

    def _turn(self, groups: Sequence[Group]) -> dict[str, float]:
        """Return the time of each group that was built, by its key."""
        with closing(_Frame(self._device, self._own, groups)) as frame:
            rounds: list[dict[int, float]] = []
            end = time.perf_counter() + ENOUGH_S
            while len(rounds) < ROUNDS or time.perf_counter() < end:
                rounds.append(frame.run())
            self._made = frame.made
        times: dict[str, list[float]] = {}
        for number in rounds[0]:
            times.setdefault(groups[number].key, []).append(statistics.median(each[number] for each in rounds))
        # A group that is repeated has one time, whichever of its places a later plan asks for.
        return {key: statistics.median(each) for key, each in times.items()}

    @contextmanager
    def _busy(self, groups: Sequence[Group]) -> Iterator[None]:
        """Keep the other cores busy with frames of their own, each in a thread that belongs to its core."""
        stop = threading.Event()

        def work(frame: _Frame) -> None:
            while not stop.is_set():
                frame.run()

        with ExitStack() as stack:
            threads = [stack.enter_context(ThreadPoolExecutor(1, f"busy {core}")) for core in self._others]
            opened = [
                thread.submit(_Frame, self._device, [core], groups)
                for thread, core in zip(threads, self._others, strict=True)
            ]
            frames = [each.result() for each in opened]
            working = [thread.submit(work, frame) for thread, frame in zip(threads, frames, strict=True)]
            try:
                yield
            finally:
                stop.set()
                for thread, frame in zip(threads, frames, strict=True):
                    thread.submit(frame.close)
            for each in working:
                each.result()


def _nbytes(stage: StagePlan, module: Any) -> int:
    weights = sum(array.nbytes for array in parameters.lift(module["main"])[1].values())
    return weights + sum(spec.nbytes for spec in (*stage.inputs, *stage.outputs))


class _Frame:
    """One frame's way through the groups, in order as in a stage: alone, each would find all it reads in its caches.

    Each tensor goes with its last reader, so that its memory is used again, as a stage's plan of its memory would have
    it.  For groups whose time is known, others stand in: tensors of the right shape are written anew, and as much
    memory is read as they would.  It belongs to the thread that makes it.
    """

    def __init__(self, device: Device, cores: Sequence[int], groups: Sequence[Group]) -> None:
        self._runtime, self._groups = devices.create(device), groups
        self._runtime.open(cores)
        # Equal groups share their program.
        built = {group.key: group for group in groups if group.code is not None}
        self._programs = {key: self._runtime.load(each.stage, each.code) for key, each in built.items()}
        self.made: dict[str, tuple[Made, ...]] = {}
        made = {spec.name for group in groups for spec in group.stage.outputs}
        given = dict.fromkeys(spec for group in groups for spec in group.stage.inputs if spec.name not in made)
        self._given = {name: self._runtime.copy_in(array) for name, array in random_frame(list(given), 0).items()}
        self._stand_ins = _stand_ins(groups)
        self._ending = _ending([group.stage for group in groups])
        self._scratch = np.ones(MOST_BYTES // 8)

    def run(self) -> dict[int, float]:
        """Return the seconds of each group that has a program, by its number."""
        times = {}
        tensors, skipped = dict(self._given), 0
        for number, group in enumerate(self._groups):
            if group.code is None:
                skipped += group.nbytes
                continue
            times[number] = self._run(group, tensors, skipped)
            skipped = 0
            for name in self._ending[number]:
                tensors.pop(name, None)
        return times

    def close(self) -> None:
        """Give the device back."""
        self._runtime.close()

    def _run(self, group: Group, tensors: dict[str, Any], skipped: int) -> float:
        """Return the seconds of one group, whose outputs join `tensors`."""
        read = self._read(group.stage.inputs, tensors, skipped)
        made, seconds = self._runtime.timed(self._programs[group.key], read)
        tensors.update(zip((spec.name for spec in group.stage.outputs), made, strict=True))
        # Only once: what this thread does between groups, others may have to wait for.
        if group.key not in self.made:
            self.made[group.key] = tuple(
                Made(self._runtime.copy_out(tensor).shape, each.inner)
                for tensor, each in zip(made, group.made, strict=True)
            )
        return seconds

    def _read(self, inputs: Sequence[TensorSpec], tensors: dict[str, Any], skipped: int) -> list[Any]:
        """Return a group's inputs."""
        if skipped:
            self._scratch[: skipped // 8].sum()
        for spec in inputs:
            if spec.name not in tensors:
                tensors[spec.name] = self._runtime.copy_in(self._stand_ins[spec.name].copy())
        return [tensors[spec.name] for spec in inputs]


def _ending(stages: Sequence[StagePlan]) -> list[list[str]]:
    """Return for each stage the tensors that nobody reads after it."""
    last = {spec.name: number for number, stage in enumerate(stages) for spec in (*stage.outputs, *stage.inputs)}
    found: list[list[str]] = [[] for _ in stages]
    for name, number in last.items():
        found[number].append(name)
    return found


def _stand_ins(groups: Sequence[Group]) -> dict[str, np.ndarray]:
    """Return what the groups that are not run would make, as it lies in memory."""
    known = [group for group in groups if group.code is None]
    pairs = [pair for group in known for pair in zip(group.stage.outputs, group.made, strict=True)]
    return random_frame([TensorSpec(spec.name, each.shape, spec.dtype) for spec, each in pairs], 0)
