"""Solve: the fastest division, or the one with the least delay or energy that is fast enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pipeline.split.planning.bound import relaxed
from pipeline.split.planning.problem import Array, Choice, Problem
from pipeline.split.planning.search import Borders, Search, Step, Table
from pipeline.split.planning.solution import Solution, solution

COARSE = 40
"""Positions of the first, quick search, whose result bounds the second one from above."""

PRECISION = 1e-3
"""To which share the interval is found where stages take turns or share a memory; else it is exact."""

_ROUNDS = 12
"""How often several such limits are weighed against each other before a limit counts as out of reach."""

_ROUNDING = 1e-9
_FOR_EVER = 1e12

WORTH_IT = 1.02
"""Fewer stages and cores are chosen unless more of them are this much faster."""


@dataclass(frozen=True, eq=False)
class _Limit:
    """What the sum over all stages must not exceed."""

    table: Table
    most: float


class Solver:
    """A problem that is being solved.

    Parameters
    ----------
    problem : Problem
    stages : int, optional
        How many stages there have to be; by default as many as are best.
    """

    def __init__(self, problem: Problem, stages: int | None = None) -> None:
        self.problem, self._stages = problem, stages
        self.borders = Borders(problem)
        self._search = Search(problem, self.borders, stages)
        self._times = Table(problem, self.borders, problem.times)

    @cached_property
    def relaxed(self) -> float:
        """An interval that no division can beat, from a relaxation."""
        return relaxed(self.problem)

    def fastest(self) -> Solution | None:
        """Return a division with the least interval, None if there is none at all."""
        steps = self._fastest_alone()
        if steps is None:
            return None
        slowest = _total(self._times, steps, max)
        # What is the fastest without limits, and keeps them, is the fastest with them.
        if (self._used(steps, self._limits(slowest)) <= 1 + _ROUNDING).all():
            return solution(self.problem, self.borders, steps, slowest)
        return self._fastest_within_limits()

    def least(self, goal: str, interval: float) -> Solution | None:
        """Return the division with the least of something, among those with at most `interval` seconds.

        Parameters
        ----------
        goal : str
            ``"size"`` (stages, then units), ``"latency"`` or ``"energy"``.
        interval : float
        """
        weights = {"size": self._sizes, "latency": self.problem.delays, "energy": self._energies}[goal]
        allowed = self._within(Table(self.problem, self.borders, weights), interval)
        steps = self._cheapest(allowed, interval)
        return None if steps is None else solution(self.problem, self.borders, steps)

    def _fastest_alone(self) -> list[Step] | None:
        """Return the division with the fastest slowest stage, as if there were no limits on sums."""
        return self._search.best(self._times, np.maximum, self._ceiling() * (1 + _ROUNDING), self.relaxed)

    def _ceiling(self) -> float:
        """Return what a division at few positions reaches; most of what a search would look at is slower."""
        positions = self.problem.spread(COARSE)
        if len(positions) > self.problem.items or (self._stages and self._stages >= len(positions)):
            return np.inf
        coarse = Solver(self.problem.merged(positions), self._stages)
        steps = coarse._fastest_alone()
        return np.inf if steps is None else _total(coarse._times, steps, max)

    def _fastest_within_limits(self) -> Solution | None:
        """Return the fastest division that keeps the limits, by bisection between the proved and the reached."""
        steps, _ = self._feasible(self._within(self._times, np.inf), np.inf)
        best = None if steps is None else solution(self.problem, self.borders, steps)
        bound = low = self.relaxed
        while best is not None and best.interval > low * (1 + PRECISION):
            middle = (low + best.interval) / 2
            steps, proved = self._feasible(self._within(self._times, middle), middle)
            if steps is not None:
                best = solution(self.problem, self.borders, steps)
            else:
                # A bound follows from limits that were proved to be out of reach, and from none after one that was not.
                bound, low = (middle if proved and bound == low else bound), middle
        return None if best is None else replace(best, bound=bound)

    def _feasible(self, allowed: Table, interval: float) -> tuple[list[Step] | None, bool]:
        """Return a division of allowed stages that keeps the limits; without one, whether it is proved that none does.

        What a limit weighs grows where it was exceeded; if the weighed sum is above 1, no division keeps all of them.
        """
        limits = self._limits(interval)
        weights = np.full(len(limits), 1 / max(1, len(limits)))
        for _ in range(_ROUNDS):
            steps = self._search.best(_sum(_flat(allowed), weights, limits), np.add)
            if steps is None:
                return None, True
            used = self._used(steps, limits)
            if (used <= 1 + _ROUNDING).all():
                return steps, False
            if used @ weights > 1 + 2 * _ROUNDING:
                return None, True
            weights = weights * np.exp(used - 1)
            weights /= weights.sum()
        return None, False

    def _cheapest(self, costs: Table, interval: float) -> list[Step] | None:
        """Return the division with the least sum of costs that keeps the limits, as far as weighing them finds it."""
        steps = self._search.best(costs, np.add)
        limits = self._limits(interval)
        if steps is None or (self._used(steps, limits) <= 1 + _ROUNDING).all():
            return steps
        found, _ = self._feasible(costs, interval)
        if found is None:
            return None
        best, prices = found, np.zeros(len(limits))
        scale = _total(costs, found)
        for _ in range(_ROUNDS):
            prices = np.maximum(0.0, prices + scale * (self._used(steps, limits) - 1))
            steps = self._search.best(_sum(costs, prices, limits), np.add) or found
            if (self._used(steps, limits) <= 1 + _ROUNDING).all() and _total(costs, steps) < _total(costs, best):
                best = steps
        return best

    def _within(self, table: Table, interval: float) -> Table:
        """Return the table without stages that take longer than `interval`, or that cannot be."""
        most = min(interval * (1 + _ROUNDING), np.finfo(np.float64).max)
        return Table.of(
            {key: np.where(self._times.values[key] <= most, values, np.inf) for key, values in table.values.items()}
        )

    def _limits(self, interval: float) -> list[_Limit]:
        return [*self._turns(interval), *self._memories]

    def _turns(self, interval: float) -> Iterator[_Limit]:
        for number, place in enumerate(self.problem.places):
            if place.shares:
                yield _Limit(self._only(self._times, (number,)), min(interval, _FOR_EVER))

    @cached_property
    def _memories(self) -> list[_Limit]:
        return [_Limit(self._only(self._bytes, memory.places), memory.limit) for memory in self.problem.memories]

    @cached_property
    def _bytes(self) -> Table:
        return Table(self.problem, self.borders, lambda choice, *_: self.problem.bytes(choice))

    def _only(self, table: Table, places: Sequence[int]) -> Table:
        """Return the table with 0 for stages elsewhere."""
        counts = {number for number, choice in enumerate(self.problem.choices) if choice.place in places}
        return Table.of(
            {key: values if key[0] in counts else np.zeros_like(values) for key, values in table.values.items()}
        )

    def _used(self, steps: Sequence[Step], limits: Sequence[_Limit]) -> Array:
        """Return what share of each limit a division uses."""
        return np.array([_total(limit.table, steps) / limit.most for limit in limits])

    def _sizes(self, choice: Choice, enter: Array, leave: Array) -> Array:
        units = sum(place.units for place in self.problem.places)
        delays = self.problem.delays(choice, enter, leave)
        longest = float(np.max(delays, where=np.isfinite(delays), initial=1e-300))
        return 1 + 0.5 * sum(choice.use) / units + 1e-3 * delays / longest

    def _energies(self, choice: Choice, enter: Array, leave: Array) -> Array:
        delays = self.problem.delays(choice, enter, leave)
        # Among equals, where no power is known, the shortest.
        return np.asarray((choice.watts + 1e-6) * delays)


def _flat(table: Table) -> Table:
    return Table.of({key: np.where(np.isfinite(each), 0.0, np.inf) for key, each in table.values.items()})


def _sum(table: Table, weights: Array, limits: Sequence[_Limit]) -> Table:
    """Return the table plus the shares of the limits by their weights."""
    found = dict(table.values)
    for weight, limit in zip(weights, limits, strict=True):
        if weight:
            found = {key: values + weight / limit.most * limit.table.values[key] for key, values in found.items()}
    return Table.of(found)


def _total(table: Table, steps: Sequence[Step], join: Callable[[Iterable[float]], float] = sum) -> float:
    return join(float(table.values[step.choice, step.enter, step.leave][step.end, step.begin]) for step in steps)
