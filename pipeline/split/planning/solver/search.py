"""Search: dynamic programming over positions, units and borders.

A state is how many units of each processor are in use, where the next stage is, and where their number is fixed, how
many stages there are.  It has one number for each position: the best value of all divisions that end there.  A stage
takes at least one unit, or is one more of a fixed number, so that a state only follows from states with fewer, and one
step is a minimum over a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.border_kinds import Border, Borders, Key, Segment
from pipeline.split.planning.problem.limits import ROUNDING
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.stage_table import StageTable

# So many times as wide as there are begins, a window is mostly empty.
_SPARSE = 3

# Positions up to which a call takes longer than the work that is in it.
_SMALL = 150

Element = TypeVar("Element", bound=np.generic)

Use = tuple[int, ...]
"""Units in use of each processor, and then, where the number of stages is fixed, how many there are."""

Join = Callable[[Array, Array], Array]
"""Combination of a stage's value with earlier ones: `numpy.maximum` or `numpy.add`."""


def best_division(  # noqa: PLR0913, PLR0917 - what a search is about
    problem: Problem,
    borders: Borders,
    table: StageTable,
    join: Join,
    ceiling: float = np.inf,
    floor: float = 0.0,
    rests: dict[Border, Array] | None = None,
) -> list[Segment] | None:
    """Return the least division up to `ceiling`, or None.

    Values below `floor` count as equal.  `rests` are of `least_rests`, for sums: they tell what cannot end below the
    ceiling.
    """
    search = _DivisionSearch(problem, borders, table.values, join, ceiling, floor)
    search.rests = rests or {}
    search.run()
    return search.segments()


def least_rests(problem: Problem, borders: Borders, table: StageTable) -> dict[Border, Array]:
    """Return the least rest per border and position, units ignored."""
    items = problem.items
    # Of all choices at once: how a stage runs does not matter to those that follow.
    least_values: dict[Key, Array] = {}
    for (index, enter, leave), values in table.values.items():
        key = problem.choices[index].processor, enter, leave
        least_values[key] = np.minimum(least_values[key], values) if key in least_values else values
    rests = {(processor, enter): np.full(items + 1, np.inf) for processor, enter, _ in least_values}
    followers = {
        # A processor that no stage may run on follows nothing.
        (processor, leave): [
            border for follower in group if (border := (follower, borders.enter_kind(processor, follower))) in rests
        ]
        for processor, groups in enumerate(borders.followers)
        for leave, group in enumerate(groups)
    }
    for position in range(items - 1, -1, -1):
        for (processor, enter, leave), values in least_values.items():
            best = values[items, position]
            if followers.get((processor, leave)):
                # Where devices are fixed, some of the others have no choices.
                rows = [
                    rests[follower][position + 1 : items]
                    for follower in followers[processor, leave]
                    if follower in rests
                ]
                remainder = np.minimum.reduce(rows) if rows else np.inf
                best = (values[position + 1 : items, position] + remainder).min(initial=np.inf)
            rests[processor, enter][position] = min(rests[processor, enter][position], best)
    return rests


def rows_with_fewer(
    states: Mapping[Use, Mapping[Border, NDArray[Element]]], use: Use, processors: int
) -> dict[Border, list[NDArray[Element]]]:
    """Return the rows of all states with one unit fewer, by border."""
    rows: dict[Border, dict[int, NDArray[Element]]] = {}
    for axis in range(processors):
        for border, row in states.get((*use[:axis], use[axis] - 1, *use[axis + 1 :]), {}).items():
            # Most states are empty, and hand the same rows on: each counts once.
            rows.setdefault(border, {})[id(row)] = row
    return {border: list(row_by_id.values()) for border, row_by_id in rows.items()}


class _Begins(NamedTuple):
    """Begins of a stage: first, all, and the values before."""

    first: int
    positions: slice | NDArray[np.intp]
    values: Array


class _Table(NamedTuple):
    """Values of stages between two borders, shape (choices, ends, begins)."""

    values: Array
    reach: NDArray[np.intp]

    def take(self, numbers: Sequence[int], ends: slice, positions: slice | NDArray[np.intp]) -> Array:
        """Return some choices' values, uncopied for one or all."""
        if len(numbers) == 1:
            return self.values[numbers[0] : numbers[0] + 1, ends][..., positions]
        if len(numbers) == len(self.values):
            return self.values[:, ends][..., positions]
        window: Array = (
            self.values[numbers, ends, positions]
            if isinstance(positions, slice)
            else self.values[numbers, ends][..., positions]
        )
        return window


