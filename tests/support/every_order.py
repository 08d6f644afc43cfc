"""Every division of a small graph in every order: an oracle by the words of docs/planning.md alone.

Times are so long that handing tensors over costs nothing beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from pipeline.core.board.board import Board, Cluster, Device
from pipeline.core.plan.plan import TensorSpec
from pipeline.split.graph import Graph
from pipeline.split.model_operators import Operator

Groups = frozenset[int]


@dataclass(frozen=True)
class Stage:
    """Some groups on a device; on the CPU by replicas on cores of these speeds, of so many threads each."""

    groups: Groups
    device: Device
    seconds: tuple[float, ...]
    threads: int = 0
    speeds: tuple[float, ...] = ()

    @property
    def interval(self) -> float:
        """Seconds between two frames, each replica taking what frames it can."""
        return 1 / sum(1 / seconds for seconds in self.seconds)

    @property
    def joules(self) -> float:
        """Energy of one frame above rest: each replica's share of the frames, of the time, and of the cores."""
        watts = self.device.watts_busy - self.device.watts_idle
        if not self.speeds:
            return watts * self.seconds[0]
        cores = sum(self.device.speed(core) for core in self.device.cores)
        # A replica takes as many frames as it is fast, so that all are busy all the time.
        return watts * self.interval * sum(self.threads * speed for speed in self.speeds) / cores


@dataclass(frozen=True)
class Division:
    """Stages in order, of groups that read others."""

    stages: tuple[Stage, ...]
    reads: Sequence[Sequence[int]]

    @cached_property
    def interval(self) -> float:
        """Seconds between two frames: of the slowest stage, or of a device on which stages take turns."""
        turns: dict[str, float] = {}
        for stage in self.stages:
            if not stage.speeds:
                turns[stage.device.name] = turns.get(stage.device.name, 0.0) + stage.seconds[0]
        return max([*(stage.interval for stage in self.stages), *turns.values()])

    @cached_property
    def latency(self) -> float:
        """Seconds of one frame on the longest path, through the slowest replicas."""
        ends: dict[Groups, float] = {}
        for stage in self.stages:
            read = {each for group in stage.groups for each in self.reads[group]}
            before = [end for groups, end in ends.items() if groups & read]
            ends[stage.groups] = max(stage.seconds) + max(before, default=0.0)
        return max(ends.values())

    @cached_property
    def joules(self) -> float:
        """Energy of one frame above rest."""
        return sum(stage.joules for stage in self.stages)


@dataclass(frozen=True)
class Case:
    """A graph by what its groups read, a board, and the seconds of each group on one core of a device."""

    reads: Sequence[Sequence[int]]
    board: Board
    seconds: Mapping[str, list[float]]

    @property
    def graph(self) -> Graph:
        """The graph, whose tensors are as good as nothing."""
        names = ["x", *(f"t{number}" for number in range(len(self.reads)))]
        tensors = {name: TensorSpec(name, (1,)) for name in names}
        operators = tuple(
            Operator(
                f"n{number}", "softmax", tuple(f"t{each}" for each in reads) or ("x",), (f"t{number}",), 1, 0, number
            )
            for number, reads in enumerate(self.reads)
        )
        return Graph("graph", operators, tensors, (tensors["x"],), (tensors[names[-1]],))

    def divisions(self) -> Iterator[Division]:
        """Yield all there are."""
        left = {device.name: _clusters(device) for device in self.board.devices}
        yield from (Division(stages, self.reads) for stages in self._extend(frozenset(), (), left))

    def _extend(
        self, done: Groups, stages: tuple[Stage, ...], left: Mapping[str, dict[float, int]]
    ) -> Iterator[tuple[Stage, ...]]:
        if len(done) == len(self.reads):
            yield stages
            return
        for downset in self._downsets:
            if done < downset:
                for stage in self._stages(downset - done, stages, left):
                    counts = {
                        speed: count - stage.threads * stage.speeds.count(speed)
                        for speed, count in left[stage.device.name].items()
                    }
                    yield from self._extend(downset, (*stages, stage), {**left, stage.device.name: counts})

    @cached_property
    def _downsets(self) -> list[Groups]:
        """Sets of groups that have whatever these read."""
        subsets = (frozenset(np.flatnonzero(bits).tolist()) for bits in product((0, 1), repeat=len(self.reads)))
        return [subset for subset in subsets if all(set(self.reads[group]) <= subset for group in subset)]

    def _stages(self, groups: Groups, stages: Sequence[Stage], left: Mapping[str, dict[float, int]]) -> Iterator[Stage]:
        for device in self.board.devices:
            seconds = sum(self.seconds[device.name][group] for group in groups)
            if not device.cores:
                if sum(stage.device is device for stage in stages) < max(1, device.at_once):
                    yield Stage(groups, device, (seconds,))
                continue
            for threads, speeds in _replicas(left[device.name]):
                parallel = seconds if threads == 1 else 0.2 * seconds + 0.8 * seconds / threads + 1e-5
                yield Stage(groups, device, tuple(parallel / speed for speed in speeds), threads, speeds)


def _clusters(device: Device) -> dict[float, int]:
    """Return how many cores of each speed a device has."""
    speeds = [device.speed(core) for core in device.cores]
    return {speed: speeds.count(speed) for speed in dict.fromkeys(speeds)}


def _replicas(left: Mapping[float, int]) -> Iterator[tuple[int, tuple[float, ...]]]:
    """Yield numbers of threads with the speed of each replica, as far as there are cores."""
    for threads in range(1, max(left.values(), default=0) + 1):
        for counts in product(*(range(count // threads + 1) for count in left.values())):
            if any(counts):
                yield threads, tuple(speed for speed, count in zip(left, counts, strict=True) for _ in range(count))


def random_case(seed: int) -> Case:
    """Return a graph of branches, in any order, on unlike cores, with or without an accelerator."""
    random = np.random.default_rng(seed)
    count = int(random.integers(4, 6))
    reads: list[list[int]] = [[]]
    while len(reads) < count - 1:
        reads.append([int(random.integers(0, min(2, len(reads))))])
    unread = sorted(set(range(count - 1)) - {source for each in reads for source in each})
    reads.append(unread)
    big = int(random.integers(1, 3))
    clusters = (Cluster("big", tuple(range(big))), Cluster("little", (2, 3)[: int(random.integers(1, 3))], speed=0.4))
    watts = random.uniform(1, 5, 2)
    devices = [Device("cpu", clusters=clusters, bytes_per_s=1e12, watts_busy=float(watts[0]))]
    if random.random() < 0.6:
        at_once = int(random.integers(1, 3))
        devices.append(Device("npu", "vta", at_once=at_once, bytes_per_s=1e12, watts_busy=float(watts[1])))
    seconds = {device.name: random.uniform(0.1, 1.0, count).tolist() for device in devices}
    return Case(reads, Board("board", tuple(devices)), seconds)


def least(divisions: Sequence[Division], value: Callable[[Division], float], longest: float = np.inf) -> float:
    """Return the least value of the divisions that keep up with an interval, infinite if none does."""
    return min((value(division) for division in divisions if division.interval <= longest * (1 + 1e-9)), default=np.inf)
