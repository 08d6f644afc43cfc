"""StageTable: a value for each possible stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.border_kinds import Borders, Key, Segment
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import Problem


class StageTable:
    """One value for each stage there could be.

    `value` returns the values of a choice with the given rows of `enter` and `leave`, as entry ``[end, begin]``.
    """

    def __init__(self, problem: Problem, borders: Borders, value: Callable[[Choice, Array, Array], Array]) -> None:
        self.values: dict[Key, Array] = {
            (index, enter, leave): value(choice, into, out)
            for index, choice in enumerate(problem.choices)
            for enter, into in enumerate(borders.enter[choice.processor])
            for leave, out in enumerate(borders.leave[choice.processor])
        }

    @staticmethod
    def of(values: dict[Key, Array]) -> StageTable:
        """Return a table of ready values."""
        table = StageTable.__new__(StageTable)
        table.values = values
        return table

    def total(self, segments: Sequence[Segment]) -> float:
        """Return the sum over the stages of a division."""
        return sum(self.values_of(segments))

    def largest(self, segments: Sequence[Segment]) -> float:
        """Return the largest value of the stages of a division."""
        return max(self.values_of(segments))

    def values_of(self, segments: Sequence[Segment]) -> Iterator[float]:
        """Yield the value of each stage of a division."""
        return (float(self.values[segment.key][segment.end, segment.begin]) for segment in segments)
