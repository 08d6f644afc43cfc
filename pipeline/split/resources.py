"""Graph + board -> Problem: the fused groups as items, core clusters and devices as places."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from pipeline.board import Board, Device
from pipeline.errors import BoardError
from pipeline.plans import TensorSpec
from pipeline.split.cuts import crossing_bytes
from pipeline.split.graph import Graph
from pipeline.split.planning.problem import Array, Choice, Memory, Place, Problem
from pipeline.transfers import enter_s, leave_s

PARALLEL = 0.8
"""Share of a fused group's time that several threads divide among them, for estimates."""

MEET_S = 10e-6
"""What several threads lose in each group by waiting for each other, for estimates."""

MOST_COUNTS = 12
"""Numbers of cores up to which all are tried; above it, those that are powers of two."""


@dataclass(frozen=True, eq=False)
class Footprint:
    """The bytes that a graph needs.

    Attributes
    ----------
    parameters, working : array of float, shape (groups,)
        Of each fused group: its constants, and all tensors that are alive while it runs.
    crossing : array of float, shape (groups + 1,)
        Of a frame at each position between groups, the ends included.
    """

    parameters: Array
    working: Array
    crossing: Array

    @staticmethod
    def of(graph: Graph) -> Footprint:
        """Return what a graph needs."""
        crossing = np.array([_bytes(graph.inputs), *crossing_bytes(graph), _bytes(graph.outputs)], np.float64)
        made = _by_group(graph, [_made(graph, operator.outputs) for operator in graph.operators])
        parameters = _by_group(graph, [operator.parameter_bytes for operator in graph.operators])
        return Footprint(parameters, crossing[:-1] + made, crossing)

    def kept(self, begin: int, end: int, replicas: int = 1) -> float:
        """Return what a stage of the groups ``[begin, end)`` keeps, without the frames that wait in front of it."""
        return float(replicas * (self.parameters[begin:end].sum() + self.working[begin:end].max()))


@dataclass(frozen=True)
class Group:
    """A place, as the board describes it.

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
        whole = self.device.watts_busy - self.device.watts_idle
        speeds = [self.device.speed(core) for core in self.device.cores]
        return whole * self.speed / sum(speeds) if self.cores else whole


def threaded(seconds: Array, threads: int, groups: int = 1) -> Array:
    """Return the estimated time with several threads of what takes `seconds` with one."""
    if threads <= 1:
        return seconds
    return seconds * (1 - PARALLEL + PARALLEL / threads) + MEET_S * groups


def places(board: Board) -> list[Group]:
    """Return the clusters of each device's cores, and the devices without cores."""
    found = []
    for device in board.devices:
        clusters = [(each.cores, each.speed) for each in device.clusters] or [(device.cores, 1.0)]
        found += [Group(device, cores, speed) for cores, speed in clusters]
    return found


def problem(
    graph: Graph,
    board: Board,
    seconds: Callable[[Device], Sequence[float]],
    *,
    queue_depth: int = 1,
    replicas: bool = True,
) -> Problem:
    """Return the problem of dividing `graph` among the devices of `board`.

    Parameters
    ----------
    graph : Graph
    board : Board
    seconds : callable
        Returns the seconds of each fused group on one core of a device, or on the device if it has no cores.
    queue_depth : int
        How many frames may wait in front of a stage.
    replicas : bool
        Whether a stage may run on several frames at once.
    """
    groups, footprint = places(board), Footprint.of(graph)
    choices = [
        choice
        for device in board.devices
        for choice in _choices(groups, device, np.asarray(seconds(device), np.float64), replicas=replicas)
    ]
    enter, leave = _borders(board, groups, footprint.crossing.astype(int).tolist())
    return Problem(
        places=tuple(_place(group) for group in groups),
        choices=tuple(choices),
        enter=enter,
        leave=leave,
        memories=_memories(board, groups),
        parameters=footprint.parameters,
        working=footprint.working,
        waiting=footprint.crossing * queue_depth,
    )


