"""Labels: exact search over a chain with shared resources.

A label is what the stages up to a position take: units, their value, and of each limit a sum.  Of the labels at one
position and border, those are kept that no other one is as good as in everything.  A label that cannot end within the
limits and below the ceiling, by the least that the stages behind it take, is dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.border_kinds import Borders, Key, Segment
from pipeline.split.planning.problem.limits import ROUNDING, SumLimit
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.pareto import pareto_rows

MOST_LABELS = 4_000_000
"""Labels made before a search gives up, after a second or two; comparing them counts as well."""

# So many comparisons of two labels take as long as making one.
_COMPARISONS = 32

# Of the numbers that are made at once.
_MOST_NUMBERS = 4_000_000

Node = tuple[int, int, int]
"""A processor, the kind of border where its stage begins, and where their number is fixed, how many are before it."""


class _Stages(NamedTuple):
    """Stages from one position: values by row, ends and choices."""

    rows: Array
    ends: NDArray[np.int_]
    choices: NDArray[np.int_]


Labels = tuple[Array, NDArray[np.int_]]
"""Labels by row: values; the label each follows; its last stage: begin, choice, borders."""


@dataclass(frozen=True)
class LabelResult:
    """The end of a search."""

    segments: list[Segment] | None
    """The best division below the ceiling."""
    complete: bool
    """True if nothing was left out, so that no division is better."""


class LabelSearch:
    """Search for the least division within limits.

    A stage's value is infinite where it cannot be; only divisions below `ceiling` are looked for. If `paced`, the value
    is the time between two frames: of the slowest stage, or the largest sum of the limits that are paced; else it is
    the sum over the stages. `implied` limits follow from the others, and tell earlier what cannot end within them.
    `made` counts the labels so far, and what it took to compare them, as labels.
    """

    def __init__(  # noqa: PLR0913 - what a search is about
        self,
        problem: Problem,
        borders: Borders,
        values: dict[Key, Array],
        limits: Sequence[SumLimit],
        *,
        implied: Sequence[SumLimit] = (),
        paced: bool,
        ceiling: float,
    ) -> None:
        self._problem, self._borders, self._values = problem, borders, values
        self._limits, self._paced, self._dependent = [*limits, *implied], paced, len(implied)
        self._tables = [values, *(limit.values for limit in self._limits)]
        self._value = len(problem.processors)
        columns = [index for index, limit in enumerate(self._limits, self._value + 1) if paced and limit.paced]
        self._value_columns = [self._value, *columns]
        units = [float(processor.units) for processor in problem.processors]
        self._caps = np.array([*units, np.inf, *(limit.limit * (1 + ROUNDING) for limit in self._limits)])
        self._lower_ceiling(ceiling)
        self._waiting: list[dict[Node, list[Labels]]] = [defaultdict(list) for _ in range(problem.items)]
        # Of all labels that were extended, to walk back from the end.
        self._history: list[NDArray[np.int_]] = []
        self._extended = self.made = self._most = 0
        self._end: NDArray[np.int_] | None = None
        self._rests = self._least_rests()

    def run(self, limit: int = MOST_LABELS) -> LabelResult:
        """Extend labels position by position, up to `limit`."""
        self._most = limit
        caller, start = len(self._problem.processors), np.zeros((1, len(self._caps)))
        for processor in self._problem.stage_processors(0):
            node = processor, self._borders.enter_kind(caller, processor), 0
            self._waiting[0][node] = [(start, np.full((1, 5), -1))]
        for position, nodes in enumerate(self._waiting):
            for node in nodes:
                self._extend(position, node, nodes[node])
                if self.made > limit:
                    return LabelResult(self._segments(), complete=False)
            # Nothing goes back to where it was.
            nodes.clear()
        return LabelResult(self._segments(), complete=True)

    def _lower_ceiling(self, ceiling: float) -> None:
        # Less by rounding only is not less.
        for column in self._value_columns:
            self._caps[column] = min(self._caps[column], ceiling * (1 - ROUNDING))

    def _extend(self, position: int, node: Node, waiting: Sequence[Labels]) -> None:
        """Add each next stage to the best labels at a position."""
        processor, enter, count = node
        rows, history = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
        # The ceiling may have been lowered since they were made.
        hopeful = self._hopeful(rows, self._rests[processor, enter][position])
        rows, history = rows[hopeful], history[hopeful]
        room = max(0, self._most - self.made) * _COMPARISONS
        undominated, comparisons = pareto_rows(rows[:, : rows.shape[1] - self._dependent], room)
        self.made += comparisons // _COMPARISONS
        rows, numbers = rows[undominated], np.arange(self._extended, self._extended + len(undominated))
        self._history.append(history[undominated])
        self._extended += len(undominated)
        *stage_borders, caller_border = range(len(self._borders.leave[processor]))
        is_last = not self._problem.stages or count + 1 == len(self._problem.stages)
        next_count = count + 1 if self._problem.stages else 0
        for leave in (*stage_borders, *([caller_border] if is_last else [])):
            stages = self._stages(position, node, leave, is_final=leave == caller_border)
            step = max(1, _MOST_NUMBERS // max(1, stages.rows.size))
            for first in range(0, len(rows) if len(stages.rows) else 0, step):
                joint = self._join(rows[first : first + step, None], stages.rows[None])
                last, borders = numbers[first : first + step], np.array([position, enter, leave])
                if leave == caller_border:
                    self._finish(joint, last, stages, borders)
                else:
                    self._offer(joint, last, stages, borders, (processor, leave, next_count))

    def _stages(self, position: int, node: Node, leave: int, *, is_final: bool) -> _Stages:
        """Return stages from a position, with values, ends and choices."""
        processor, enter, count = node
        ends = slice(self._problem.items if is_final else position + 1, self._problem.items + is_final)
        parts = []
        for index, choice in enumerate(self._problem.choices):
            if choice.processor == processor and self._problem.allows(count, choice):
                rows = self._rows((index, enter, leave), ends, position)
                numbers = np.flatnonzero((rows <= self._caps[:, None]).all(axis=0) & np.isfinite(rows).all(axis=0))
                parts.append((rows[:, numbers].T, numbers + ends.start, np.full(len(numbers), index)))
        if not parts:
            return _Stages(np.zeros((0, len(self._caps))), np.zeros(0, np.int_), np.zeros(0, np.int_))
        rows, last, choices = (np.concatenate(part) for part in zip(*parts, strict=True))
        return _Stages(rows, last, choices)

    def _rows(self, key: Key, ends: slice, position: int) -> Array:
        """Return stages' values from a position, a column per end."""
        rows = np.zeros((len(self._caps), ends.stop - ends.start))
        rows[: self._value] = np.array(self._problem.choices[key[0]].use)[:, None]
        for row, values in enumerate(self._tables, self._value):
            # Stages that a limit does not have use nothing of it.
            if key in values:
                rows[row] = values[key][ends, position]
        return rows

    def _join(self, rows: Array, values: Array) -> Array:
        joint: Array = rows + values
        if self._paced:
            joint[..., self._value] = np.maximum(rows[..., self._value], values[..., self._value])
        return joint

    def _hopeful(self, rows: Array, remainder: Array) -> NDArray[np.bool_]:
        """Return the labels within limits after at least `remainder`."""
        return np.asarray((self._join(rows, remainder) <= self._caps).all(axis=-1))

    def _offer(
        self, joint: Array, numbers: NDArray[np.int_], stages: _Stages, borders: NDArray[np.int_], border: Node
    ) -> None:
        processor, leave, count = border
        nodes = {
            (follower, self._borders.enter_kind(processor, follower))
            for follower in self._borders.followers[processor][leave]
            if follower in self._problem.stage_processors(count)
        }
        for node in sorted(nodes):
            labels, columns = np.nonzero(self._hopeful(joint, self._rests[node][stages.ends]))
            self.made += len(labels)
            last = np.broadcast_to(borders, (len(labels), 3))
            history = np.column_stack([numbers[labels], stages.choices[columns], last])
            rows, ends = joint[labels, columns], stages.ends[columns]
            if not len(ends):
                continue
            order = np.argsort(ends, kind="stable")
            positions, firsts = np.unique(ends[order], return_index=True)
            for position, part in zip(positions, np.split(order, firsts[1:]), strict=True):
                self._waiting[position][node[0], node[1], count].append((rows[part], history[part]))

    def _finish(self, joint: Array, numbers: NDArray[np.int_], stages: _Stages, borders: NDArray[np.int_]) -> None:
        values = np.where((joint <= self._caps).all(axis=-1), joint[..., self._value_columns].max(axis=-1), np.inf)
        label, stage = np.unravel_index(values.argmin(), values.shape)
        if np.isfinite(values[label, stage]):
            self._end = np.array([numbers[label], stages.choices[stage], *borders])
            self._lower_ceiling(float(values[label, stage]))

    def _segments(self) -> list[Segment] | None:
        """Walk back from the best end."""
        if self._end is None:
            return None
        history, path = np.concatenate(self._history), list[Segment]()
        end, label = self._problem.items, self._end
        while end:
            previous, choice, begin, enter, leave = map(int, label)
            path.append(Segment(begin, end, choice, enter, leave))
            end, label = begin, history[previous]
        return path[::-1]

    def _least_rests(self) -> dict[tuple[int, int], Array]:
        """Return the least rest after each border and position, by column."""
        tables = {
            (processor, enter, leave): self._least_stage(processor, enter, leave)
            for processor, kinds in enumerate(self._borders.enter)
            for enter in range(len(kinds))
            for leave in range(len(self._borders.leave[processor]))
        }
        count, items = len(self._caps), self._problem.items
        rests = {border[:2]: np.full((items + 1, count), np.inf) for border in tables}
        for position in range(items - 1, -1, -1):
            for (processor, enter, leave), table in tables.items():
                row = rests[processor, enter]
                if leave == len(self._borders.leave[processor]) - 1:
                    best = table[items, position]
                else:
                    nodes = [
                        (follower, self._borders.enter_kind(processor, follower))
                        for follower in self._borders.followers[processor][leave]
                    ]
                    following = np.minimum.reduce([rests[node][position + 1 : items] for node in nodes])
                    joint = self._join(table[position + 1 : items, position], following)
                    best = joint.min(axis=0, initial=np.inf)
                row[position] = np.minimum(row[position], best)
        return rests

    def _least_stage(self, processor: int, enter: int, leave: int) -> Array:
        """Return stages' least values per column, as ``[end, begin]``."""
        size = self._problem.items + 1
        result = np.full((len(self._caps), size, size), np.inf)
        for index, choice in enumerate(self._problem.choices):
            if choice.processor == processor:
                key = index, enter, leave
                is_possible = np.isfinite(self._values[key]) & (self._values[key] <= self._caps[self._value])
                for row, values in enumerate(self._tables, self._value):
                    stage_least = values.get(key, 0.0)
                    np.minimum(result[row], stage_least, out=result[row], where=is_possible)
                result[: self._value, is_possible] = 0.0
        return np.moveaxis(result, 0, -1)
