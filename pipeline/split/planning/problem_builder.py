"""Graph + board -> Problem: the fused groups as items, core clusters and devices as processors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from pipeline.core.board import Board, Device
from pipeline.core.plan import TensorSpec
from pipeline.split.cuts import crossing_bytes, crossing_counts
from pipeline.split.graph import Graph
from pipeline.split.planning.borders import board_borders
from pipeline.split.planning.problem import Array, Choice, MemoryLimit, Problem, Processor, span_sums
from pipeline.split.planning.request import ANY_REQUEST, PlanRequest
from pipeline.split.planning.resources import add_links, add_memories, add_turns
from pipeline.split.planning.spans import SpanTimes

# Amdahl's share of the work; the rest stands for what one thread does alone in each kernel.
PARALLEL = 0.8
"""Share of a fused group's time that several threads divide among them, for estimates."""

BARRIER_S = 10e-6
"""Seconds that several threads lose in each group by waiting for each other, for estimates."""

MOST_MIXTURES = 24
"""Ways to mix replicas on unlike cores up to which all are tried; above it, of each cluster powers of two, and all."""

MOST_COUNTS = 12
"""Numbers of cores up to which all are tried; above it, those that are powers of two."""

Seconds = Callable[[Device], Sequence[float]]
"""Returns the seconds of each fused group on one core of a device, or on the device if it has no cores."""

Variants = Callable[[Device], Sequence[str]]
"""Returns the names of a device with its runtimes."""

Spans = Callable[[Device], SpanTimes | None]
"""Returns the times of spans on a device, where they are not the sums of those of groups."""


@dataclass(frozen=True, eq=False)
class Footprint:
    """The bytes that a graph needs.

    Attributes
    ----------
    parameters, workspace : array of float, shape (groups,)
        Of each fused group: its constants, and all tensors that are alive while it runs.
    border_bytes : array of float, shape (groups + 1,)
        Of a frame at each position between groups, the ends included.
    """

    parameters: Array
    workspace: Array
    border_bytes: Array

    @staticmethod
    def of(graph: Graph) -> Footprint:
        """Return the footprint of a graph."""
        border_bytes = np.array([_bytes(graph.inputs), *crossing_bytes(graph), _bytes(graph.outputs)], np.float64)
        results = [_bytes([graph.tensors[name] for name in operator.outputs]) for operator in graph.operators]
        parameters = [operator.parameter_bytes for operator in graph.operators]
        return Footprint(_by_group(graph, parameters), border_bytes[:-1] + _by_group(graph, results), border_bytes)

    def stage_bytes(self, begin: int, end: int, replicas: int = 1) -> float:
        """Return the bytes of a stage of the groups ``[begin, end)``, without the frames that wait in front of it."""
        return float(replicas * (self.parameters[begin:end].sum() + self.workspace[begin:end].max()))


@dataclass(frozen=True)
class BoardProcessor:
    """A processor, as the board describes it.

    Attributes
    ----------
    device : Device
    cores : tuple of int
        Those of the cluster; empty for a device without cores.
    speed : float
        Of one of them.
    """

    device: Device
    cores: tuple[int, ...]
    speed: float = 1.0

    @property
    def watts(self) -> float:
        """Power of one core, or of the device, at work above rest."""
        device_watts = self.device.watts_busy - self.device.watts_idle
        speeds = [self.device.speed(core) for core in self.device.cores]
        return device_watts * self.speed / sum(speeds) if self.cores else device_watts


def parallel_seconds(seconds: Array, threads: int, groups: int = 1) -> Array:
    """Return the estimated time with several threads of what takes `seconds` with one."""
    if threads <= 1:
        return seconds
    # Amdahl's law, and a barrier at the end of each kernel.
    return seconds * (1 - PARALLEL + PARALLEL / threads) + BARRIER_S * groups


def board_processors(board: Board) -> list[BoardProcessor]:
    """Return the clusters of each device's cores, and the devices without cores."""
    processors = []
    for device in board.devices:
        clusters = [(each.cores, each.speed) for each in device.clusters] or [(device.cores, 1.0)]
        processors += [BoardProcessor(device, cores, speed) for cores, speed in clusters]
    return processors