def rooms(board: Board) -> dict[str, int]:
    """Return the bytes of each memory whose size is known."""
    sizes: dict[str, list[int]] = {}
    for device in board.devices:
        if device.memory_bytes:
            sizes.setdefault(device.memory, []).append(device.memory_bytes)
    return {name: min(given) for name, given in sizes.items()}


def _place(group: Group) -> Place:
    device = group.device
    name = device.name if len(device.clusters) < 2 or not group.cores else f"{device.name} cores {group.cores}"
    if group.cores:
        return Place(name, len(group.cores))
    return Place(name, device.places, shares=device.places > 1, overlaps=device.overlaps)


def _choices(groups: Sequence[Group], device: Device, seconds: Array, *, replicas: bool) -> Iterator[Choice]:
    mine = [number for number, group in enumerate(groups) if group.device is device]
    if not groups[mine[0]].cores:
        yield Choice(mine[0], _use(groups, {mine[0]: 1}), seconds, watts=groups[mine[0]].watts)
        return
    for threads in _counts(max(len(groups[number].cores) for number in mine)):
        times = threaded(seconds, threads)
        most = [_counts(len(groups[number].cores) // threads) for number in mine]
        for counts in product(*([0, *each] for each in most)):
            # Replicas on unlike cores take what frames they can; together they are as fast as their rates' sum.
            if sum(counts) == 1 or (replicas and sum(counts) > 1):
                yield _replicated(groups, dict(zip(mine, counts, strict=True)), threads, times)


def _replicated(groups: Sequence[Group], counts: Mapping[int, int], threads: int, seconds: Array) -> Choice:
    total = sum(counts.values())
    rate = sum(count * groups[number].speed for number, count in counts.items())
    power = sum(count * groups[number].watts * threads for number, count in counts.items())
    first = next(number for number, count in counts.items() if count)
    return Choice(
        place=first,
        use=_use(groups, {number: count * threads for number, count in counts.items()}),
        seconds=seconds * total / rate,
        replicas=total,
        threads=threads,
        watts=power / total,
    )


def _use(groups: Sequence[Group], counts: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(counts.get(number, 0) for number in range(len(groups)))


def _counts(most: int) -> list[int]:
    """Return numbers from 1 to `most`: all of them if they are few."""
    round_ones = (each for each in range(1, most) if each <= MOST_COUNTS or each.bit_count() == 1)
    return [*round_ones, most] if most else []


def _memories(board: Board, groups: Sequence[Group]) -> tuple[Memory, ...]:
    return tuple(
        Memory(size, tuple(number for number, group in enumerate(groups) if group.device.memory == name))
        for name, size in rooms(board).items()
    )


def _borders(board: Board, groups: Sequence[Group], crossing: Sequence[int]) -> tuple[Array, Array]:
    devices: list[Device | None] = [*(group.device for group in groups), None]
    size = len(groups)
    enter, leave = np.zeros((size + 1, size, len(crossing))), np.zeros((size, size + 1, len(crossing)))
    for other, own in product(range(size + 1), range(size)):
        target = groups[own].device
        enter[other, own] = [_or_never(enter_s, board, devices[other], target, nbytes) for nbytes in crossing]
        leave[own, other] = [_or_never(leave_s, board, target, devices[other], nbytes) for nbytes in crossing]
    return enter, leave


def _or_never(seconds: Callable[..., float], *way: object) -> float:
    try:
        return seconds(*way)
    except BoardError:  # there is no link between the two
        return math.inf


def _by_group(graph: Graph, values: Sequence[int]) -> Array:
    return np.bincount([operator.group for operator in graph.operators], weights=values).astype(np.float64)


def _made(graph: Graph, names: Sequence[str]) -> int:
    return sum(graph.tensors[name].nbytes for name in names)


def _bytes(specs: Sequence[TensorSpec]) -> int:
    return sum(spec.nbytes for spec in specs)
