"""Division: a graph with given devices, or given cuts, or a given number of stages on one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from pipeline.board import Board, Device
from pipeline.errors import PlanError
from pipeline.plans import Plan, StagePlan
from pipeline.split.cuts import crossing_bytes
from pipeline.split.extract import parts
from pipeline.split.graph import Graph
from pipeline.split.partition import partition
from pipeline.split.resources import threaded
from pipeline.transfers import enter_s, leave_s, own_cores, replicas_on

_IMPOSSIBLE = 1e3
"""What a group costs where it cannot run, in times of all that can: no division that avoids it is as slow."""


@dataclass(frozen=True)
class Division:
    """A graph that is to be divided, and what it shall run on.

    Attributes
    ----------
    graph : Graph
    board : Board
    devices : sequence of str or None
        Of each stage; the board's first one by default.
    seconds : callable
        Returns the seconds of each fused group on one core of a device, infinite where it cannot run.
    measured : bool
        Whether they are measured.
    """

    graph: Graph
    board: Board
    devices: Sequence[str] | None
    seconds: Callable[[Device], Sequence[float]]
    measured: bool = False

    def best_positions(self, count: int) -> list[int]:
        """Return the cuts that make the slowest of `count` stages as fast as possible.

        Raises
        ------
        PlanError
            If the devices cannot run all groups in this order.
        """
        chosen = self.chosen(count)
        compute = np.array([self._compute(device, self._threads(chosen, device)) for device in chosen])
        inner = range(1, len(self._crossing) - 1)
        enter, leave = (
            np.array([[cost(*pair, at) for at in inner] for pair in pairwise(chosen)]).reshape(count - 1, len(inner))
            for cost in (self._enter, self._leave)
        )
        ends = self._enter(None, chosen[0], 0), self._leave(chosen[-1], None, len(self._crossing) - 1)
        impossible = _IMPOSSIBLE * float(
            compute[np.isfinite(compute)].sum() + enter.sum() + leave.sum() + sum(ends) + 1e-9
        )
        compute = np.where(np.isfinite(compute), compute, impossible)
        compute[0, 0] += ends[0]
        compute[-1, -1] += ends[1]
        solution = partition(compute, enter, count, leave)
        if solution.slowest >= impossible:
            raise PlanError(self._stuck([device.name for device in chosen]))
        return [self.graph.group_ends[end - 1] for end in solution.ends[:-1]]

    def plan(self, positions: Sequence[int]) -> Plan:
        """Return the plan with cuts at `positions`.

        Raises
        ------
        PlanError
            If a device cannot run its stage.
        """
        chosen = self.chosen(len(positions) + 1)
        computing, moving = zip(*self._stage_seconds(positions, chosen), strict=True)
        return Plan(
            model=self.graph.name,
            digest=self.graph.digest,
            board=self.board,
            inputs=self.graph.inputs,
            outputs=self.graph.outputs,
            stages=self._stages(positions, chosen, computing, moving),
            measured=self.measured,
        )

    def chosen(self, count: int) -> list[Device]:
        """Return the device of each stage."""
        if self.devices is None:
            return [self.board.devices[0]] * count
        if len(self.devices) != count:
            raise PlanError(f"{len(self.devices)} devices for {count} stages; give one for each stage")
        return [self.board.device(name) for name in self.devices]

    @cached_property
    def _crossing(self) -> list[int]:
        """Bytes at each position between groups, the ends included."""
        ends = [sum(spec.nbytes for spec in specs) for specs in (self.graph.inputs, self.graph.outputs)]
        return [ends[0], *crossing_bytes(self.graph), ends[1]]

    def _enter(self, source: Device | None, target: Device, at: int) -> float:
        return enter_s(self.board, source, target, self._crossing[at])

    def _leave(self, source: Device, target: Device | None, at: int) -> float:
        return leave_s(self.board, source, target, self._crossing[at])

    def _compute(self, device: Device, threads: int) -> np.ndarray:
        return threaded(np.asarray(self.seconds(device), np.float64), threads)

    @staticmethod
    def _threads(chosen: Sequence[Device], device: Device) -> int:
        return len(device.cores) // sum(each is device for each in chosen)

    def _stuck(self, devices: Sequence[str]) -> str:
        for operator in self.graph.operators:
            if all(np.isinf(self.seconds(self.board.device(name))[operator.group]) for name in devices):
                return f"none of {', '.join(dict.fromkeys(devices))} can run {operator.name!r} ({operator.kind})"
        return f"{self.graph.name!r} cannot run on {', '.join(devices)} in this order; leave the choice to the planner"

    def _stages(
        self, positions: Sequence[int], devices: Sequence[Device], computing: Sequence[float], moving: Sequence[float]
    ) -> tuple[StagePlan, ...]:
        seconds = [sum(both) for both in zip(computing, moving, strict=True)]
        pieces, cores = parts(self.graph, positions), _share_cores(devices, seconds)
        return tuple(
            StagePlan(
                name=f"stage{number}",
                device=devices[number].name,
                inputs=piece.inputs,
                outputs=piece.outputs,
                operators=(piece.operators[0].name, piece.operators[-1].name),
                cores=own_cores(devices[number], cores[number]),
                seconds=seconds[number],
                moving=moving[number],
                replicas=replicas_on(devices[number]),
            )
            for number, piece in enumerate(pieces)
        )

    def _stage_seconds(self, positions: Sequence[int], devices: Sequence[Device]) -> list[tuple[float, float]]:
        """Return the seconds of computing, and of transfers as the solver counts them."""
        ends = list(self.graph.group_ends)
        edges = [0, *(ends.index(position) + 1 for position in positions), len(ends)]
        around = [None, *devices, None]
        found = []
        for number, (start, end) in enumerate(pairwise(edges)):
            before, device, after = around[number], devices[number], around[number + 2]
            compute = float(self._compute(device, self._threads(devices, device))[start:end].sum())
            if np.isinf(compute):
                raise PlanError(self._misplaced(device, start, end))
            found.append((compute, self._enter(before, device, start) + self._leave(device, after, end)))
        return found

    def _misplaced(self, device: Device, start: int, end: int) -> str:
        times = self.seconds(device)
        wrong = next(each for each in self.graph.operators if start <= each.group < end and np.isinf(times[each.group]))
        return (
            f"device {device.name!r} cannot run {wrong.name!r} ({wrong.kind}); cut in front of it, or leave the choice "
            "of devices to the planner"
        )


def _share_cores(devices: Sequence[Device], seconds: Sequence[float]) -> list[tuple[int, ...]]:
    """Divide each device's cores among its stages; no core belongs to two, unless there are more stages than cores."""
    result: list[tuple[int, ...]] = [()] * len(devices)
    for device in dict.fromkeys(each.name for each in devices):
        members = [index for index, each in enumerate(devices) if each.name == device]
        cores = devices[members[0]].cores
        shared = _one_core_each(cores, members, seconds) if len(members) > len(cores) else _even(cores, members)
        for index, own in shared.items():
            result[index] = own
    return result


def _even(cores: Sequence[int], members: Sequence[int]) -> dict[int, tuple[int, ...]]:
    return {index: tuple(own.tolist()) for index, own in zip(members, np.array_split(cores, len(members)), strict=True)}


def _one_core_each(
    cores: Sequence[int], members: Sequence[int], seconds: Sequence[float]
) -> dict[int, tuple[int, ...]]:
    """Longest stage first, each to the core with the least work so far."""
    load = dict.fromkeys(cores, 0.0)
    result: dict[int, tuple[int, ...]] = {}
    for index in sorted(members, key=lambda each: -seconds[each]):
        if load:
            core = min(load, key=lambda each: load[each])
            load[core] += seconds[index]
            result[index] = (core,)
    return result
