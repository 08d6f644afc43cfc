"""Measured seconds per fused group on a device of this machine."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple

from pipeline.board import Device
from pipeline.executor import cost_cache, devices, parameters
from pipeline.executor.apart import apart
from pipeline.executor.build import Progress, compile_stage
from pipeline.executor.code import StageCode
from pipeline.executor.cost_cache import CostCache, Made, Record
from pipeline.executor.passage import Group, Passage
from pipeline.plans import StagePlan

TURNS = 3
"""So often all groups are timed, by turns alone and while the other cores are busy; the median turn counts, since what
disturbs a machine may last for a second."""

ROUNDS = 4
"""At least so many frames go through all groups in a turn.  The median of a group's times counts: the fastest ones,
added up, are a time that no frame ever takes."""

ENOUGH_S = 0.5
"""And at least for so long."""

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
        with closing(Passage(self._device, self._own, groups)) as frame:
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

        def work(frame: Passage) -> None:
            while not stop.is_set():
                frame.run()

        with ExitStack() as stack:
            threads = [stack.enter_context(ThreadPoolExecutor(1, f"busy {core}")) for core in self._others]
            opened = [
                thread.submit(Passage, self._device, [core], groups)
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
