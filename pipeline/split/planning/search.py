"""Search: the best division of a chain by dynamic programming over positions, units in use, and borders.

A state is how many units of each place are in use, and where the next stage is.  It has one number for each position:
the best value of all divisions that end there.  A stage takes at least one unit, so that a state only follows from
states with fewer units, and one step is a minimum over a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pipeline.split.planning.problem import Array, Choice, Problem

Use = tuple[int, ...]
Join = Callable[[Array, Array], Array]
"""Combines the value of a stage with that of the stages before it: `numpy.maximum` or `numpy.add`."""

Border = tuple[int, int]
"""A place, and which kind of border is crossed there: borders that cost the same at all positions are one kind."""


@dataclass(frozen=True)
class Step:
    """One stage of a division.

    Attributes
    ----------
    begin, end : int
        Its items.
    choice : int
        Number of the choice.
    enter, leave : int
        Kinds of its borders.
    """

    begin: int
    end: int
    choice: int
    enter: int
    leave: int


class Borders:
    """The kinds of borders of a problem.

    Attributes
    ----------
    enter, leave : list of list of Array
        For each place the different rows of seconds; the last kind of `leave` is the caller's.
    """

    def __init__(self, problem: Problem) -> None:
        places = range(len(problem.places))
        caller = len(problem.places)
        self.enter: list[list[Array]] = []
        self._enter_kind: dict[tuple[int, int], int] = {}
        self.leave: list[list[Array]] = []
        self.followers: list[list[list[int]]] = []
        for place in places:
            rows, kinds = _kinds([problem.enter[before, place] for before in (*places, caller)])
            self.enter.append(rows)
            self._enter_kind.update({(before, place): kind for before, kind in enumerate(kinds)})
            rows, kinds = _kinds([problem.leave[place, after] for after in places])
            self.leave.append([*rows, problem.leave[place, caller]])
            self.followers.append([[after for after in places if kinds[after] == kind] for kind in range(len(rows))])

    def entered(self, before: int, place: int) -> int:
        """Return the kind of border between two places, as the second one enters it."""
        return self._enter_kind[before, place]


class Table:
    """One value for each stage there could be.

    Parameters
    ----------
    problem : Problem
    borders : Borders
    value : callable
        Returns the values of a choice with the given rows of `enter` and `leave`, as entry ``[end, begin]``.
    """

    def __init__(self, problem: Problem, borders: Borders, value: Callable[[Choice, Array, Array], Array]) -> None:
        self.values = {
            (number, enter, leave): value(choice, into, out)
            for number, choice in enumerate(problem.choices)
            for enter, into in enumerate(borders.enter[choice.place])
            for leave, out in enumerate(borders.leave[choice.place])
        }

    @staticmethod
    def of(values: dict[tuple[int, int, int], Array]) -> Table:
        """Return a table of values that are there already."""
        table = Table.__new__(Table)
        table.values = values
        return table


class Search:
    """Finds the division with the least value.

    Parameters
    ----------
    problem : Problem
    borders : Borders
    stages : int, optional
        How many stages there have to be.
    """

    def __init__(self, problem: Problem, borders: Borders, stages: int | None = None) -> None:
        self._problem, self._borders, self._stages = problem, borders, stages
        self._units = [place.units for place in problem.places] + ([] if stages is None else [stages])
        self._uses = [choice.use + (() if stages is None else (1,)) for choice in problem.choices]

    def best(self, table: Table, join: Join, ceiling: float = np.inf, floor: float = 0.0) -> list[Step] | None:
        """Return the division with the least value, None if none is possible with at most `ceiling`.

        Values below `floor` are not told apart.
        """
        run = _Run(self._problem, self._borders, table.values, join, ceiling, floor)
        run.go(self._units, self._uses, counted=self._stages is not None)
        return run.steps()


class _Run:
    def __init__(  # noqa: PLR0913, PLR0917 - what a search is about
        self,
        problem: Problem,
        borders: Borders,
        values: dict[tuple[int, int, int], Array],
        join: Join,
        ceiling: float,
        floor: float,
    ) -> None:
        self._problem, self._borders, self._values = problem, borders, values
        self._join, self._ceiling, self._floor = join, ceiling, floor
        self._size = len(next(iter(values.values())))
        self._states: dict[Use, dict[Border, Array]] = {}
        self._closed: dict[Use, dict[Border, Array]] = {}
        self._ends: dict[Use, float] = {}
        # The last position that a stage can reach from each begin.
        self._reach = {key: _reach(each, ceiling) for key, each in values.items()}

    def go(self, units: Sequence[int], uses: Sequence[Use], *, counted: bool) -> None:
        self._uses, self._counted, self._units = uses, counted, tuple(units)
        caller = len(self._problem.places)
        for place in range(caller):
            self._lower((0,) * len(units), place, self._borders.entered(caller, place))[0] = 0.0
        for use in product(*(range(each + 1) for each in units)):
            self._drop_dominated(use)
            for (place, enter), reached in self._states.get(use, {}).items():
                for number, after in self._next(use, place):
                    self._extend((number, enter), place, reached, after)

    def steps(self) -> list[Step] | None:
        """Walk back from the best end."""
        ends = {use: value for use, value in self._ends.items() if not self._counted or use[-1] == self._units[-1]}
        if not ends or min(ends.values()) > self._ceiling:
            return None
        use, value = min(ends.items(), key=lambda end: (end[1], sum(end[0])))
        border: Border | None = None
        end, found = self._size - 1, []
        while True:
            number, enter, leave, begin, use = self._before(use, border, end, value)
            found.append(Step(begin, end, number, enter, leave))
            if begin == 0:
                return found[::-1]
            place = self._problem.choices[number].place
            border, value, end = (place, enter), float(self._states[use][place, enter][begin]), begin

    def _next(self, use: Use, place: int) -> Iterator[tuple[int, Use]]:
        for number, choice in enumerate(self._problem.choices):
            if choice.place == place:
                after = tuple(map(sum, zip(use, self._uses[number], strict=True)))
                if all(one <= most for one, most in zip(after, self._units, strict=True)):
                    yield number, after

    def _extend(self, what: tuple[int, int], place: int, reached: Array, after: Use) -> None:
        number, enter = what
        begins = np.flatnonzero(np.isfinite(reached))
        first, last = int(begins[0]), int(begins[-1]) + 1
        *inner, outer = range(len(self._borders.leave[place]))
        for leave in inner:
            key = (number, enter, leave)
            far = min(int(self._reach[key][first:last].max(initial=0)) + 1, self._size - 1)
            if far > first + 1:
                joined = self._join(self._values[key][first + 1 : far, first:last], reached[first:last])
                best = np.maximum(joined.min(axis=1), self._floor)
                best[best > self._ceiling] = np.inf
                self._offer(after, place, leave, slice(first + 1, far), best)
        whole = self._join(self._values[number, enter, outer][-1, first:last], reached[first:last]).min()
        if whole <= self._ceiling and np.isfinite(whole):
            self._ends[after] = min(self._ends.get(after, np.inf), max(float(whole), self._floor))

    def _offer(self, use: Use, place: int, leave: int, where: slice, best: Array) -> None:
        if not np.isfinite(best).any():
            return
        for follower in self._borders.followers[place][leave]:
            values = self._lower(use, follower, self._borders.entered(place, follower))
            np.minimum(values[where], best, out=values[where])

    def _lower(self, use: Use, place: int, enter: int) -> Array:
        state = self._states.setdefault(use, {})
        if (place, enter) not in state:
            state[place, enter] = np.full(self._size, np.inf)
        return state[place, enter]

    def _drop_dominated(self, use: Use) -> None:
        """Forget what is as good with fewer units, and remember the best so far for states with more."""
        places = len(self._problem.places)
        fewer = [
            self._closed[before]
            for axis in range(places)
            if use[axis] and (before := (*use[:axis], use[axis] - 1, *use[axis + 1 :])) in self._closed
        ]
        state, closed = self._states.get(use, {}), dict[Border, Array]()
        for border in {*state, *(border for each in fewer for border in each)}:
            best: Array = np.minimum.reduce([np.full(self._size, np.inf), *(e[border] for e in fewer if border in e)])
            if border in state:
                state[border][state[border] >= best] = np.inf
                best = np.minimum(state[border], best)
            closed[border] = best
        self._closed[use] = closed
        for border in [border for border, values in state.items() if not np.isfinite(values).any()]:
            del state[border]

    def _before(self, use: Use, border: Border | None, end: int, value: float) -> tuple[int, int, int, int, Use]:
        """Return the stage that led to a state: choice, enter, leave, begin, and the units in use before it."""
        for number, choice in enumerate(self._problem.choices):
            before = tuple(one - other for one, other in zip(use, self._uses[number], strict=True))
            leave = self._leaving(choice.place, border)
            for (place, enter), reached in self._states.get(before, {}).items():
                if place != choice.place or leave is None:
                    continue
                joined = self._join(self._values[number, enter, leave][end, :end], reached[:end])
                begins = np.flatnonzero(np.maximum(joined, self._floor) == value)
                if len(begins):
                    return number, enter, leave, int(begins[-1]), before
        raise AssertionError(f"no stage leads to {border} at {end} with {use}")

    def _leaving(self, place: int, border: Border | None) -> int | None:
        """Return how a stage on `place` leaves to reach a border, None if it does not."""
        if border is None:
            return len(self._borders.leave[place]) - 1
        follower, enter = border
        if self._borders.entered(place, follower) != enter:
            return None
        return next(kind for kind, them in enumerate(self._borders.followers[place]) if follower in them)


def _kinds(rows: Sequence[Array]) -> tuple[list[Array], list[int]]:
    """Return the different rows, and for each row the number of its equal among them."""
    different: list[Array] = []
    kinds = []
    for row in rows:
        kind = next((number for number, other in enumerate(different) if np.array_equal(row, other)), len(different))
        if kind == len(different):
            different.append(row)
        kinds.append(kind)
    return different, kinds


def _reach(values: Array, ceiling: float) -> NDArray[np.int_]:
    """Return for each begin the last end whose value is at most `ceiling`; 0 if there is none."""
    fits = values <= min(ceiling, np.finfo(np.float64).max)
    return np.where(fits.any(axis=0), len(values) - 1 - np.argmax(fits[::-1], axis=0), 0)
