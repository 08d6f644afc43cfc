"""Division prefix: first stages in any order, with lower bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import add, gt

import numpy as np

from pipeline.split.orders import GroupDag
from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.limits import ROUNDING
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.bound import Relaxation, relax
from pipeline.split.planning.solver.candidates import UNIT_SIZE
from pipeline.split.planning.solver.tensor_moves import CALLER, TensorMove, TensorMoves

Placed = frozenset[tuple[int, int]]
"""Copies of tensors: a memory, 1 for the caller by copy, 0 in place."""


@dataclass(frozen=True)
class Prefix:
    """Stages that divide a downset.

    Attributes
    ----------
    ends : tuple of int
        Of each stage, the downset that it completes, as bits.
    choices : tuple of int
        Of each stage, the index of its choice.
    compute, transfer, memory : tuple of float
        Of each stage, the seconds of one frame, and what it takes at least: those for which its memory is in use, and
        its copies.
    use : tuple of int
        Units in use.
    loads : tuple of float
        For how many seconds a frame uses each resource.
    copied, handed : frozenset
        Tensors that have come to a memory, and that their makers have handed out.
    """

    ends: tuple[int, ...]
    choices: tuple[int, ...]
    compute: tuple[float, ...]
    transfer: tuple[float, ...]
    memory: tuple[float, ...]
    use: tuple[int, ...]
    loads: tuple[float, ...]
    copied: Placed = frozenset()
    handed: Placed = frozenset()

    @property
    def downset(self) -> int:
        """All groups of its stages."""
        return self.ends[-1] if self.ends else 0

    @property
    def groups(self) -> list[int]:
        """Of each stage, its groups as bits."""
        return [end & ~begin for begin, end in zip((0, *self.ends), self.ends, strict=False)]


class _Transfers:
    """Transfers of some stages' workers, while one stage is added."""

    def __init__(self, prefix: Prefix) -> None:
        self.seconds, self.memory, self.loads = [*prefix.transfer, 0.0], [*prefix.memory, 0.0], list(prefix.loads)
        self.copied, self.handed = set(prefix.copied), set(prefix.handed)

    def use_memory(self, stage: int, resource: int, seconds: float) -> None:
        """Let a stage read or write its memory."""
        self.memory[stage] += seconds
        self.loads[resource] += seconds


