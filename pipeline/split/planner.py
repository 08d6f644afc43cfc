"""Graph + board -> Plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from pipeline.board import Board, Device
from pipeline.errors import PlanError
from pipeline.plans import Plan, StagePlan
from pipeline.split.costs import estimate
from pipeline.split.cuts import crossing_bytes, resolve
from pipeline.split.extract import parts
from pipeline.split.graph import Graph
from pipeline.split.partition import partition

# Fewer stages are chosen unless more of them are this much faster.
_WORTH_IT = 1.03


def make_plan(  # noqa: PLR0913 - all but the first two by keyword
    graph: Graph,
    board: Board,
    *,
    stages: int | str = "auto",
    cuts: Sequence[str | int] | None = None,
    devices: Sequence[str] | None = None,
    queue_depth: int = 2,
    seconds: Sequence[float] | None = None,
) -> Plan:
    """Divide `graph` among the devices of `board`.

    Parameters
    ----------
    graph : Graph
    board : Board
    stages : int or "auto"
        How many stages; the cuts are chosen to make the slowest one as fast as possible.
    cuts : sequence of str or int, optional
        Cuts by tensor name, operator name or position instead.
    devices : sequence of str, optional
        Device of each stage, which also says how many; the board's first one by default.
    queue_depth : int
        How many frames may wait in front of each stage.
    seconds : sequence of float, optional
        Measured seconds of each fused group on one core; estimates by default.

    Returns
    -------
    Plan

    Raises
    ------
    PlanError
        If a cut is unknown, there are fewer legal cuts than asked for, or `stages`, `cuts` and `devices` disagree.
    """
    division = _Division(graph, board, devices, queue_depth, seconds)
    if cuts is not None:
        positions = resolve(graph, cuts)
        if stages not in ("auto", len(positions) + 1):
            raise PlanError(
                f"{len(positions)} cuts make {len(positions) + 1} stages, not {stages!r}; give one of the two"
            )
        return division.plan(positions)
    if stages == "auto" and devices is None:
        return _best(division)
    count = _count(graph, len(devices or ()) if stages == "auto" else stages)
    return division.plan(division.best_positions(count))


def _count(graph: Graph, stages: int | str) -> int:
    most = len(graph.group_ends)
    if not isinstance(stages, int) or isinstance(stages, bool) or stages < 1:
        raise PlanError(f"stages is {stages!r}; it must be a whole number of at least 1, or 'auto'")
    if stages > most:
        raise PlanError(
            f"{stages} stages need {stages - 1} cuts, but {graph.name!r} has {most - 1} legal ones: "
            f"at most {most} stages"
        )
    return stages


def _best(division: _Division) -> Plan:
    """Return the plan with the fewest stages that comes close to the highest predicted throughput."""
    most = min(max(1, len(division.board.devices[0].cores)), len(division.graph.group_ends))
    plans = [division.plan(division.best_positions(count)) for count in range(1, most + 1)]
    fastest = min(plan.slowest for plan in plans)
    return next(plan for plan in plans if plan.slowest <= fastest * _WORTH_IT)


@dataclass(frozen=True)
class _Division:
    """A graph that is to be divided, and what it shall run on."""

    graph: Graph
    board: Board
    devices: Sequence[str] | None
    queue_depth: int
    seconds: Sequence[float] | None
    _estimates: dict[str, Sequence[float]] = field(default_factory=dict)

    def best_positions(self, count: int) -> list[int]:
        """Return the cuts that make the slowest of `count` stages as fast as possible."""
        chosen = self._chosen(count)
        nbytes = crossing_bytes(self.graph)
        compute = np.array([self._group_seconds(device) for device in chosen])
        crossing = np.array([[self.board.transfer_s(*pair, each) for each in nbytes] for pair in pairwise(chosen)])
        solution = partition(compute, crossing.reshape(count - 1, len(nbytes)), count)
        return [self.graph.group_ends[end - 1] for end in solution.ends[:-1]]

    def plan(self, positions: Sequence[int]) -> Plan:
        """Return the plan with cuts at `positions`."""
        chosen = self._chosen(len(positions) + 1)
        times = self._stage_seconds(positions, chosen)
        return Plan(
            model=self.graph.name,
            digest=self.graph.digest,
            board=self.board,
            inputs=self.graph.inputs,
            outputs=self.graph.outputs,
            stages=self._stages(positions, chosen, times),
            unsplit_seconds=float(sum(self._group_seconds(chosen[0]))),
            measured=self.seconds is not None,
        )

    def _chosen(self, count: int) -> list[Device]:
        if self.devices is None:
            return [self.board.devices[0]] * count
        if len(self.devices) != count:
            raise PlanError(f"{len(self.devices)} devices for {count} stages; give one for each stage")
        return [self.board.device(name) for name in self.devices]

    def _group_seconds(self, device: Device) -> Sequence[float]:
        if self.seconds is not None:
            return self.seconds
        if device.name not in self._estimates:
            self._estimates[device.name] = estimate(self.graph, device)
        return self._estimates[device.name]

    def _stages(
        self, positions: Sequence[int], devices: Sequence[Device], seconds: Sequence[float]
    ) -> tuple[StagePlan, ...]:
        pieces, cores = parts(self.graph, positions), _share_cores(devices, seconds)
        return tuple(
            StagePlan(
                name=f"stage{number}",
                device=devices[number].name,
                inputs=piece.inputs,
                outputs=piece.outputs,
                operators=(piece.operators[0].name, piece.operators[-1].name),
                cores=cores[number],
                seconds=seconds[number],
                queue_depth=self.queue_depth,
            )
            for number, piece in enumerate(pieces)
        )

    def _stage_seconds(self, positions: Sequence[int], devices: Sequence[Device]) -> list[float]:
        """Compute plus transfers at both borders, as the solver counts them."""
        ends = list(self.graph.group_ends)
        edges = [0, *(ends.index(position) + 1 for position in positions), len(ends)]
        crossing = dict(zip(ends, crossing_bytes(self.graph), strict=False))
        pairs = zip(pairwise(devices), positions, strict=True)
        borders = [self.board.transfer_s(*pair, crossing[at]) for pair, at in pairs]
        transfers = [before + after for before, after in pairwise([0.0, *borders, 0.0])]
        return [
            float(sum(self._group_seconds(device)[start:end])) + transfer
            for device, (start, end), transfer in zip(devices, pairwise(edges), transfers, strict=True)
        ]


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