class _DivisionSearch:
    def __init__(  # noqa: PLR0913, PLR0917 - what a search is about
        self,
        problem: Problem,
        borders: Borders,
        values: dict[Key, Array],
        join: Join,
        ceiling: float,
        floor: float,
    ) -> None:
        self._problem, self._borders, self._values = problem, borders, values
        self.rests: dict[Border, Array] = {}
        self._join, self._ceiling, self._floor = join, ceiling, floor
        self._size = len(next(iter(values.values())))
        count = len(problem.stages)
        # A fixed number of stages is one more thing that each stage takes one of.
        self._units = (*(processor.units for processor in problem.processors), *([count] if count else []))
        # A table may be without some of the choices.
        self._indices = sorted({key[0] for key in values})
        self._choices_of = [
            [index for index in self._indices if problem.choices[index].processor == processor]
            for processor in range(len(problem.processors))
        ]
        self._uses = np.array([choice.use + ((1,) if count else ()) for choice in problem.choices])
        self._tables: dict[tuple[int, int, int], _Table] = {}
        self._is_small = self._size <= _SMALL
        self._states: dict[Use, dict[Border, Array]] = {}
        self._minima: dict[Use, dict[Border, Array]] = {}
        self._ends: dict[Use, float] = {}
        self._highest = min(ceiling, np.finfo(np.float64).max)

    def run(self) -> None:
        """Fill all states, fewer units first."""
        caller, start = len(self._problem.processors), (0,) * len(self._units)
        for processor in self._problem.stage_processors(0):
            self._state(start, (processor, self._borders.enter_kind(caller, processor)))[0] = 0.0
        # In lexicographic order each state comes after all with fewer units, from which alone it follows.
        for use in product(*(range(units + 1) for units in self._units)):
            # First, so that what is not better than with fewer units is never extended.
            self._drop_dominated(use)
            for border, values in self._states.get(use, {}).items():
                self._extend(border, values, use)

    def segments(self) -> list[Segment] | None:
        """Walk back from the best end."""
        if not self._ends or min(self._ends.values()) > self._ceiling:
            return None
        # Among equals the one with the fewest units.
        use, value = min(self._ends.items(), key=lambda end: (end[1], sum(end[0])))
        border: Border | None = None
        end, path = self._size - 1, list[Segment]()
        while end:
            segment, use = self._predecessor(use, border, end, value)
            path.append(segment)
            border = (self._problem.choices[segment.choice].processor, segment.enter)
            value, end = float(self._states[use][border][segment.begin]), segment.begin
        return path[::-1]

    def _choices(self, use: Use, processor: int) -> tuple[list[int], list[Use]]:
        """Return the choices within free units, and the units after."""
        indices = self._choices_of[processor]
        uses = self._uses[indices] + use if indices else np.zeros((0, len(use)), int)
        fits = (uses <= self._units).all(axis=1)
        for first, second in self._problem.twins:
            fits &= uses[:, first] >= uses[:, second]
        numbers = fits.nonzero()[0].tolist()
        if self._problem.runtimes:
            numbers = [
                number for number in numbers if self._problem.allows(use[-1], self._problem.choices[indices[number]])
            ]
        return numbers, [tuple(next_use) for next_use in uses[numbers].tolist()]

    def _extend(self, border: Border, values: Array, use: Use) -> None:
        """Add one more stage in all ways at once."""
        processor = border[0]
        numbers, next_uses = self._choices(use, processor)
        hopeful = values + self.rests[border] if border in self.rests else values
        reached = np.flatnonzero(hopeful <= self._highest)
        if not numbers or not len(reached):
            return
        # A window is read as it lies in memory, unless most of it is empty.
        window = slice(int(reached[0]), int(reached[-1]) + 1)
        positions = reached if len(reached) * _SPARSE < window.stop - window.start else window
        begins = _Begins(window.start, positions, values[positions])
        *stage_borders, caller_border = range(len(self._borders.leave[processor]))
        # Each stage takes one of a fixed number, in whichever way it runs.
        stages_left = self._stages_left(next_uses[0])
        # Where calls take longer than the work in them, all choices are looked at together.
        step = len(numbers) if self._is_small else 1
        for first in range(0, len(numbers), step):
            group, uses = numbers[first : first + step], next_uses[first : first + step]
            for leave in stage_borders if self._problem.stage_processors(uses[0][-1]) else ():
                table = self._table(border, leave)
                # Each stage behind this one needs an item.
                furthest = int(table.reach[group][:, positions].max())
                ends = slice(begins.first + 1, min(furthest + 1, self._size - max(1, stages_left)))
                if ends.stop > ends.start:
                    joint = self._join(table.take(group, ends, positions), begins.values)
                    best = np.maximum(np.minimum.reduce(joint, axis=2), self._floor)
                    self._offer(best, uses, processor, leave, ends)
            if not stages_left:
                values_to_end = self._table(border, caller_border).take(group, slice(-1, None), positions)[:, 0]
                self._finish(np.minimum.reduce(self._join(values_to_end, begins.values), axis=1), uses)

    def _table(self, border: Border, leave: int) -> _Table:
        """Return a processor's stages between two kinds of borders."""
        processor, enter = border
        key = processor, enter, leave
        if key not in self._tables:
            values = np.stack([self._values[index, enter, leave] for index in self._choices_of[processor]])
            self._tables[key] = _Table(values, _reach(values, self._highest))
        return self._tables[key]

    def _finish(self, values: Array, uses: Sequence[Use]) -> None:
        for value, use in zip(values.tolist(), uses, strict=True):
            if value <= self._highest:
                self._ends[use] = min(self._ends.get(use, np.inf), max(value, self._floor))
                # What takes more than a division that is known is not looked at any further.
                self._highest = min(self._highest, self._ends[use] * (1 + ROUNDING))

    def _stages_left(self, use: Use) -> int:
        """Return the stages still to come, of a fixed number."""
        return len(self._problem.stages) - use[-1] if self._problem.stages else 0

    def _offer(self, best: Array, uses: Sequence[Use], processor: int, leave: int, ends: slice) -> None:
        """Offer values at a border, a row per units in use."""
        candidates = self._problem.stage_processors(uses[0][-1])
        # No later stage makes the slowest one faster, or a sum smaller.
        hopeful = best <= self._highest
        for follower in self._borders.followers[processor][leave] if hopeful.any() else ():
            if follower not in candidates:
                continue
            border = follower, self._borders.enter_kind(processor, follower)
            if border in self.rests:
                hopeful = best + self.rests[border][ends] <= self._highest
            rows = np.where(hopeful, best, np.inf)
            for number in np.flatnonzero(np.logical_or.reduce(hopeful, axis=1)).tolist():
                values = self._state(uses[number], border)[ends]
                np.minimum(values, rows[number], out=values)

    def _state(self, use: Use, border: Border) -> Array:
        state = self._states.setdefault(use, {})
        if border not in state:
            state[border] = np.full(self._size, np.inf)
        return state[border]

    def _drop_dominated(self, use: Use) -> None:
        """Drop values no better than with fewer units."""
        fewer = rows_with_fewer(self._minima, use, len(self._problem.processors))
        state, minima = self._states.get(use, {}), dict[Border, Array]()
        for border in {*state, *fewer}:
            rows = fewer.get(border, [])
            if rows and border in state:
                best = np.minimum.reduce(rows)
                state[border][state[border] >= best] = np.inf
            if border in state:
                rows.append(state[border])
            minima[border] = rows[0] if len(rows) == 1 else np.minimum.reduce(rows)
        self._minima[use] = minima
        for border in [border for border, values in state.items() if not np.isfinite(values).any()]:
            del state[border]

    def _predecessor(self, use: Use, border: Border | None, end: int, value: float) -> tuple[Segment, Use]:
        """Return the stage before a state, and its units."""
        for index in self._indices:
            choice = self._problem.choices[index]
            previous_use = tuple((np.array(use) - self._uses[index]).tolist())
            if not self._problem.allows(previous_use[-1], choice):
                continue
            leave = self._borders.leave_kind(choice.processor, border)
            for (processor, enter), values in self._states.get(previous_use, {}).items():
                if processor != choice.processor or leave is None:
                    continue
                joint = self._join(self._values[index, enter, leave][end, :end], values[:end])
                # The same operations on the same floats as on the way there give the same bits, so that they may be
                # compared.
                begins = np.flatnonzero(np.maximum(joint, self._floor) == value)
                if len(begins):
                    return Segment(int(begins[-1]), end, index, enter, leave), previous_use
        raise AssertionError(f"no stage leads to {border} at {end} with {use}")


def _reach(values: Array, ceiling: float) -> NDArray[np.intp]:
    """Return each choice's last end per begin within `ceiling`; else 0."""
    fits = values <= ceiling
    last: NDArray[np.intp] = values.shape[1] - 1 - np.argmax(fits[:, ::-1], axis=1)
    return np.where(fits.any(axis=1), last, 0)
