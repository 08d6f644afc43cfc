"""Times of a division by the words of docs/planning.md alone; nothing of the package counts here but its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan
from tests.support.small_cases import SmallCase

HOP_S, STEP_S = 50e-6, 30e-6
LAYOUT = 3.0
CALLER = -1
"""Tensor that the caller gives, beside those that groups make."""


class Part(NamedTuple):
    """Consecutive groups of a stage on one device."""

    device: str
    groups: tuple[int, ...]


class Way(NamedTuple):
    """A stage: its worker's own device, threads of a worker, each worker's speed, and the parts of a frame's work."""

    device: str
    threads: int
    speeds: tuple[float, ...]
    parts: tuple[Part, ...]

    @property
    def groups(self) -> frozenset[int]:
        """All groups."""
        return frozenset(group for part in self.parts for group in part.groups)


class Phase(NamedTuple):
    """Seconds of a worker, and what it needs meanwhile: a resource of some units, and bytes of a memory."""

    seconds: float
    resource: str = ""
    units: int = 1
    memory: str = ""
    memory_s: float = 0.0
    wakes: bool = False
    device: str = ""

    @property
    def least_s(self) -> float:
        """Seconds if nobody else needs the memory."""
        return max(self.seconds, self.memory_s)


class Unit(NamedTuple):
    """Groups that tensors travel between."""

    device: str
    groups: frozenset[int]


class Move(NamedTuple):
    """A tensor on its way; on a link if it is a copy that has one to itself."""

    seconds: float
    nbytes: int = 0
    link: str = ""
    is_copy: bool = False


