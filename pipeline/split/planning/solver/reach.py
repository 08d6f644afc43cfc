"""Reach: divisibility of a chain within an interval, in linear time.

A state is how many units are in use, and which kind of border is next.  It has for each position whether stages that
keep up can end there.  A stage on the items ``[i, j)`` keeps up if ``a * (P[j] - P[i]) + b * (enter[i] + leave[j])`` is
at most the interval, with the prefix sums ``P`` of its times.  So of all positions where it may begin, only the one
with the largest ``a * P[i] - b * enter[i]`` has to be looked at.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain, product
from operator import add, le
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.border_kinds import Border, Borders, Segment
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.search import Use, rows_with_fewer

Reached = NDArray[np.bool_]
"""Ends of stages, by position."""

State = dict[Border, Reached]


class _Form(NamedTuple):
    """Interval's conditions on a stage: factors and prefix sums."""

    compute: float
    transfer: float
    prefix: Array


class ReachSearch:
    """Search for divisions in pace, without sharing and memories.

    Divisions that the search does not find are impossible.  Those that it finds may be slower: spans that are no sums
    count as if they were, and transfers of unlike replicas as if they were alike.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem, self.borders = problem, Borders(problem)
        count = len(problem.stages)
        # A fixed number of stages is one more thing that each stage takes one of.
        self._units = (*(processor.units for processor in problem.processors), *([count] if count else []))
        self._uses: list[Use] = [choice.use + ((1,) if count else ()) for choice in problem.choices]
        self._states: dict[Use, State] = {}
        self._interval = 0.0

    @cached_property
    def longest(self) -> float:
        """Interval kept by all possible stages."""
        compute = max(_finite_sum(choice.seconds) for choice in self._problem.choices)
        borders = (self._problem.enter, self._problem.leave)
        transfers = (float(values.max(where=np.isfinite(values), initial=0.0)) for values in borders)
        return max(compute + sum(transfers) + self._problem.hop_s, 1e-300)

    def division(self, interval: float) -> list[Segment] | None:
        """Return a division within an interval, or None."""
        self._states, self._interval = {}, interval
        caller, start = len(self._problem.processors), (0,) * len(self._units)
        fewer: dict[Use, State] = {}
        for processor in self._problem.stage_processors(0):
            self._state(start, (processor, self.borders.enter_kind(caller, processor)))[0] = True
        # In lexicographic order each state comes after all with fewer units, from which alone it follows.
        for use in product(*(range(units + 1) for units in self._units)):
            self._drop_reached_with_fewer(use, fewer)
            for border, reached in self._states.get(use, {}).items():
                last = self._extend(border, reached, use)
                if last is not None:
                    return self._walk_back(last, border, use)
        return None

    def _choices(self, use: Use, processor: int) -> list[tuple[int, Use]]:
        """Return the choices within the free units, by number."""
        choices = []
        for number, index in enumerate(self._best_choices[processor]):
            next_use = tuple(map(add, use, self._uses[index]))
            if all(map(le, next_use, self._units)) and self._problem.allows(use[-1], self._problem.choices[index]):
                choices.append((number, next_use))
        twins = self._problem.twins
        return [option for option in choices if all(option[1][first] >= option[1][second] for first, second in twins)]

    @cached_property
    def _best_choices(self) -> list[list[int]]:
        """Choices per processor, undominated ones only."""
        groups: dict[tuple[object, ...], list[int]] = {}
        for index, choice in enumerate(self._problem.choices):
            groups.setdefault((choice.processor, choice.use, choice.device), []).append(index)
        best: list[list[int]] = [[] for _ in self._problem.processors]
        for group in groups.values():
            # The most replicas first: transfers of one frame beside those of others hurt the least.
            group.sort(key=lambda index: -self._problem.choices[index].replicas)
            undominated: list[Array] = []
            for index in group:
                choice = self._problem.choices[index]
                seconds = choice.seconds / choice.rate
                if not any((faster <= seconds).all() for faster in undominated):
                    undominated.append(seconds)
                    best[choice.processor].append(index)
        return best

    def _extend(self, border: Border, reached: Reached, use: Use) -> int | None:
        """Mark ends of one more stage; return the chain-ending choice."""
        processor, enter = border
        choices = self._choices(use, processor)
        if not choices:
            return None
        numbers, first = [number for number, _ in choices], int(reached.argmax())
        # All choices at once: for each the best begin up to each position, of all where stages can end.
        begins = np.where(reached[first:-1], self._begins[processor, enter][:, numbers, first:-1], -np.inf)
        best = np.maximum.accumulate(begins, axis=2) + self._interval
        *stage_borders, caller_border = range(len(self.borders.leave[processor]))
        stages = self._problem.stages
        if not stages or use[-1] + 1 == len(stages):
            final = np.logical_and.reduce(best[..., -1] >= self._ends[processor, caller_border][:, numbers, -1])
            if final.any():
                return self._best_choices[processor][numbers[int(final.argmax())]]
        for leave in stage_borders:
            ends = self._ends[processor, leave][:, numbers, first + 1 : -1]
            within: Reached = np.logical_and.reduce(best[..., :-1] >= ends)
            for number in np.flatnonzero(np.logical_or.reduce(within, axis=1)).tolist():
                self._offer(within[number], first + 1, processor, leave, choices[number][1])
        return None

    def _offer(self, within: Reached, first: int, processor: int, leave: int, use: Use) -> None:
        candidates = self._problem.stage_processors(use[-1])
        for follower in self.borders.followers[processor][leave]:
            if follower in candidates:
                self._state(use, (follower, self.borders.enter_kind(processor, follower)))[first:-1] |= within

    def _state(self, use: Use, border: Border) -> Reached:
        state = self._states.setdefault(use, {})
        if border not in state:
            state[border] = np.zeros(self._problem.items + 1, np.bool_)
        return state[border]

    def _drop_reached_with_fewer(self, use: Use, fewer: dict[Use, State]) -> None:
        """Drop positions reached with fewer units; remember all for more."""
        smaller = rows_with_fewer(fewer, use, len(self._problem.processors))
        state, union = self._states.get(use, {}), State()
        for border in {*state, *smaller}:
            rows = smaller.get(border, [])
            if border in state:
                for row in rows:
                    state[border] &= ~row
                rows.append(state[border])
            union[border] = rows[0] if len(rows) == 1 else np.logical_or.reduce(rows)
        fewer[use] = union
        for border in [border for border, reached in state.items() if not reached.any()]:
            del state[border]

    def _walk_back(self, choice: int, border: Border, use: Use) -> list[Segment]:
        """Return the stages before a last one."""
        leave, end = len(self.borders.leave[border[0]]) - 1, self._problem.items
        path = [Segment(self._begin(choice, border, use, leave, end), end, choice, border[1], leave)]
        while path[-1].begin:
            choice, border, use, leave = self._predecessor(use, border, path[-1].begin)
            begin = self._begin(choice, border, use, leave, path[-1].begin)
            path.append(Segment(begin, path[-1].begin, choice, border[1], leave))
        return path[::-1]

    def _predecessor(self, use: Use, border: Border, end: int) -> tuple[int, Border, Use, int]:
        """Return the choice, border, earlier units and leave before a state."""
        for index in chain.from_iterable(self._best_choices):
            choice = self._problem.choices[index]
            previous = tuple(count - taken for count, taken in zip(use, self._uses[index], strict=True))
            if not self._problem.allows(previous[-1], choice):
                continue
            leave = self.borders.leave_kind(choice.processor, border)
            for candidate in self._states.get(previous, {}):
                if leave is None or candidate[0] != choice.processor:
                    continue
                if all(within.any() for within in self._within(index, candidate, previous, leave, end)):
                    return index, candidate, previous, leave
        raise AssertionError(f"no stage leads to {border} at {end} with {use}")

    def _within(self, choice: int, border: Border, use: Use, leave: int, end: int) -> list[Reached]:
        """Return each form's begins in pace for an end."""
        reached = self._states[use][border][:end]
        number = self._best_choices[border[0]].index(choice)
        begins, ends = self._begins[border][:, number, :end], self._ends[border[0], leave][:, number, end]
        return list(reached & (begins + self._interval >= ends[:, None]))

    def _begin(self, choice: int, border: Border, use: Use, leave: int, end: int) -> int:
        within = self._within(choice, border, use, leave, end)
        # With two forms, each is asked alone on the way there.
        together = np.logical_and.reduce(within)
        return int(np.flatnonzero(together if together.any() else within[-1])[-1])

    @cached_property
    def _forms(self) -> list[list[_Form]]:
        # Instead of infinite times, such that no stage with one of them keeps up, and that sums are numbers.
        return [self._forms_of(choice, 4 * self.longest) for choice in self._problem.choices]

    def _forms_of(self, choice: Choice, never: float) -> list[_Form]:
        seconds = np.where(np.isfinite(choice.seconds), choice.seconds, never * choice.replicas)
        prefix = np.concatenate([[0.0], np.cumsum(seconds)])
        copies = choice.replicas
        if self._problem.processors[choice.processor].overlaps:
            # As `overlap_seconds`.
            return [_Form(1 / copies, 0.0, prefix), _Form(0.5 / copies, 0.5 / copies, prefix)]
        # Of unlike replicas the rates add up: that is never faster than computing and moving one after the other, each
        # on all of them.
        return [_Form(1 / choice.rate, 1 / copies, prefix)]

    @cached_property
    def _begins(self) -> dict[tuple[int, int], Array]:
        """Begin values by processor and border, shape (forms, choices, n)."""
        return self._rows(self.borders.enter, -1.0)

    @cached_property
    def _ends(self) -> dict[tuple[int, int], Array]:
        """Required begin values less the interval, by end."""
        return self._rows(self.borders.leave, 1.0)

    def _rows(self, borders: list[list[Array]], sign: float) -> dict[tuple[int, int], Array]:
        return {
            (processor, kind): np.array(
                [
                    [form.compute * form.prefix + sign * form.transfer * row for form in self._forms[index]]
                    for index in choices
                ]
            ).swapaxes(0, 1)
            for processor, choices in enumerate(self._best_choices)
            for kind, row in enumerate(borders[processor])
            if choices
        }


def _finite_sum(values: Array) -> float:
    return float(np.where(np.isfinite(values), values, 0.0).sum())
