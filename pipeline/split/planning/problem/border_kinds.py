"""Border kinds: borders of equal costs everywhere, and segments between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.problem import Problem

Border = tuple[int, int]
"""Processor and kind of a crossed border: borders of equal costs at all positions are one kind."""

Key = tuple[int, int, int]
"""A choice, and the kinds of its two borders."""


@dataclass(frozen=True)
class Segment:
    """One stage of a division."""

    begin: int
    end: int
    choice: int
    """Index of the choice."""
    enter: int
    leave: int
    """Kinds of its borders."""

    @property
    def key(self) -> Key:
        """Choice and kinds of borders."""
        return self.choice, self.enter, self.leave


class Borders:
    """The kinds of borders of a problem.

    Attributes
    ----------
    enter, leave : list of list of Array
        Distinct rows of seconds for each processor; the last kind of `leave` is the caller's. It has the hop.
    sources, targets : list of list of int
        First neighbour behind such a border, for each processor and kind.
    followers : list of list of list of int
        Processors behind such a border, for each processor and kind of `leave` but the caller's.
    """

    def __init__(self, problem: Problem) -> None:
        processors, caller = range(len(problem.processors)), len(problem.processors)
        self.sources: list[list[int]] = []
        self.targets: list[list[int]] = []
        self._enter_kinds: dict[tuple[int, int], int] = {}
        self.followers: list[list[list[int]]] = []
        # What crosses a border takes seconds, and uses of each resource some.
        enter, leave = (
            np.stack([seconds, *loads.values()])
            for seconds, loads in ((problem.enter, problem.enter_loads), (problem.leave, problem.leave_loads))
        )
        for processor in processors:
            kinds = _kinds([enter[:, source, processor] for source in (*processors, caller)])
            self.sources.append(list(dict.fromkeys(kinds)))
            self._enter_kinds.update({(end, processor): self.sources[-1].index(kind) for end, kind in enumerate(kinds)})
            # The caller apart: a last stage leaves to it, whatever the row's equals are.
            kinds = _kinds([leave[:, processor, target] for target in processors])
            self.targets.append([*dict.fromkeys(kinds), caller])
            self.followers.append(
                [[target for target in processors if kinds[target] == kind] for kind in self.targets[-1][:-1]]
            )
        self.enter = self.rows_in(problem.enter)
        self.leave = self.rows_out(problem.leave + problem.hop_s)

    def rows_in(self, values: Array) -> list[list[Array]]:
        """Return values' rows shaped as `enter`, by processor and kind."""
        return [[values[end, index] for end in ends] for index, ends in enumerate(self.sources)]

    def rows_out(self, values: Array) -> list[list[Array]]:
        """Return values' rows shaped as `leave`, by processor and kind."""
        return [[values[index, end] for end in ends] for index, ends in enumerate(self.targets)]

    def enter_kind(self, source: int, target: int) -> int:
        """Return the kind of border into `target`."""
        return self._enter_kinds[source, target]

    def leave_kind(self, processor: int, border: Border | None) -> int | None:
        """Return the kind of border out of a processor, or None."""
        if border is None:
            return len(self.leave[processor]) - 1
        follower, enter = border
        if self.enter_kind(processor, follower) != enter:
            return None
        return next(kind for kind, group in enumerate(self.followers[processor]) if follower in group)


def _kinds(rows: Sequence[Array]) -> list[int]:
    """Return each row's first equal row."""
    return [
        next(index for index, candidate in enumerate(rows[: number + 1]) if np.array_equal(row, candidate))
        for number, row in enumerate(rows)
    ]