def build_problem(  # noqa: PLR0913 - all but the first three by keyword
    graph: Graph,
    board: Board,
    seconds: Seconds,
    *,
    variants: Variants = lambda device: device.variants,
    spans: Spans = lambda _: None,
    queue_depth: int = 1,
    replicas: bool = True,
    request: PlanRequest = ANY_REQUEST,
    extend: Callable[[Problem], Problem] = lambda problem: problem,
) -> Problem:
    """Return the problem of dividing `graph` among the devices of `board`.

    Parameters
    ----------
    graph : Graph
    board : Board
    seconds : callable
        Returns the seconds of each fused group on one core of a device, or on the device if it has no cores.
    variants : callable
        Returns the names of a device with those of its runtimes that stages may have.
    spans : callable
        Returns the times of spans on a device, where they are not the sums of those of groups.
    queue_depth : int
        How many frames may wait in front of a stage.
    replicas : bool
        Whether a stage may run on several frames at once.
    request : PlanRequest
        What of the division is fixed.
    extend : callable
        Adds other choices, while the problem has all of its items.
    """
    processors, footprint = board_processors(board), Footprint.of(graph)
    counts = np.array([len(graph.inputs), *crossing_counts(graph), len(graph.outputs)], np.float64)
    borders = board_borders(board, [processor.device for processor in processors], footprint.border_bytes, counts)
    problem = Problem(
        processors=tuple(_processor(processor) for processor in processors),
        choices=tuple(_all_choices(board, processors, _Times(seconds, variants, spans), request, replicas=replicas)),
        enter=borders.enter,
        leave=borders.leave,
        # Stages that are fixed are not refused for an estimate of what they need.
        memories=() if request.edges else _memories(board, processors),
        parameters=footprint.parameters,
        workspace=footprint.workspace,
        queue_bytes=footprint.border_bytes * queue_depth,
        stages=tuple(_processors_of(processors, devices) for devices in request.devices),
        runtimes=tuple(
            # A device by its own name is TVM's, unless any of the board's will do.
            frozenset()
            if devices == board.devices
            else frozenset({request.name(stage)} - {""} or {device.name for device in devices})
            for stage, devices in enumerate(request.devices)
        ),
    )
    devices = [processor.device for processor in processors]
    problem = add_turns(problem, devices, borders)
    problem = add_links(problem, borders)
    problem = extend(add_memories(problem, graph, board, devices, borders))
    return problem.merge_items(request.edges) if request.edges else problem


def _processors_of(processors: Sequence[BoardProcessor], devices: Sequence[Device]) -> tuple[int, ...]:
    return tuple(
        index
        for index, processor in enumerate(processors)
        if any(processor.device.is_called(device.name) for device in devices)
    )


def memory_sizes(board: Board) -> dict[str, int]:
    """Return the bytes of each memory whose size is known."""
    sizes: dict[str, list[int]] = {}
    for device in board.devices:
        if device.memory_bytes:
            sizes.setdefault(device.memory, []).append(device.memory_bytes)
    # Devices that disagree on a memory's size: the smallest is safe.
    return {name: min(candidates) for name, candidates in sizes.items()}


def _processor(processor: BoardProcessor) -> Processor:
    device = processor.device
    name = device.name if len(device.clusters) < 2 or not processor.cores else f"{device.name} cores {processor.cores}"
    if processor.cores:
        return Processor(name, len(processor.cores))
    return Processor(name, device.places, overlaps=device.overlaps)


@dataclass(frozen=True)
class _Times:
    """The times on the devices of a board."""

    seconds: Seconds
    variants: Variants
    spans: Spans


@dataclass(frozen=True, eq=False)
class _RuntimeTimes:
    """The times of one runtime on a device's cores, by the number of threads.

    Attributes
    ----------
    device : str
        With the runtime, as plans call it.
    seconds : array of float
    spans : SpanTimes, optional
    contended : bool
        Whether there are other cores, which other stages keep busy.
    """

    device: str
    seconds: Array
    spans: SpanTimes | None
    contended: bool

    def choice(self, processor: int, use: tuple[int, ...], threads: int, scale: float = 1.0, **rest: Any) -> Choice:
        """Return a way to run a stage on so many threads, whose times are a multiple of those of the fastest core."""
        if self.spans is None:
            seconds, spans = parallel_seconds(self.seconds, threads) * scale, None
        else:
            seconds = self.seconds * self.spans.thread_share(threads) * scale
            # What is pinned elsewhere was measured all the same.
            is_possible = np.isfinite(span_sums(self.seconds))
            spans = np.where(is_possible, self.spans.matrix(threads, contended=self.contended) * scale, np.inf)
        return Choice(processor, use, seconds, threads=threads, spans=spans, device=self.device, **rest)