class PrefixBuilder:
    """The beginnings of a problem's divisions.

    Parameters
    ----------
    problem : Problem
    dag : GroupDag
    moves : TensorMoves
    """

    def __init__(self, problem: Problem, dag: GroupDag, moves: TensorMoves) -> None:
        self.problem, self._dag, self._moves = problem, dag, moves
        self._units = tuple(processor.units for processor in problem.processors)
        self._resources = {resource.name: index for index, resource in enumerate(problem.resources)}
        # Of each processor, the resource that its memory is, and the seconds of a byte.
        self._memories = [(self._resources.get(f"memory {name}"), seconds) for name, seconds in moves.memory_rates]
        self._all_groups = (1 << len(dag)) - 1
        self._sums: dict[tuple[int, int], tuple[float, tuple[tuple[int, float], ...]]] = {}

    @property
    def start(self) -> Prefix:
        """No stages."""
        problem = self.problem
        return Prefix((), (), (), (), (), (0,) * len(problem.processors), (0.0,) * len(problem.resources))

    def extend(self, prefix: Prefix, end: int, index: int) -> Prefix | None:
        """Return a prefix with one more stage, or None."""
        groups = end & ~prefix.downset
        use = tuple(map(add, prefix.use, self.problem.choices[index].use))
        compute, loads = self.work(index, groups)
        if compute == np.inf or any(map(gt, use, self._units)):
            return None
        transfers = _Transfers(prefix)
        memory, _ = self._memories[self._processor(index)]
        for resource, seconds in loads:
            if resource == memory:
                transfers.use_memory(-1, resource, seconds)
            else:
                transfers.loads[resource] += seconds
        choices = (*prefix.choices, index)
        makers = {group: stage for stage, members in enumerate((*prefix.groups, groups)) for group in _members(members)}
        for tensor in self._tensors_of(groups):
            self._move(tensor, groups, choices, makers, transfers)
        if np.inf in transfers.seconds:
            return None
        return Prefix(
            (*prefix.ends, end), choices, (*prefix.compute, compute), tuple(transfers.seconds), tuple(transfers.memory),
            use, tuple(transfers.loads), frozenset(transfers.copied), frozenset(transfers.handed),
        )  # fmt: skip

    def _tensors_of(self, groups: int) -> Iterator[int]:
        """Yield the groups' tensors from others and for the caller."""
        for number, tensor in enumerate(self._moves.tensors):
            is_made = tensor.maker != CALLER and groups >> tensor.maker & 1
            if tensor.leaves if is_made else tensor.readers & groups:
                yield number

    def _move(
        self, tensor: int, groups: int, choices: tuple[int, ...], makers: dict[int, int], transfers: _Transfers
    ) -> None:
        """Move a tensor to the last stage or caller, as `find_moves`."""
        maker, moves = self._moves.tensors[tensor].maker, self._moves
        stage = CALLER if maker == CALLER else makers[maker]
        source = CALLER if maker == CALLER else self._processor(choices[stage])
        is_made = maker != CALLER and bool(groups >> maker & 1)
        target = CALLER if is_made else self._processor(choices[-1])
        if not is_made:
            entry, copy = moves.entry(tensor, source, target), (tensor, moves.memories[target])
            if copy not in transfers.copied:
                self._transfer(tensor, len(choices) - 1, target, entry, transfers)
            if entry.is_copied:
                transfers.copied.add(copy)
        if source != CALLER:
            leave = moves.exit(tensor, source, target)
            if leave.seconds and (tensor, int(leave.is_copied)) not in transfers.handed:
                transfers.handed.add((tensor, int(leave.is_copied)))
                self._transfer(tensor, stage, source, leave, transfers)

    def _transfer(self, tensor: int, stage: int, processor: int, move: TensorMove, transfers: _Transfers) -> None:
        """Let a worker move a tensor, copies in its memory included."""
        transfers.seconds[stage] += move.seconds
        if not move.is_copied:
            return
        # The memory serves what is computed, not what is copied.
        transfers.memory[stage] += move.seconds
        if move.ends and (link := self._resources.get(f"link {' - '.join(move.ends)}")) is not None:
            transfers.loads[link] += move.seconds
        memory, seconds = self._memories[processor]
        if memory is not None and move.seconds:
            transfers.use_memory(stage, memory, self._moves.tensors[tensor].nbytes * seconds)

    def _processor(self, index: int) -> int:
        return self.problem.choices[index].processor

    def work(self, index: int, groups: int) -> tuple[float, tuple[tuple[int, float], ...]]:
        """Return groups' seconds by a choice, and their resources'."""
        key = index, groups
        if key not in self._sums:
            choice, members = self.problem.choices[index], list(_members(groups))
            loads = tuple((resource, float(load[members].sum())) for resource, load in choice.loads.items())
            self._sums[key] = float(choice.seconds[members].sum()), loads
        return self._sums[key]

    def interval(self, prefix: Prefix) -> float:
        """Return the least interval of divisions with these stages."""
        stages = zip(prefix.choices, prefix.compute, prefix.transfer, prefix.memory, strict=True)
        return max([self._relaxed(prefix), *prefix.loads, *(self.stage_interval(*stage) for stage in stages)])

    def _relaxed(self, prefix: Prefix) -> float:
        """Return a bound on the interval from the remaining units and resources."""
        prices = self._relaxation
        price_left = 1 - sum(price * units for price, units in zip(prices.units.tolist(), prefix.use, strict=True))
        taken = sum(price * load for price, load in zip(prices.resources.tolist(), prefix.loads, strict=True))
        remainder = self._priced(self._all_groups & ~prefix.downset)
        # Of prices that sum to 1, rounding may leave nothing.
        return (taken + remainder) / max(price_left, ROUNDING) * (1 - ROUNDING) if remainder else 0.0

    def _priced(self, groups: int) -> float:
        if groups not in self._prices_of:
            self._prices_of[groups] = float(self._least_prices[list(_members(groups))].sum())
        return self._prices_of[groups]

    @cached_property
    def _prices_of(self) -> dict[int, float]:
        return {}

    @cached_property
    def _relaxation(self) -> Relaxation:
        return relax(self.problem)

    @cached_property
    def _least_prices(self) -> Array:
        """Least price of each group, by the relaxation."""
        prices, costs = self._relaxation, []
        for choice in self.problem.choices:
            cost = np.where(
                np.isfinite(choice.seconds), choice.seconds * (prices.units @ choice.use) / choice.rate, np.inf
            )
            for resource, load in choice.loads.items():
                cost = cost + np.where(np.isfinite(load), load, 0.0) * prices.resources[resource]
            costs.append(cost)
        return np.asarray(np.min(costs, axis=0))

    def stage_interval(self, index: int, compute: float, transfer: float, memory: float = 0.0) -> float:
        """Return the seconds between two frames of a stage."""
        choice = self.problem.choices[index]
        if self.problem.processors[choice.processor].overlaps:
            return max(compute, max(compute + transfer, memory) / 2) / choice.replicas
        if not choice.factors:
            return max(compute + transfer, memory) / choice.replicas
        return 1 / sum(1 / max(compute * factor + transfer, memory, 1e-300) for factor in choice.factors)

    def latency(self, prefix: Prefix) -> float:
        """Return the least latency of divisions with these stages."""
        ends, longest, all_groups = list[float](), 0.0, prefix.groups
        for number, (index, groups) in enumerate(zip(prefix.choices, all_groups, strict=True)):
            reads = self._near(0, groups)
            earlier_ends = [end for end, stage_groups in zip(ends, all_groups, strict=False) if reads & stage_groups]
            compute = prefix.compute[number] * self.problem.choices[index].slowest_factor
            seconds = max(compute + prefix.transfer[number], prefix.memory[number])
            ends.append(seconds + max(earlier_ends, default=0.0))
            followers = self._near(1, groups) & ~prefix.downset
            longest = max(longest, ends[-1] + max((self._tails[group] for group in _members(followers)), default=0.0))
        return longest

    def _near(self, side: int, groups: int) -> int:
        """Return the groups read, or with side 1 the readers, as bits."""
        cache = self._neighbours[side]
        if groups not in cache:
            near = self._dag.successors if side else self._dag.predecessors
            cache[groups] = sum({1 << neighbour for group in _members(groups) for neighbour in near[group]})
        return cache[groups]

    @cached_property
    def _neighbours(self) -> tuple[dict[int, int], dict[int, int]]:
        return {}, {}

    @cached_property
    def _tails(self) -> list[float]:
        """Least seconds of each group and its followers."""
        quickest = np.min([choice.seconds * choice.slowest_factor for choice in self.problem.choices], axis=0)
        tails = [0.0] * len(self._dag)
        for group in reversed(range(len(self._dag))):
            tails[group] = float(quickest[group]) + max(
                (tails[successor] for successor in self._dag.successors[group]), default=0.0
            )
        return tails

    def joules(self, prefix: Prefix) -> float:
        """Return the least energy of divisions with these stages."""
        choices = self.problem.choices
        stages = zip(prefix.choices, prefix.compute, prefix.transfer, strict=True)
        total = sum(
            choices[stage[0]].watts * choices[stage[0]].replicas * self.stage_interval(*stage) for stage in stages
        )
        remaining = [group for group in range(len(self._dag)) if not prefix.downset >> group & 1]
        return total + float(self._least_joules[remaining].sum())

    @cached_property
    def _least_joules(self) -> Array:
        # Of what has no power, also that of what cannot be is nothing.
        with np.errstate(invalid="ignore"):
            joules = [choice.watts * choice.seconds * choice.replicas / choice.rate for choice in self.problem.choices]
        return np.asarray(np.min(np.nan_to_num(joules, nan=0.0, posinf=np.inf), axis=0))

    def size(self, prefix: Prefix) -> float:
        """Return the number of stages, and among equals of units."""
        return len(prefix.choices) + UNIT_SIZE * sum(prefix.use)


def _members(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
