"""Solver: the fastest division, or the one with the least delay or energy that is fast enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from pipeline.split.planning.bound import Relaxation, relax
from pipeline.split.planning.labels import MOST_LABELS, LabelResult, LabelSearch
from pipeline.split.planning.limits import ROUNDING, Limits, SumLimit
from pipeline.split.planning.problem import Array, Choice, Problem
from pipeline.split.planning.search import Border, Borders, Segment, StageTable, best_division, least_rests
from pipeline.split.planning.solution import Solution, solution

COARSE = 40
"""Positions of the first, quick search, whose result bounds the second one from above."""

SHORT = 20
"""Items of a chain up to which a search of labels may take a second or two; of longer ones there are many."""

PRECISION = 1e-3
"""To which share the interval is found where stages share resources or a memory; else it is exact."""

_ROUNDS = 12
"""How often several such limits are weighed against each other before a limit counts as out of reach."""

_IDLE_ROUNDS = 3
"""Rounds without a better division after which there is none to be expected."""

COARSE_PRECISION = 1e-2
"""To which share the interval is found in chains that are not short, where labels gave up: it is no proof anyway."""

# By which shares the ceiling of a search lies above the bound, one after the other.
_FIRST_STEP, _GROWTH, _LAST_STEP = 0.01, 5.0, 100.0


# Of the least sum: up to the first a search is short; up to the second it pays to begin with the first.
_NEAR, _FAR = 1.01, 3.0


class Solver:
    """A problem that is being solved.

    Parameters
    ----------
    problem : Problem
    ceiling : float
        An interval that some division is known to reach; slower ones are not looked at.
    """

    def __init__(self, problem: Problem, ceiling: float = np.inf) -> None:
        self.problem, self._ceiling = problem, ceiling
        self.borders = Borders(problem)
        self._times = StageTable(problem, self.borders, problem.intervals)
        self._cost_tables: dict[str, StageTable] = {}
        self._limits = Limits(problem, self.borders, list(self._times.values))

    @cached_property
    def relaxation(self) -> Relaxation:
        """An interval that no division can beat, from a relaxation."""
        return relax(self.problem)

    def fastest(self) -> Solution | None:
        """Return a division with the least interval, None if there is none at all."""
        segments = self._fastest_without_limits()
        if segments is None:
            return None
        slowest = max(self._times.largest(segments), self.relaxation.interval)
        # What is the fastest without limits, and keeps them, is the fastest with them.
        if self._fits(segments, self._limits.at(slowest)):
            division = solution(self.problem, self.borders, segments)
            return replace(division, bound=min(slowest, division.interval))
        # Of what takes longer, some is within the memories.
        fits_anyway = self._fits(segments, self._limits.at(np.inf))
        return self._fastest_within_limits(slowest, segments if fits_anyway else None)

    def least(self, goal: str, interval: float, ceiling: float = np.inf) -> Solution | None:
        """Return the division with the least of something, among those with at most `interval` seconds.

        Parameters
        ----------
        goal : str
            ``"size"`` (stages, then units), ``"latency"``, or ``"energy"``.
        interval : float
        ceiling : float
            Only divisions with at most so much are looked for.
        """
        segments = self._cheapest(self._within(self._costs(goal), interval), interval, ceiling)
        return None if segments is None else solution(self.problem, self.borders, segments)

    def _costs(self, goal: str) -> StageTable:
        if goal not in self._cost_tables:
            weights = {"size": self._sizes, "latency": self.problem.latencies, "energy": self._energies}[goal]
            self._cost_tables[goal] = StageTable(self.problem, self.borders, weights)
        return self._cost_tables[goal]

    def _search(self, costs: StageTable, highest: float = np.inf) -> list[Segment] | None:
        rests = least_rests(self.problem, self.borders, costs)
        starts = [rest[0] for border, rest in rests.items() if border in self._first_borders]
        low = min(starts, default=np.inf)
        # Most often there is a division near to what stages would take if there were units for all of them.
        for ceiling in (low * _NEAR, highest) if highest > low * _FAR else (highest,):
            segments = best_division(self.problem, self.borders, costs, np.add, ceiling, rests=rests)
            if segments is not None or ceiling == highest:
                return segments
        raise AssertionError("the last ceiling is the highest")

    @cached_property
    def _first_borders(self) -> set[Border]:
        caller = len(self.problem.processors)
        return {(processor, self.borders.enter_kind(caller, processor)) for processor in range(caller)}

    def _fastest_without_limits(self) -> list[Segment] | None:
        """Return the division with the fastest slowest stage, as if there were no limits on sums."""
        # The coarse division is one of this problem as well, so that the best one is no slower than it.
        reached = self._ceiling if np.isfinite(self._ceiling) else self._coarse_interval()
        # What is shared may bound it from below by more than stages alone take: those are not told apart.
        floor = self.relaxation.interval
        ceiling = max(reached, floor) * (1 + ROUNDING)
        return best_division(self.problem, self.borders, self._times, np.maximum, ceiling, floor)

    # A search up to a low ceiling looks at few of the stages there could be.
    def _coarse_interval(self) -> float:
        """Interval of a division at few positions; most of what a search would look at is slower."""
        positions = self.problem.spread_positions(max(COARSE, 3 * len(self.problem.stages)))
        if len(positions) > self.problem.items:
            return np.inf
        coarse = Solver(self.problem.merge_items(positions))
        segments = coarse._fastest_without_limits()
        return np.inf if segments is None else coarse._times.largest(segments)

    def _fastest_within_limits(self, low: float, segments: list[Segment] | None) -> Solution | None:
        """Return the fastest division within limits; none is faster than `low`, and `segments` are within them."""
        low = max(low, self.relaxation.interval)
        best = None if segments is None else solution(self.problem, self.borders, segments)
        high = self._ceiling if best is None else best.interval
        result, proved = self._search_labels(self._times, low, high)
        if result.segments is not None:
            best = solution(self.problem, self.borders, result.segments)
        if not result.complete:
            best = self._bisect(proved, best)
        if best is None:
            return None
        return replace(best, bound=best.interval if result.complete else min(proved, best.interval))

    def _bisect(self, low: float, best: Solution | None) -> Solution | None:
        """Return a division as fast as weighing limits against each other finds one."""
        if self.problem.items > COARSE:
            # Each step is a search of its own: at few positions they are quick.
            positions = self.problem.spread_positions(max(COARSE, 3 * len(self.problem.stages)))
            coarse = Solver(self.problem.merge_items(positions)).fastest()
            candidates = [each for each in (best, coarse and coarse.at_positions(positions)) if each]
            return min(candidates, key=lambda candidate: candidate.interval, default=None)
        if best is None:
            segments = self._feasible(self._within(self._times, np.inf), np.inf)
            best = None if segments is None else solution(self.problem, self.borders, segments)
        precision = PRECISION if self.problem.items <= SHORT else COARSE_PRECISION
        while best is not None and best.interval > low * (1 + precision):
            middle = (low + best.interval) / 2
            segments = self._feasible(self._within(self._times, middle), middle)
            if segments is None:
                low = middle
            else:
                best = solution(self.problem, self.borders, segments)
        return best

    def _search_labels(
        self, costs: StageTable, low: float, high: float, interval: float | None = None
    ) -> tuple[LabelResult, float]:
        """Return the division with the least cost, which is none below `low`, and up to where there is none.

        Without an interval, the cost is the interval.
        """
        ceiling, made, paced = low, 0, interval is None
        step = _FIRST_STEP
        # Of a longer chain each label has more ways to go on.
        most = MOST_LABELS if self.problem.items <= SHORT else MOST_LABELS // 20
        while True:
            # A search below a low ceiling is short: it may go up a few times until there is one.
            ceiling = high if not ceiling or step > _LAST_STEP else min(high, low * (1 + step))
            pace = ceiling if interval is None else interval
            limits, implied = self._limits.at(pace), [self._relaxed_limit(pace)]
            search = LabelSearch(
                self.problem, self.borders, costs.values, limits, implied=implied, paced=paced, ceiling=ceiling
            )
            result = search.run(most - made)
            if result.segments is not None or not result.complete or ceiling == high:
                return result, (low if step == _FIRST_STEP else low * (1 + step / _GROWTH))
            made, step = made + search.made, step * _GROWTH

    def _relaxed_limit(self, interval: float) -> SumLimit:
        """Return what the relaxation's prices say that the stages of any division with an interval may cost."""
        prices = [self.relaxation.units @ choice.use for choice in self.problem.choices]
        size = self.problem.items + 1
        values = {key: np.full((size, size), prices[key[0]]) for key in self._times.values}
        for limit, price in zip(self._limits.at(interval), self.relaxation.resources, strict=False):
            for key, load in limit.values.items():
                values[key] = values[key] + load * (price / limit.limit)
        return SumLimit(values, 1.0, paced=False)

    def _feasible(self, costs: StageTable, interval: float) -> list[Segment] | None:
        """Return a division of possible stages that keeps the limits, as far as weighing them finds one.

        What a limit weighs grows where it was exceeded; if the weighed sum is above 1, no division keeps all of them.
        """
        limits, stages = self._limits.at(interval), _flatten(costs)
        weights = np.full(len(limits), 1 / max(1, len(limits)))
        for _ in range(_ROUNDS):
            segments = self._search(_weigh(stages, weights, limits))
            if segments is None:
                return None
            shares = _shares(segments, limits)
            if (shares <= 1 + ROUNDING).all():
                return segments
            if shares @ weights > 1 + 2 * ROUNDING:
                return None
            # Multiplicative weights, as in a linear program's dual: what was exceeded by half weighs 1.6 times as
            # much.
            weights = weights * np.exp(shares - 1)
            weights /= weights.sum()
        return None

    def _cheapest(self, costs: StageTable, interval: float, ceiling: float) -> list[Segment] | None:
        """Return the division with the least sum of costs that keeps the limits."""
        segments = self._search(costs, ceiling * (1 + ROUNDING))
        limits = self._limits.at(interval)
        if segments is None or self._fits(segments, limits):
            return segments
        high = ceiling * (1 + 2 * ROUNDING)
        result, _ = self._search_labels(costs, costs.total(segments), high, interval)
        if result.complete:
            return result.segments
        # As far as weighing them finds one. Subgradient steps: a limit is dearer while it is exceeded.
        best, prices = result.segments or self._feasible(costs, interval), np.zeros(len(limits))
        scale, idle_rounds = costs.total(best or segments), 0
        for _ in range(_ROUNDS):
            prices = np.maximum(0.0, prices + scale * (_shares(segments, limits) - 1))
            segments = self._search(_weigh(costs, prices, limits)) or segments
            idle_rounds += best is not None
            if self._fits(segments, limits) and (best is None or costs.total(segments) < costs.total(best)):
                best, idle_rounds = segments, 0
            if idle_rounds == _IDLE_ROUNDS:
                break
        return best

    def _within(self, table: StageTable, interval: float) -> StageTable:
        """Return the table without stages that take longer than `interval`, or that cannot be."""
        longest = min(interval * (1 + ROUNDING), np.finfo(np.float64).max)
        return StageTable.of(
            {key: np.where(self._times.values[key] <= longest, values, np.inf) for key, values in table.values.items()}
        )

    @staticmethod
    def _fits(segments: Sequence[Segment], limits: Sequence[SumLimit]) -> bool:
        return all(limit.share(segments) <= 1 + ROUNDING for limit in limits)

    def _sizes(self, choice: Choice, enter: Array, leave: Array) -> Array:
        units = max(1, sum(processor.units for processor in self.problem.processors))
        latencies = self.problem.latencies(choice, enter, leave)
        longest = float(np.max(latencies, where=np.isfinite(latencies), initial=1e-300))
        return 1 + 0.5 * sum(choice.use) / units + 1e-3 * latencies / longest

    def _energies(self, choice: Choice, enter: Array, leave: Array) -> Array:
        busy = self.problem.busy_seconds(choice, enter, leave)
        # Among equals, where no power is known, the shortest.
        return np.asarray((choice.watts + 1e-6) * busy)


def _flatten(table: StageTable) -> StageTable:
    """Return the table with 0 for all stages that can be."""
    return StageTable.of({key: np.where(np.isfinite(each), 0.0, np.inf) for key, each in table.values.items()})


def _weigh(table: StageTable, weights: Array, limits: Sequence[SumLimit]) -> StageTable:
    """Return the table plus the shares of the limits by their weights."""
    sums = dict(table.values)
    for weight, limit in zip(weights, limits, strict=True):
        if weight:
            sums |= {key: sums[key] + weight / limit.limit * values for key, values in limit.values.items()}
    return StageTable.of(sums)


def _shares(segments: Sequence[Segment], limits: Sequence[SumLimit]) -> Array:
    """Return the share of each limit that a division uses."""
    return np.array([limit.share(segments) for limit in limits])