@dataclass(frozen=True)
class Rules:
    """The rules for one case, whose devices are that many times as fast as their rates say.

    Links to a device's memory are so too.
    """

    case: SmallCase
    factors: Mapping[str, float] = field(default_factory=dict)

    @property
    def board(self) -> Board:
        """The case's board."""
        return self.case.board

    @cached_property
    def devices(self) -> Mapping[str, Device]:
        """Devices by name."""
        return {
            device.name: replace(device, bytes_per_s=device.bytes_per_s * self.factor(device.name))
            for device in self.board.devices
        }

    def factor(self, device: str) -> float:
        """Return how many times as fast a device is."""
        return self.factors.get(device, 1.0)

    @cached_property
    def pools(self) -> Mapping[str, tuple[str, float]]:
        """Name and rate of what each memory is a part of."""
        joined = {device.memory: device.memory for device in self.board.devices}
        for link in self.board.links:
            if link.shared or link.same_chips:
                joined = {
                    memory: joined[link.ends[0]] if name in link.ends else name for memory, name in joined.items()
                }
        rates = dict.fromkeys(joined.values(), 0.0)
        for device in self.board.devices:
            rates[joined[device.memory]] = max(rates[joined[device.memory]], device.memory_bytes_per_s)
        return {memory: (name, rates[name]) for memory, name in joined.items()}

    def size(self, tensor: int) -> int:
        """Return the bytes of what a group makes, or of what the caller gives."""
        return self.case.nbytes[tensor + 1]

    def reads(self, groups: Sequence[int] | frozenset[int]) -> set[int]:
        """Return the tensors that some groups read of others."""
        return {tensor for group in groups for tensor in self.case.reads[group] or [CALLER]} - set(groups)

    def group_bytes(self, group: int) -> float:
        """Return the bytes that a group moves."""
        weights = self.case.parameter_bytes
        return sum(map(self.size, self.reads([group]))) + self.size(group) + (weights[group] if weights else 0)

    def compute_s(self, device: str, groups: Sequence[int], threads: int = 1) -> float:
        """Return the seconds of groups at a device's speed."""
        seconds = [self.case.seconds[device][group] for group in groups]
        several = [0.2 * s + 0.8 * s / threads + 10e-6 for s in seconds] if threads > 1 else seconds
        return sum(several) / self.factor(device)

    def estimates(self) -> dict[str, list[float]]:
        """Return the seconds of groups by device, and by device and threads."""
        groups = range(len(self.case.reads))
        names = {device.name: (device.name, 1) for device in self.board.devices}
        for device in self.board.devices:
            names |= {f"{device.name} {threads}": (device.name, threads) for threads in range(2, len(device.cores) + 1)}
        return {
            key: [self.compute_s(name, [group], threads) for group in groups] for key, (name, threads) in names.items()
        }

    def _copy(self, memory: str, nbytes: int, receiver: Device) -> Move:
        link = next(link for link in self.board.links if set(link.ends) == {"host", memory})
        rate = receiver.bytes_per_s if link.shared else link.bytes_per_s
        name = "" if link.shared else f"link {memory}"
        factor = next(self.factor(device.name) for device in self.board.devices if device.memory == memory)
        seconds = link.latency_s / factor + nbytes / (rate if link.shared else rate * factor)
        return Move(seconds, nbytes, name, is_copy=True)

    def moves(self, units: Sequence[Unit], results: set[int]) -> Iterator[tuple[list[Move], list[Move]]]:
        """Yield what comes into each unit, and what goes out."""
        makers = {group: self.devices[unit.device] for unit in units for group in unit.groups}
        cpu = next(device for device in self.devices.values() if device.cores)
        fetched: set[tuple[int, str]] = set()
        for unit in units:
            device, come, go = self.devices[unit.device], [], []
            for tensor in sorted(self.reads(unit.groups)):
                nbytes, maker = self.size(tensor), makers.get(tensor)
                memory = maker.memory if maker else "host"
                if maker and memory == device.memory:
                    come.append(Move(nbytes / device.bytes_per_s * (1 + LAYOUT * bool(device.cores))))
                elif memory != device.memory != "host" and (tensor, device.memory) not in fetched:
                    fetched.add((tensor, device.memory))
                    come.append(self._copy(device.memory, nbytes, device))
            for tensor in sorted(unit.groups):
                readers = [self.devices[user.device].memory for user in units if tensor in self.reads(user.groups)]
                if device.memory in readers and device.cores:
                    go.append(Move(LAYOUT * self.size(tensor) / device.bytes_per_s))
                away = {*readers, *(["host"] if tensor in results else [])} - {device.memory}
                if away and device.memory != "host":
                    go.append(self._copy(device.memory, self.size(tensor), cpu))
            yield come, go

    def workers(self, ways: Sequence[Way]) -> list[list[list[Phase]]]:
        """Return the phases of each worker of each stage, without hops."""
        lent = {part.device for way in ways for part in way.parts if part.device != way.device}
        last = len(self.case.reads) - 1
        borders = self.moves([Unit(way.device, way.groups) for way in ways], {last})
        result = []
        for way, (come, go) in zip(ways, borders, strict=True):
            if [part.device for part in way.parts] == [way.device]:
                inner = [(come, go)]
                outer = (0.0, 0.0)
            else:
                read = {tensor for user in ways if user is not way for tensor in self.reads(user.groups)} | {last}
                inner = list(self.moves([Unit(part.device, frozenset(part.groups)) for part in way.parts], read))
                outer = (sum(move.seconds for move in come), sum(move.seconds for move in go))
            result.append([self._phases(way, speed, inner, outer, lent) for speed in way.speeds])
        return result

    def _phases(
        self,
        way: Way,
        speed: float,
        moves: Sequence[tuple[list[Move], list[Move]]],
        outer: tuple[float, float],
        lent: set[str],
    ) -> list[Phase]:
        phases = list[Phase]()
        home = [number for number, part in enumerate(way.parts) if part.device == way.device] or [0]
        for number, (part, (come, go)) in enumerate(zip(way.parts, moves, strict=True)):
            device = self.devices[part.device]
            pool, rate = self.pools[device.memory]
            phases += [self._phase(move, part.device, pool, rate) for move in come if move.is_copy]
            seconds = sum(move.seconds for move in (*come, *go) if not move.is_copy)
            if part.device == way.device:
                seconds += self.compute_s(part.device, part.groups, way.threads) / speed
            else:
                seconds += self.compute_s(part.device, part.groups) + STEP_S / self.factor(part.device)
            # What the stage reads of others and makes for them is moved by its first and last step of its own.
            seconds += outer[0] * (number == home[0]) + outer[1] * (number == home[-1])
            in_turns = part.device in lent or device.overlaps or (device.at_once > 1 and not device.cores)
            phases.append(
                Phase(
                    seconds,
                    f"device {part.device}" if in_turns else "",
                    1,
                    pool if rate else "",
                    sum(map(self.group_bytes, part.groups)) / rate / self.factor(part.device) if rate else 0.0,
                    part.device in lent,
                    part.device,
                )
            )
            phases += [self._phase(move, part.device, pool, rate) for move in go if move.is_copy]
        return phases

    @staticmethod
    def _phase(move: Move, device: str, pool: str, rate: float) -> Phase:
        memory, memory_s = (pool, move.nbytes / rate) if rate else ("", 0.0)
        return Phase(move.seconds, move.link, 1, memory, memory_s, device=device)

    @staticmethod
    def least_interval(workers: Sequence[Sequence[Sequence[Phase]]]) -> float:
        """Return the seconds between two frames if nobody waits for another."""
        limits, loads = [0.0], dict[str, float]()
        for stage in workers:
            times = [sum(phase.least_s for phase in phases) + HOP_S for phases in stage]
            limits.append(1 / sum(1 / seconds for seconds in times))
            for phases, seconds in zip(stage, times, strict=True):
                share = 1 / seconds / sum(1 / each for each in times)
                for phase in phases:
                    if phase.resource:
                        loads[phase.resource] = loads.get(phase.resource, 0.0) + phase.least_s * share
                    if phase.memory:
                        loads[f"memory {phase.memory}"] = (
                            loads.get(f"memory {phase.memory}", 0.0) + phase.memory_s * share
                        )
        return max([*limits, *loads.values()])

    def latency(self, ways: Sequence[Way], workers: Sequence[Sequence[Sequence[Phase]]]) -> float:
        """Return the seconds of one frame on the longest path, through the slowest workers."""
        ends = list[float]()
        for number, (way, stage) in enumerate(zip(ways, workers, strict=True)):
            before = [ends[user] for user in range(number) if self.reads(way.groups) & ways[user].groups]
            seconds = max(sum(phase.least_s for phase in phases) for phases in stage) + HOP_S
            ends.append(seconds + max(before, default=0.0))
        return max(ends)

    def joules(self, ways: Sequence[Way], workers: Sequence[Sequence[Sequence[Phase]]]) -> float:
        """Return the energy of one frame above rest."""
        total = 0.0
        for way, stage in zip(ways, workers, strict=True):
            times = [sum(phase.seconds for phase in phases) for phases in stage]
            rates = [1 / seconds for seconds in times]
            own = self.devices[way.device]
            speeds = sum(own.speed(core) for core in own.cores)
            for phases, speed, rate in zip(stage, way.speeds, rates, strict=True):
                share = way.threads * speed / speeds if own.cores else 1.0
                for phase in phases:
                    device = self.devices[phase.device]
                    watts = (device.watts_busy - device.watts_idle) * (share if device is own else 1.0)
                    total += phase.seconds * watts * rate / sum(rates)
        return total

    def ways_of(self, plan: Plan) -> list[Way]:
        """Return the stages of a plan."""
        order = [int(name[1:]) for name in plan.order] or list(range(len(self.case.reads)))
        ways = []
        for stage in plan.stages:
            device = self.devices[stage.device]
            units = [(step.device, step.operators) for step in stage.steps] or [(stage.device, stage.operators)]
            parts = []
            for name, (first, last) in units:
                begin, end = order.index(int(first[1:])), order.index(int(last[1:]))
                parts.append(Part(name, tuple(order[begin : end + 1])))
            threads = len(stage.cores) // stage.replicas if device.cores else 0
            speeds = [device.speed(stage.cores_of(replica)[0]) if threads else 1.0 for replica in range(stage.replicas)]
            ways.append(Way(stage.device, threads, tuple(speeds), tuple(parts)))
        return ways
