"""All divisions of a small graph that promise more than a limit, by the words of docs/planning.md alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, groupby, product

import numpy as np

from tests.support.documented_rules import HOP_S, Part, Phase, Rules, Way
from tests.support.event_simulation import EventSimulation

Places = tuple[int, int]
"""Stages that a device may still have, of how many."""

ROUNDS = 40
"""Frames of a simulated stream, as a multiple of its workers."""


@dataclass(frozen=True)
class Costs:
    """What a division takes if nobody waits in line."""

    ways: tuple[Way, ...]
    interval: float
    latency: float
    joules: float
    size: float


class AllDivisions:
    """Search through all divisions in all orders."""

    def __init__(self, rules: Rules, *, borrowing: bool = True) -> None:
        self.rules, self._borrowing = rules, borrowing
        self._known: dict[frozenset[int], list[tuple[float, float, Way]]] = {}
        self._simulated: dict[tuple[Way, ...], float] = {}

    @cached_property
    def downsets(self) -> list[frozenset[int]]:
        """Sets of groups that have what they read."""
        reads, count = self.rules.case.reads, len(self.rules.case.reads)
        subsets = (frozenset(each) for size in range(1, count + 1) for each in combinations(range(count), size))
        return [subset for subset in subsets if all(set(reads[group]) <= subset for group in subset)]

    def below(self, interval: float, latency: float = np.inf, joules: float = np.inf) -> Iterator[Costs]:
        """Yield the divisions that may be below all limits."""
        cores = {device.name: _speeds(device) for device in self.rules.board.devices}
        counts = {device.name: max(1, device.at_once) for device in self.rules.board.devices if not device.cores}
        places = {name: (count, count) for name, count in counts.items()}
        yield from self._extend((), frozenset(), cores, places, (interval, latency, joules))

    def _extend(
        self,
        ways: tuple[Way, ...],
        done: frozenset[int],
        cores: Mapping[str, Mapping[float, int]],
        places: Mapping[str, Places],
        limits: tuple[float, float, float],
    ) -> Iterator[Costs]:
        if len(done) == len(self.rules.case.reads):
            costs = self.costs(ways)
            if costs.interval < limits[0] and costs.latency < limits[1] and costs.joules < limits[2]:
                yield costs
            return
        for downset in self.downsets:
            if not done < downset:
                continue
            for interval, least_s, way in self._ways(downset - done):
                # The fastest first: all behind it are slower.
                if interval >= limits[0]:
                    break
                # Of one frame, several workers save neither time nor energy.
                is_vain = limits[0] == np.inf and len(way.speeds) > 1 and bool(way.threads)
                if least_s >= limits[1] or is_vain or self._least_joules((*ways, way)) >= limits[2]:
                    continue
                rest = _take(way, cores, places)
                if rest is not None and self._prefix_latency((*ways, way)) < limits[1]:
                    yield from self._extend((*ways, way), downset, *rest, limits)

    def _prefix_latency(self, ways: Sequence[Way]) -> float:
        ends = list[float]()
        for number, way in enumerate(ways):
            before = [ends[user] for user in range(number) if self.rules.reads(way.groups) & ways[user].groups]
            ends.append(max(before, default=0.0) + max(self._compute(way)) + HOP_S)
        return max(ends)

    def _least_joules(self, ways: Sequence[Way]) -> float:
        return sum(map(self._way_joules, ways))

    def _way_joules(self, way: Way) -> float:
        """Return the energy of a stage's computing; on the CPU it is the same at all speeds."""
        rules, total = self.rules, 0.0
        for part in way.parts:
            device = rules.devices[part.device]
            speeds = sum(map(device.speed, device.cores)) or 1.0
            is_own = part.device == way.device
            seconds = rules.compute_s(part.device, part.groups, way.threads if is_own else 1)
            total += (
                seconds * (device.watts_busy - device.watts_idle) * (way.threads or 1.0 if is_own else 1.0) / speeds
            )
        return total

    def _compute(self, way: Way) -> list[float]:
        rules = self.rules
        own = sum(
            rules.compute_s(way.device, part.groups, way.threads) for part in way.parts if part.device == way.device
        )
        lent = sum(rules.compute_s(part.device, part.groups) for part in way.parts if part.device != way.device)
        return [own / speed + lent for speed in way.speeds]

    def _ways(self, groups: frozenset[int]) -> list[tuple[float, float, Way]]:
        """Return the ways of a stage with the least that they take, the fastest first."""
        if groups not in self._known:
            ways = []
            for way in self._all_ways(groups):
                times = self._compute(way)
                slots = 1 if self.rules.devices[way.device].overlaps else len(times)
                if not np.isfinite(max(times)):
                    continue
                interval = times[0] if slots == 1 else 1 / sum(1 / seconds for seconds in times)
                lent = [
                    self.rules.compute_s(part.device, part.groups) for part in way.parts if part.device != way.device
                ]
                ways.append((max([interval, *lent]), max(times), way))
            self._known[groups] = sorted(ways, key=lambda each: each[:2])
        return self._known[groups]

    def _all_ways(self, groups: frozenset[int]) -> Iterator[Way]:
        whole = tuple(sorted(groups))
        for device in self.rules.board.devices:
            if not device.cores:
                yield Way(device.name, 0, (1.0,) * (1 + device.overlaps), (Part(device.name, whole),))
                continue
            paths = [(Part(device.name, whole),), *(self._paths(device.name, groups) if self._borrowing else ())]
            for (threads, speeds), parts in product(_workers(_speeds(device)), paths):
                yield Way(device.name, threads, speeds, parts)

    def _paths(self, own: str, groups: frozenset[int]) -> Iterator[tuple[Part, ...]]:
        """Yield the ways to borrow for some groups of a stage, each of them once."""
        names = [own, *(device.name for device in self.rules.board.devices if not device.cores)]
        seen = set()
        for order in self._orders(groups, ()):
            for devices in product(names, repeat=len(order)):
                pairs = groupby(zip(devices, order, strict=True), key=lambda pair: pair[0])
                parts = tuple(Part(name, tuple(sorted(group for _, group in run))) for name, run in pairs)
                if parts not in seen and any(name != own for name in devices):
                    seen.add(parts)
                    yield parts

    def _orders(self, groups: frozenset[int], done: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(done) == len(groups):
            yield done
        for group in sorted(groups - set(done)):
            if set(self.rules.case.reads[group]) & groups <= set(done):
                yield from self._orders(groups, (*done, group))

    def unsplit(self) -> list[Costs]:
        """Return all unsplit ways, of the whole model on one device."""
        whole = frozenset(range(len(self.rules.case.reads)))
        ways = (way for _, _, way in self._ways(whole) if [part.device for part in way.parts] == [way.device])
        return [self.costs([way]) for way in ways]

    def costs(self, ways: Sequence[Way]) -> Costs:
        """Return what a division takes if nobody waits."""
        workers = self.rules.workers(ways)
        units = sum(way.threads * len(way.speeds) or 1 for way in ways)
        return Costs(
            tuple(ways),
            self.rules.least_interval(workers),
            self.rules.latency(ways, workers),
            self.rules.joules(ways, workers),
            len(ways) + 1e-3 * units,
        )

    def simulate(self, ways: Sequence[Way], depths: Sequence[int] = (), inside: int = 0) -> float:
        """Return the seconds between two frames as an event simulation counts them."""
        key = tuple(ways)
        if key not in self._simulated:
            workers = self.rules.workers(ways)
            before = [
                [user for user in range(number) if self.rules.reads(way.groups) & ways[user].groups]
                for number, way in enumerate(ways)
            ]
            inside = inside or sum(map(_frames_inside, workers))
            simulation = EventSimulation(workers, before, depths or [2] * len(ways), inside)
            frames = ROUNDS * sum(map(len, workers)) + 2 * inside
            self._simulated[key] = simulation.interval(frames)
        return self._simulated[key]

    def fastest(self, interval: float, latency: float = np.inf) -> float:
        """Return the least simulated interval below a limit, or the limit."""
        while True:
            better = self._first_below(interval, latency)
            if better is None:
                return interval
            interval = better

    def _first_below(self, interval: float, latency: float) -> float | None:
        for costs in self.below(interval, latency):
            if (simulated := self.simulate(costs.ways)) < interval * (1 - 1e-4):
                return simulated
        return None


def _frames_inside(stage: Sequence[Sequence[Phase]]) -> int:
    """Return how many frames keep all workers at work, and those that wait in front of them."""
    times = [sum(phase.seconds for phase in phases) for phases in stage]
    return sum(int(np.ceil(max(times) / seconds - 1e-9)) for seconds in times) + 2


def _speeds(device: object) -> dict[float, int]:
    speeds = [device.speed(core) for core in device.cores]  # type: ignore[attr-defined]
    return {speed: speeds.count(speed) for speed in dict.fromkeys(speeds)}


def _workers(cores: Mapping[float, int]) -> Iterator[tuple[int, tuple[float, ...]]]:
    for threads in range(1, max(cores.values()) + 1):
        for counts in product(*(range(count // threads + 1) for count in cores.values())):
            if any(counts):
                yield threads, tuple(speed for speed, count in zip(cores, counts, strict=True) for _ in range(count))


def _take(
    way: Way, cores: Mapping[str, Mapping[float, int]], places: Mapping[str, Places]
) -> tuple[Mapping[str, Mapping[float, int]], Mapping[str, Places]] | None:
    """Return what is left of cores and places, None if there are too few."""
    places = dict(places)
    for name in {part.device for part in way.parts} - {way.device}:
        # What a stage borrows is its own, all of it.
        left, every = places[name]
        if left < every:
            return None
        places[name] = 0, every
    if not way.threads:
        left, every = places[way.device]
        places[way.device] = left - 1, every
        return (cores, places) if left else None
    free = {speed: count - way.threads * way.speeds.count(speed) for speed, count in cores[way.device].items()}
    return None if min(free.values()) < 0 else ({**cores, way.device: free}, places)
