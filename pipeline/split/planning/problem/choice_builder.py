"""Board -> choices: a stage's threads, replicas and cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from pipeline.core.board.board import Board, Device
from pipeline.split.planning.problem.arrays import Array, span_sums
from pipeline.split.planning.problem.board_processors import BoardProcessor, equal_devices
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.request import PlanRequest
from pipeline.split.planning.problem.spans import SpanTimes

MOST_MIXTURES = 24
"""Bound on fully tried mixtures of replicas on unlike cores; above it, of each cluster powers of two, and all."""

MOST_COUNTS = 12
"""Bound on fully tried numbers of cores; above it, powers of two."""

Seconds = Callable[[Device, int], Sequence[float]]
"""Returns the seconds of each fused group under some threads on a device; without cores it has one."""

Variants = Callable[[Device], Sequence[str]]
"""Returns the names of a device with its runtimes."""

Spans = Callable[[Device], SpanTimes | None]
"""Times of spans on a device, where they are not the sums of groups' times."""


@dataclass(frozen=True)
class DeviceTimes:
    """The times on the devices of a board."""

    seconds: Seconds
    variants: Variants
    spans: Spans


@dataclass(frozen=True, eq=False)
class _RuntimeTimes:
    """Times of a runtime on a device's cores, by threads."""

    device: Device
    times: Seconds
    spans: SpanTimes | None
    contended: bool
    """True if there are other cores, which other stages keep busy."""

    def seconds(self, threads: int) -> Array:
        """Return each group's seconds under some threads."""
        return np.asarray(self.times(self.device, max(1, threads)), np.float64)

    def choice(self, processor: int, use: tuple[int, ...], threads: int, scale: float = 1.0, **options: Any) -> Choice:
        """Return a choice of some threads, at a multiple of the fastest times."""
        if self.spans is None:
            seconds, spans = self.seconds(threads) * scale, None
        else:
            one_core = self.seconds(1)
            seconds = one_core * self.spans.thread_share(threads) * scale
            # What is pinned elsewhere was measured all the same.
            is_possible = np.isfinite(span_sums(one_core))
            spans = np.where(is_possible, self.spans.matrix(threads, contended=self.contended) * scale, np.inf)
        return Choice(processor, use, seconds, threads=threads, spans=spans, device=self.device.name, **options)


def board_choices(
    board: Board, processors: Sequence[BoardProcessor], times: DeviceTimes, request: PlanRequest, *, replicas: bool
) -> Iterator[Choice]:
    """Yield all ways to run a stage on a board."""
    requested = {device.name for devices in request.devices for device in devices}
    # Of what is borrowed, the times are needed, too.
    requested |= {name for names in request.borrowed for name in names}
    # Those of a server are nobody else's: also stages whose number is fixed have all of them.
    slots = replicas or bool(request.devices)
    for device in board.devices:
        indices = [index for index, processor in enumerate(processors) if processor.device.name == device.name]
        # A fixed number of stages may need the same device: leave each of the others one unit.
        spare = request.spare_units(device)
        # Whoever asks for a runtime gets it, also if nothing is known of it.
        names = dict.fromkeys((*times.variants(device), *(name for name in device.variants if name in requested)))
        for name in names if not requested or any(map(device.is_called, requested)) else ():
            variant = board.device(name)
            runtime_times = _RuntimeTimes(variant, times.seconds, times.spans(variant), len(variant.cores) > 1)
            if spare < 1:
                yield _shared_choice(processors, indices, runtime_times)
            else:
                choices = _choices(processors, indices, runtime_times, replicas=replicas, slots=slots)
                yield from (choice for choice in choices if sum(choice.use) <= spare)
        if replicas and not requested:
            yield from _alike_choices(board, processors, indices[0], times)


