"""Limits: budgets that the stages of a division share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.border_kinds import Borders, Key, Segment
from pipeline.split.planning.problem.problem import Problem

ROUNDING = 1e-9
"""Sums of the same numbers in another order differ by less than this share."""

# A limit has to be finite, and above 0, for its shares to be numbers.
_FOR_EVER, _NO_TIME = 1e12, 1e-15


def limited(interval: float) -> float:
    """Return an interval as a positive finite number for shares."""
    return min(max(interval, _NO_TIME), _FOR_EVER)


@dataclass(frozen=True, eq=False)
class SumLimit:
    """Limit of a sum over the stages in `values`; others use nothing."""

    values: dict[Key, Array]
    """Values for the items ``[i, j)`` as entry ``[j, i]``."""
    limit: float
    paced: bool
    """True if the limit is the time between two frames."""

    def share(self, segments: Sequence[Segment]) -> float:
        """Return a division's share of the limit."""
        limited = (segment for segment in segments if segment.key in self.values)
        return sum(float(self.values[segment.key][segment.end, segment.begin]) for segment in limited) / self.limit


class Limits:
    """The limits of a problem."""

    def __init__(self, problem: Problem, borders: Borders, keys: Sequence[Key]) -> None:
        self._problem, self._borders, self._keys = problem, borders, keys

    def at(self, interval: float) -> list[SumLimit]:
        """Return the limits with so many seconds between two frames."""
        pace = limited(interval)
        return [*(SumLimit(loads, pace, paced=True) for loads in self._loads), *self._memories]

    @cached_property
    def _loads(self) -> list[dict[Key, Array]]:
        """Seconds of each resource by stage, without unused ones."""
        return [dict(self._resource_loads(index)) for index in range(len(self._problem.resources))]

    def _resource_loads(self, resource: int) -> Iterator[tuple[Key, Array]]:
        problem, nothing = self._problem, np.zeros(self._problem.items + 1)
        into, out = problem.enter_loads.get(resource), problem.leave_loads.get(resource)
        rows_in = None if into is None else self._borders.rows_in(into)
        rows_out = None if out is None else self._borders.rows_out(out)
        for key in self._keys:
            choice = problem.choices[key[0]]
            enter = nothing if rows_in is None else rows_in[choice.processor][key[1]]
            leave = nothing if rows_out is None else rows_out[choice.processor][key[2]]
            if resource in choice.loads:
                yield key, choice.span_loads[resource] + np.add.outer(leave, enter)
            elif enter.any() or leave.any():
                yield key, np.add.outer(leave, enter)

    @cached_property
    def _memories(self) -> list[SumLimit]:
        """Memories of limited size."""
        memories = [memory for memory in self._problem.memories if memory.nbytes < self._problem.most_bytes]
        # What a stage keeps depends on how it runs, not on its borders.
        nbytes = [self._problem.memory_bytes(choice) for choice in self._problem.choices] if memories else []
        return [
            SumLimit(
                {key: nbytes[key[0]] for key in self._keys if self._processor(key) in memory.processors},
                memory.nbytes,
                paced=False,
            )
            for memory in memories
        ]

    def _processor(self, key: Key) -> int:
        return self._problem.choices[key[0]].processor
