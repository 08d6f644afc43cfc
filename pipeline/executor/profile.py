"""Measured seconds per fused group on a device of this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.board import Device
from pipeline.executor import cost_cache, devices, parameters
from pipeline.executor.apart import apart
from pipeline.executor.build import Progress, compile_stage, random_frame
from pipeline.executor.cost_cache import CostCache, Made, Record
from pipeline.plans import StagePlan, TensorSpec

ROUNDS = 5
"""At least so many frames go through all groups; the fastest time of each counts, since whatever else the machine does
only adds."""

ENOUGH_S = 1.0
"""And at least for so long."""

MOST_BYTES = 1 << 26
"""So much is read, at most, in place of groups that are not run: what they would push out of the caches."""


def measure(
    pairs: Sequence[tuple[StagePlan, Any]],
    device: Device,
    progress: Progress,
    *,
    cores: int = 1,
    cache: CostCache | None = None,
) -> list[float]:
    """Return the seconds of one frame in each group, alone on `device`.

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
    kept = CostCache(None) if cache is None else cache
    return apart(lambda: _Bench(device, cores, kept).seconds(pairs, progress), "profile")


def fastest_cores(device: Device, cores: int) -> tuple[int, ...]:
    """Return the last ones of a device's fastest cores; the first ones are more often disturbed."""
    best = max(map(device.speed, device.cores), default=1.0)
    return tuple(core for core in device.cores if device.speed(core) == best)[-cores:]


@dataclass
class _Group:
    """A group, its key, and the program where its time is not known yet."""

    key: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    made: tuple[Made, ...]
    nbytes: int
    program: Any = None


class _Bench:
    """Knows, or builds and times, the groups of one model on one device."""

    def __init__(self, device: Device, cores: int, cache: CostCache) -> None:
        self._device, self._cores, self._cache = device, cores, cache
        self._where = cost_cache.place(device, cores)
        self._runtime = devices.create(device)
        self._known: dict[str, Record] = {}
        self._programs: dict[str, tuple[Any, tuple[Made, ...]]] = {}

    def seconds(self, pairs: Sequence[tuple[StagePlan, Any]], progress: Progress) -> list[float]:
        self._runtime.open(fastest_cores(self._device, self._cores))
        try:
            groups = list(self._groups(pairs, progress))
            if self._programs:
                progress("measuring")
                self._time(groups)
        finally:
            self._runtime.close()
        return [self._known[group.key].seconds for group in groups]

    def _groups(self, pairs: Sequence[tuple[StagePlan, Any]], progress: Progress) -> Iterator[_Group]:
        """Yield each group, built for the layout that the ones before it make unless its time is known.

        A layout is changed at a stage's borders only.
        """
        inner: set[str] = set()
        for number, (stage, module) in enumerate(pairs):
            key = cost_cache.key_of_group(self._where, stage, module, [spec.name in inner for spec in stage.inputs])
            if key not in self._known and (found := self._cache.get(key)) is not None:
                self._known[key] = found
            if key not in self._known and key not in self._programs:
                progress(f"building group {number + 1} of {len(pairs)}")
                self._programs[key] = self._built(stage, module, inner)
            program, made = self._programs[key] if key in self._programs else (None, self._known[key].made)
            inner.update(spec.name for spec, each in zip(stage.outputs, made, strict=True) if each.inner)
            yield _Group(key, stage.inputs, stage.outputs, made, _nbytes(stage, module), program)

    def _built(self, stage: StagePlan, module: Any, inner: set[str]) -> tuple[Any, tuple[Made, ...]]:
        names = {spec.name for spec in stage.inputs} & inner
        program = self._runtime.load(stage, compile_stage(module, self._device, self._cores, inner=names))
        return program, tuple(Made(spec.shape, spec.name in names) for spec in stage.outputs)

    def _time(self, groups: Sequence[_Group]) -> None:
        frame = _Frame(self._runtime, groups)
        rounds: list[dict[int, float]] = []
        end = time.perf_counter() + ENOUGH_S
        while len(rounds) < ROUNDS or time.perf_counter() < end:
            rounds.append(frame.run())
        times: dict[str, list[float]] = {}
        for number in rounds[0]:
            times.setdefault(groups[number].key, []).append(min(each[number] for each in rounds))
        for group in groups:
            if group.key in times:
                # A group that is repeated has one time, whichever of its places a later plan asks for.
                self._known[group.key] = Record(group.key, statistics.median(times.pop(group.key)), group.made)
                self._cache.put(self._known[group.key])


def _nbytes(stage: StagePlan, module: Any) -> int:
    weights = sum(array.nbytes for array in parameters.lift(module["main"])[1].values())
    return weights + sum(spec.nbytes for spec in (*stage.inputs, *stage.outputs))


class _Frame:
    """One frame's way through the groups, in order as in a stage: alone, each would find all it reads in its caches.

    Each tensor goes with its last reader, so that its memory is used again, as a stage's plan of its memory would have
    it.  For groups whose time is known, others stand in: tensors of the right shape are written anew, and as much
    memory is read as they would.
    """

    def __init__(self, runtime: devices.DeviceRuntime, groups: Sequence[_Group]) -> None:
        self._runtime, self._groups = runtime, groups
        made = {spec.name for group in groups for spec in group.outputs}
        given = dict.fromkeys(spec for group in groups for spec in group.inputs if spec.name not in made)
        self._given = {name: runtime.copy_in(array) for name, array in random_frame(list(given), 0).items()}
        self._stand_ins = _stand_ins(groups)
        last = {spec.name: number for number, group in enumerate(groups) for spec in (*group.outputs, *group.inputs)}
        self._ending: list[list[str]] = [[] for _ in groups]
        for name, number in last.items():
            self._ending[number].append(name)
        self._scratch = np.ones(MOST_BYTES // 8)

    def run(self) -> dict[int, float]:
        """Return the seconds of each group that has a program, by its number."""
        times = {}
        tensors, skipped = dict(self._given), 0
        for number, group in enumerate(self._groups):
            if group.program is None:
                skipped += group.nbytes
                continue
            times[number] = self._run(group, tensors, skipped)
            skipped = 0
            for name in self._ending[number]:
                tensors.pop(name, None)
        return times

    def _run(self, group: _Group, tensors: dict[str, Any], skipped: int) -> float:
        """Return the seconds of one group, whose outputs join `tensors`."""
        read = self._read(group, tensors, skipped)
        made, seconds = self._runtime.timed(group.program, read)
        tensors.update(zip((spec.name for spec in group.outputs), made, strict=True))
        group.made = tuple(
            Made(self._runtime.copy_out(tensor).shape, each.inner)
            for tensor, each in zip(made, group.made, strict=True)
        )
        return seconds

    def _read(self, group: _Group, tensors: dict[str, Any], skipped: int) -> list[Any]:
        """Return the group's inputs."""
        if skipped:
            self._scratch[: skipped // 8].sum()
        for spec in group.inputs:
            if spec.name not in tensors:
                tensors[spec.name] = self._runtime.copy_in(self._stand_ins[spec.name].copy())
        return [tensors[spec.name] for spec in group.inputs]


def _stand_ins(groups: Sequence[_Group]) -> dict[str, np.ndarray]:
    """Return what the groups that are not run would make, as it lies in memory."""
    known = [group for group in groups if group.program is None]
    pairs = [pair for group in known for pair in zip(group.outputs, group.made, strict=True)]
    return random_frame([TensorSpec(spec.name, each.shape, spec.dtype) for spec, each in pairs], 0)
