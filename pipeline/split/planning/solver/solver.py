"""Solver: the fastest division, or the least of another goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.border_kinds import Border, Borders, Key, Segment
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.limits import ROUNDING, Limits, SumLimit, limited
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.bound import Relaxation, relax
from pipeline.split.planning.solver.labels import MOST_LABELS, LabelResult, LabelSearch
from pipeline.split.planning.solver.lagrangian import CheapestDivision, Lagrangian, keeps
from pipeline.split.planning.solver.search import best_division, least_rests
from pipeline.split.planning.solver.solution import Solution, solution
from pipeline.split.planning.solver.stage_table import StageTable

SHORT = 20
"""Items of a chain up to which a search of labels may take a second or two; of longer ones there are many."""

PRECISION = 1e-3
"""Relative precision of the interval where stages share resources or a memory. It is exact elsewhere."""

LATE_PRECISION = 2e-2
"""Relative precision of the interval below a latency, where no failed search bounds it from below."""

# Of a division that is so near to its bound, none is looked for that is better.
_OPEN_GAP = 0.01

# By which shares the ceiling of a search lies above the bound, one after the other.
_FIRST_STEP, _GROWTH, _LAST_STEP = 0.01, 5.0, 100.0

# What all units, and the longest latency of a stage, count in a division's size beside its stages.
_UNITS_SIZE, _LATENCY_SIZE = 0.5, 1e-3

# Of the least sum: up to the first a search is short; up to the second it pays to begin with the first.
_NEAR, _FAR = 1.01, 3.0


class Solver:
    """Solver's state for one problem.

    Divisions slower than `ceiling` are not looked at, nor those of more than `most_latency`; a known division bounds
    the search, or what is of no use.
    """

    def __init__(self, problem: Problem, ceiling: float = np.inf, most_latency: float = np.inf) -> None:
        self.problem, self._ceiling, self._most_latency = problem, ceiling, most_latency
        self.borders = Borders(problem)
        self._times = StageTable(problem, self.borders, problem.intervals)
        self._cost_tables: dict[str, StageTable] = {}
        self._sums = Limits(problem, self.borders, list(self._times.values))
        self._lagrangian = Lagrangian(self._search)

    @cached_property
    def relaxation(self) -> Relaxation:
        """Lower bound on the interval, from a relaxation."""
        return relax(self.problem)

    def fastest(self) -> Solution | None:
        """Return a division of least interval, or None."""
        segments = self._fastest_without_limits()
        if segments is None:
            return None
        slowest = max(self._times.largest(segments), self.relaxation.interval)
        # What is the fastest without limits, and keeps them, is the fastest with them.
        if keeps(segments, self._limits(slowest)):
            division = solution(self.problem, self.borders, segments)
            return replace(division, bound=min(slowest, division.interval))
        # Of what takes longer, some is within the memories.
        return self._fastest_within_limits(slowest, segments, is_within=keeps(segments, self._limits(np.inf)))

    def least(self, goal: str, interval: float, ceiling: float = np.inf) -> Solution | None:
        """Return the division with a goal's least within `interval` seconds.

        A goal is ``"size"`` (stages, then units), ``"latency"``, or ``"energy"``; only values up to `ceiling` are
        looked for.
        """
        segments = self._cheapest(goal, interval, ceiling)
        return None if segments is None else solution(self.problem, self.borders, segments)

    @cached_property
    def _quickest(self) -> StageTable:
        """Times of stages, dominated choices left out."""
        tables = [self._times.values, *(limit.values for limit in self._limits(1.0))]
        keys: dict[int, list[Key]] = {}
        for key in self._times.values:
            keys.setdefault(key[0], []).append(key)
        groups: dict[tuple[object, ...], list[int]] = {}
        for index, choice in enumerate(self.problem.choices):
            group = groups.setdefault((choice.processor, choice.use, choice.device), [])
            # Of those that are in the group already, no two are alike.
            if not any(_is_dominated(keys[index], keys[rival], tables) for rival in group):
                group[:] = [rival for rival in group if not _is_dominated(keys[rival], keys[index], tables)]
                group.append(index)
        best = [key for group in groups.values() for index in group for key in keys[index]]
        return StageTable.of({key: self._times.values[key] for key in best})

    def _limits(self, interval: float) -> list[SumLimit]:
        """Return the limits at an interval, resources' first."""
        limits = self._sums.at(interval)
        if np.isfinite(self._most_latency):
            limits.append(SumLimit(self._costs("latency").values, self._most_latency, paced=False))
        return limits

    def _costs(self, goal: str) -> StageTable:
        if goal not in self._cost_tables:
            weights = {"size": self._sizes, "latency": self.problem.latencies, "energy": self._energies}[goal]
            self._cost_tables[goal] = StageTable(self.problem, self.borders, weights)
        return self._cost_tables[goal]

    def _search(self, costs: StageTable, highest: float = np.inf) -> list[Segment] | None:
        rests = least_rests(self.problem, self.borders, costs)
        starts = [remainder[0] for border, remainder in rests.items() if border in self._first_borders]
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
        """Return the fastest division without limits on sums."""
        # What is shared may bound it from below by more than stages alone take: those are not told apart.
        floor = self.relaxation.interval
        ceiling = max(self._ceiling, floor) * (1 + ROUNDING)
        return best_division(self.problem, self.borders, self._quickest, np.maximum, ceiling, floor)

    def _fastest_within_limits(self, low: float, segments: list[Segment], *, is_within: bool) -> Solution | None:
        """Return the fastest division within limits, none below `low`.

        `segments` is a division that is fast without limits.

        `is_within` is True if they keep the limits at a slower pace.
        """
        best = solution(self.problem, self.borders, segments) if is_within else None
        if self.problem.items > SHORT:
            return self._bisect(low, segments, best)
        result, proved = self._search_labels(self._times, low, self._ceiling if best is None else best.interval)
        if result.segments is not None:
            best = solution(self.problem, self.borders, result.segments)
        if not result.complete:
            return self._bisect(proved, segments, best)
        return None if best is None else replace(best, bound=best.interval)

    def _bisect(self, low: float, segments: list[Segment], best: Solution | None) -> Solution | None:
        """Return a fast division by weighing limits; none beats `low`."""
        interval = highest = self._ceiling if best is None else best.interval
        proved, precision = low, LATE_PRECISION
        if np.isinf(self._most_latency):
            precision = PRECISION
            # What stages share is most often used to the full by some division: there is nothing else to look for.
            interval = min(interval, low * (1 + precision / 2) or interval)
        while True:
            division, needed = self._within_limits(interval, segments)
            # Faster divisions have no other stages than those that were looked at.
            low, proved = max(low, needed), max(proved, needed)
            if division is None:
                # What is neither found nor proved to be impossible is passed over.
                low = interval
            elif best is None or division.interval < best.interval:
                best = division
            if best is None:
                if interval >= highest:
                    return None
                interval = highest
                continue
            if best.interval <= low * (1 + precision):
                return replace(best, bound=min(proved, best.interval))
            interval = max((low + best.interval) / 2, low * (1 + precision / 2))

    def _within_limits(self, interval: float, segments: list[Segment]) -> tuple[Solution | None, float]:
        """Return a known division within an interval, and the least need.

        `segments` is a division that is fast without limits.
        """
        stages, limits = _flatten(self._within(self._quickest, interval)), self._limits(interval)
        keeping, least_pace = self._lagrangian.feasible(stages, limits, segments)
        needed = interval if np.isinf(least_pace) else limited(interval) * least_pace * (1 - ROUNDING)
        return (None if keeping is None else solution(self.problem, self.borders, keeping)), needed

    def _search_labels(
        self, costs: StageTable, low: float, high: float, interval: float | None = None
    ) -> tuple[LabelResult, float]:
        """Return the cheapest division from `low`, and the proven bound.

        Without an interval, the cost is the interval.
        """
        ceiling, label_count, paced = low, 0, interval is None
        step = _FIRST_STEP
        # Of a longer chain each label has more ways to go on.
        limit = MOST_LABELS if self.problem.items <= SHORT else MOST_LABELS // 50
        while True:
            # A search below a low ceiling is short: it may go up a few times until there is one.
            ceiling = high if not ceiling or step > _LAST_STEP else min(high, low * (1 + step))
            pace = ceiling if interval is None else interval
            limits, implied = self._limits(pace), [self._relaxed_limit(pace)]
            search = LabelSearch(
                self.problem, self.borders, costs.values, limits, implied=implied, paced=paced, ceiling=ceiling
            )
            result = search.run(limit - label_count)
            if result.segments is not None or not result.complete or ceiling == high:
                return result, (low if step == _FIRST_STEP else low * (1 + step / _GROWTH))
            label_count, step = label_count + search.made, step * _GROWTH

    def _relaxed_limit(self, interval: float) -> SumLimit:
        """Return the relaxation's cost limit at an interval."""
        prices = [self.relaxation.units @ choice.use for choice in self.problem.choices]
        size = self.problem.items + 1
        values = {key: np.full((size, size), prices[key[0]]) for key in self._times.values}
        for limit, price in zip(self._limits(interval), self.relaxation.resources, strict=False):
            for key, load in limit.values.items():
                values[key] = values[key] + load * (price / limit.limit)
        return SumLimit(values, 1.0, paced=False)

    def _cheapest(self, goal: str, interval: float, ceiling: float) -> list[Segment] | None:
        """Return the cheapest division within limits, as found."""
        costs = self._within(self._costs(goal), interval)
        segments = self._search(costs, ceiling * (1 + ROUNDING))
        limits = self._limits(interval)
        if segments is None or keeps(segments, limits):
            return segments
        high, low, best = ceiling * (1 + 2 * ROUNDING), costs.total(segments), None
        if self.problem.items > SHORT:
            best, low = self._priced(costs, limits, segments)
            if best is None or low > high or _is_near(goal, best, costs.total(best), low):
                return best if best is not None and costs.total(best) <= high else None
            high = min(high, costs.total(best))
        result, _ = self._search_labels(costs, low, high, interval)
        if result.complete or result.segments is not None or best is not None:
            return result.segments or (best if best is not None and costs.total(best) <= high else None)
        return self._priced(costs, limits, segments).segments

    def _priced(self, costs: StageTable, limits: Sequence[SumLimit], segments: list[Segment]) -> CheapestDivision:
        keeping, least_pace = self._lagrangian.feasible(_flatten(costs), limits, segments)
        if keeping is None:
            return CheapestDivision(None, np.inf if np.isinf(least_pace) else 0.0)
        return self._lagrangian.cheapest(costs, limits, segments, keeping)

    def _within(self, table: StageTable, interval: float) -> StageTable:
        """Return the table of possible stages within `interval`."""
        longest = min(interval * (1 + ROUNDING), np.finfo(np.float64).max)
        return StageTable.of(
            {key: np.where(self._times.values[key] <= longest, values, np.inf) for key, values in table.values.items()}
        )

    def _sizes(self, choice: Choice, enter: Array, leave: Array) -> Array:
        units = max(1, sum(processor.units for processor in self.problem.processors))
        latencies = self.problem.latencies(choice, enter, leave)
        longest = float(np.max(latencies, where=np.isfinite(latencies), initial=1e-300))
        return 1 + _UNITS_SIZE * sum(choice.use) / units + _LATENCY_SIZE * latencies / longest

    def _energies(self, choice: Choice, enter: Array, leave: Array) -> Array:
        busy = self.problem.busy_seconds(choice, enter, leave)
        # Among equals, where no power is known, the shortest.
        return np.asarray((choice.watts + 1e-6) * busy)


def _is_dominated(keys: Sequence[Key], rivals: Sequence[Key], tables: Sequence[Mapping[Key, Array]]) -> bool:
    """Check if another choice's stages take no more anywhere."""
    nothing = np.zeros(1)
    return all(
        bool((values.get(rival, nothing) <= values.get(key, nothing)).all())
        for key, rival in zip(keys, rivals, strict=True)
        for values in tables
    )


def _is_near(goal: str, segments: Sequence[Segment], cost: float, low: float) -> bool:
    """Check if a division is nearly least; in size, exactly."""
    # A size is the number of stages, and for all units together up to half a stage.
    fewest = low - _UNITS_SIZE - len(segments) * _LATENCY_SIZE
    return cost <= low * (1 + _OPEN_GAP) or (goal == "size" and len(segments) < fewest + 1)


def _flatten(table: StageTable) -> StageTable:
    """Return the table with 0 for possible stages."""
    return StageTable.of({key: np.where(np.isfinite(values), 0.0, np.inf) for key, values in table.values.items()})