def _all_choices(
    board: Board, processors: Sequence[BoardProcessor], times: _Times, request: PlanRequest, *, replicas: bool
) -> Iterator[Choice]:
    requested = {device.name for devices in request.devices for device in devices}
    # Of what is borrowed, the times are needed, too.
    requested |= {name for names in request.borrowed for name in names}
    for device in board.devices:
        indices = [index for index, processor in enumerate(processors) if processor.device.name == device.name]
        # A fixed number of stages may need the same device: leave each of the others one unit.
        spare = request.spare_units(device)
        # Whoever asks for a runtime gets it, also if nothing is known of it.
        names = dict.fromkeys((*times.variants(device), *(name for name in device.variants if name in requested)))
        for name in names if not requested or any(map(device.is_called, requested)) else ():
            runtime_times = _runtime_times(board.device(name), times)
            if spare < 1:
                yield _shared_choice(processors, indices, runtime_times)
            else:
                choices = _choices(processors, indices, runtime_times, replicas=replicas)
                yield from (choice for choice in choices if sum(choice.use) <= spare)


def _runtime_times(device: Device, times: _Times) -> _RuntimeTimes:
    seconds = np.asarray(times.seconds(device), np.float64)
    return _RuntimeTimes(device.name, seconds, times.spans(device), len(device.cores) > 1)


def _shared_choice(processors: Sequence[BoardProcessor], indices: Sequence[int], times: _RuntimeTimes) -> Choice:
    """Return the way to run a stage where there are more stages than cores: each as if it had the fastest alone."""
    fastest = max(indices, key=lambda index: processors[index].speed)
    processor = processors[fastest]
    threads = 1 if processor.cores else 0
    return times.choice(fastest, _use(processors, {}), threads, 1 / processor.speed, watts=processor.watts)


def _choices(
    processors: Sequence[BoardProcessor], indices: Sequence[int], times: _RuntimeTimes, *, replicas: bool
) -> Iterator[Choice]:
    first = indices[0]
    if not processors[first].cores:
        yield times.choice(first, _use(processors, {first: 1}), 0, watts=processors[first].watts)
        return
    # Up to the largest cluster: one replica never spreads over unlike cores, which would wait for the slowest.
    for threads in _counts(max(len(processors[index].cores) for index in indices)):
        counts = [_counts(len(processors[index].cores) // threads) for index in indices]
        for copies in _copies(counts):
            # Replicas on unlike cores take what frames they can; together they are as fast as their rates' sum.
            if sum(copies) == 1 or (replicas and sum(copies) > 1):
                yield _replicated_choice(processors, dict(zip(indices, copies, strict=True)), threads, times)


def _copies(counts: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Return how many replicas may be on each cluster, given the numbers to try for each."""
    copies = list(product(*([0, *each] for each in counts)))
    mixtures = sum(min(each) > 0 for each in copies)
    few = [{count for count in each if count.bit_count() == 1 or count == max(each)} for each in counts]
    return [
        each
        for each in copies
        if mixtures <= MOST_MIXTURES
        or sum(map(bool, each)) == 1
        or all(count in {0, *allowed} for count, allowed in zip(each, few, strict=True))
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
    """Return numbers from 1 to `limit`: all of them if they are few."""
    lower = (count for count in range(1, limit) if count <= MOST_COUNTS or count.bit_count() == 1)
    return [*lower, limit] if limit else []


def _memories(board: Board, processors: Sequence[BoardProcessor]) -> tuple[MemoryLimit, ...]:
    return tuple(
        MemoryLimit(size, tuple(index for index, each in enumerate(processors) if each.device.memory == name))
        for name, size in memory_sizes(board).items()
    )


def _by_group(graph: Graph, values: Sequence[int]) -> Array:
    # Groups are numbered without gaps, so that the sums by number are the groups'.
    return np.bincount([operator.group for operator in graph.operators], weights=values).astype(np.float64)


def _bytes(specs: Sequence[TensorSpec]) -> int:
    return sum(spec.nbytes for spec in specs)