def _alike_choices(
    board: Board, processors: Sequence[BoardProcessor], first: int, times: DeviceTimes
) -> Iterator[Choice]:
    """Yield the choices with replicas on several equal devices."""
    processor = processors[first]
    for alike in equal_devices(board, processors, first):
        devices = [processors[index].device for index in alike]
        # As slow as the slowest, where they were measured, and only what runs on all of them.
        seconds = np.max([times.seconds(device, 1) for device in devices], axis=0)
        spans = times.spans(processor.device)
        yield Choice(
            first,
            _use(processors, dict.fromkeys(alike, 1)),
            np.asarray(seconds, np.float64),
            replicas=len(alike) * processor.device.slot_count,
            watts=processor.watts,
            spans=None if spans is None else np.where(np.isfinite(span_sums(seconds)), spans.matrix(), np.inf),
            device=processor.device.name,
            memories=len({device.memory for device in devices}),
        )


def _shared_choice(processors: Sequence[BoardProcessor], indices: Sequence[int], times: _RuntimeTimes) -> Choice:
    """Return a stage's choice where cores are scarce, alone on the fastest."""
    fastest = max(indices, key=lambda index: processors[index].speed)
    processor = processors[fastest]
    threads = 1 if processor.cores else 0
    copies = processor.device.slot_count
    return times.choice(
        fastest, _use(processors, {}), threads, 1 / processor.speed, replicas=copies, watts=processor.watts
    )


def _choices(
    processors: Sequence[BoardProcessor], indices: Sequence[int], times: _RuntimeTimes, *, replicas: bool, slots: bool
) -> Iterator[Choice]:
    first = indices[0]
    if not processors[first].cores:
        processor = processors[first]
        count = processor.device.slot_count if slots else 1
        yield times.choice(first, _use(processors, {first: 1}), 0, replicas=count, watts=processor.watts)
        return
    # Up to the largest cluster: one replica never spreads over unlike cores, which would wait for the slowest.
    for threads in _counts(max(len(processors[index].cores) for index in indices)):
        counts = [_counts(len(processors[index].cores) // threads) for index in indices]
        for copies in _copies(counts):
            # Replicas on unlike cores take what frames they can; together they are as fast as their rates' sum.
            if sum(copies) == 1 or (replicas and sum(copies) > 1):
                yield _replicated_choice(processors, dict(zip(indices, copies, strict=True)), threads, times)


def _copies(counts: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Return the numbers of replicas on each cluster, from `counts`."""
    copies = list(product(*([0, *cluster_counts] for cluster_counts in counts)))
    mixtures = sum(min(copy) > 0 for copy in copies)
    few = [
        {count for count in cluster_counts if count.bit_count() == 1 or count == max(cluster_counts)}
        for cluster_counts in counts
    ]
    return [
        copy
        for copy in copies
        if mixtures <= MOST_MIXTURES
        or sum(map(bool, copy)) == 1
        or all(count in {0, *allowed} for count, allowed in zip(copy, few, strict=True))
    ]


def _replicated_choice(
    processors: Sequence[BoardProcessor], copies: Mapping[int, int], threads: int, times: _RuntimeTimes
) -> Choice:
    total = sum(copies.values())
    speeds = [processors[index].speed for index, count in copies.items() for _ in range(count)]
    watts = sum(count * processors[index].watts * threads for index, count in copies.items())
    return times.choice(
        next(index for index, count in copies.items() if count),
        _use(processors, {index: count * threads for index, count in copies.items()}),
        threads,
        1 / max(speeds),
        replicas=total,
        watts=watts / total,
        # In the order in which the plan gives them their cores.
        factors=() if len(set(speeds)) == 1 else tuple(max(speeds) / speed for speed in speeds),
    )


def _use(processors: Sequence[BoardProcessor], units: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(units.get(index, 0) for index in range(len(processors)))


def _counts(limit: int) -> list[int]:
    """Return numbers from 1 to `limit`, all of them if few."""
    lower = (count for count in range(1, limit) if count <= MOST_COUNTS or count.bit_count() == 1)
    return [*lower, limit] if limit else []
