"""Division prefix: first stages in any order, with lower bounds.

Transfers are not in the bounds: `predict` counts them for finished divisions, as it counts waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import add, gt

import numpy as np

from pipeline.split.orders import GroupDag, set_bits
from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.candidates import UNIT_SIZE


@dataclass(frozen=True)
class Prefix:
    """Stages that divide a downset."""

    ends: tuple[int, ...]
    """Downset that each stage completes, as bits."""
    choices: tuple[int, ...]
    """Index of each stage's choice."""
    compute: tuple[float, ...]
    """Seconds of one frame in each stage."""
    use: tuple[int, ...]
    """Units in use."""
    loads: tuple[float, ...]
    """Seconds of a frame on each resource."""

    @property
    def downset(self) -> int:
        """All groups of its stages."""
        return self.ends[-1] if self.ends else 0

    @property
    def groups(self) -> list[int]:
        """Groups of each stage as bits."""
        return [end & ~begin for begin, end in zip((0, *self.ends), self.ends, strict=False)]


class PrefixBuilder:
    """The beginnings of a problem's divisions."""

    def __init__(self, problem: Problem, dag: GroupDag) -> None:
        self.problem, self._dag = problem, dag
        self._units = tuple(processor.units for processor in problem.processors)
        self._work: dict[tuple[int, int], tuple[float, Array]] = {}

    @property
    def start(self) -> Prefix:
        """No stages."""
        problem = self.problem
        return Prefix((), (), (), (0,) * len(problem.processors), (0.0,) * len(problem.resources))

    def extend(self, prefix: Prefix, end: int, index: int) -> Prefix | None:
        """Return a prefix with one more stage, or None."""
        use = tuple(map(add, prefix.use, self.problem.choices[index].use))
        compute, loads = self.work(index, end & ~prefix.downset)
        if compute == np.inf or any(map(gt, use, self._units)):
            return None
        total_loads = tuple(map(add, prefix.loads, loads.tolist()))
        return Prefix((*prefix.ends, end), (*prefix.choices, index), (*prefix.compute, compute), use, total_loads)

    def work(self, index: int, groups: int) -> tuple[float, Array]:
        """Return groups' seconds by a choice, and their resources'."""
        key = index, groups
        if key not in self._work:
            choice, members = self.problem.choices[index], list(set_bits(groups))
            loads = np.zeros(len(self.problem.resources))
            for resource, load in choice.loads.items():
                loads[resource] = load[members].sum()
            self._work[key] = float(choice.seconds[members].sum()), loads
        return self._work[key]

    def interval(self, prefix: Prefix) -> float:
        """Return the least interval of divisions with these stages."""
        stages = zip(prefix.choices, prefix.compute, strict=True)
        intervals = [compute / self.problem.choices[index].rate for index, compute in stages]
        return max([*prefix.loads, *intervals])

    def latency(self, prefix: Prefix) -> float:
        """Return the least latency of divisions with these stages."""
        ends, longest, all_groups = list[float](), 0.0, prefix.groups
        for number, (index, groups) in enumerate(zip(prefix.choices, all_groups, strict=True)):
            reads = self._neighbours(self._dag.predecessors, groups)
            earlier_ends = [end for end, stage_groups in zip(ends, all_groups, strict=False) if reads & stage_groups]
            seconds = prefix.compute[number] * self.problem.choices[index].slowest_factor
            ends.append(seconds + max(earlier_ends, default=0.0))
            followers = self._neighbours(self._dag.successors, groups) & ~prefix.downset
            longest = max(longest, ends[-1] + max((self._tails[group] for group in set_bits(followers)), default=0.0))
        return longest

    @staticmethod
    def _neighbours(near: Sequence[Sequence[int]], groups: int) -> int:
        return sum({1 << neighbour for group in set_bits(groups) for neighbour in near[group]})

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
        total = 0.0
        for index, compute in zip(prefix.choices, prefix.compute, strict=True):
            choice = self.problem.choices[index]
            total += choice.watts * choice.replicas * compute / choice.rate
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
