"""ChainSolver: a chain of any length, exact near the best cuts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipeline.split.planning.problem.limits import ROUNDING
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.bound import relaxed_interval
from pipeline.split.planning.solver.reach import ReachSearch
from pipeline.split.planning.solver.solution import Solution, solution
from pipeline.split.planning.solver.solver import PRECISION, Solver

MOST_POSITIONS = 250
"""In longer chains, cuts are chosen among so many positions at once; the solver's time grows with their square."""

# Such a search takes milliseconds, and leaves little to do for those that follow.
_FEW_POSITIONS = 60
# Where an interval is approached first: a search that finds nothing takes time that grows with the positions.
_SOME_POSITIONS = 400
# Each round looks several times closer: four tell single items in a chain of a million.
_ROUNDS = 4
# To which share the interval of a fixed number of stages is found.
_GAIN = 1e-5


class ChainSolver:
    """Solver of a problem of any length.

    Up to `MOST_POSITIONS` items, it is solved as one. In a longer chain, what the fastest stages take is found to
    `PRECISION` with cuts at any position. Where they share more than there is, cuts are looked for closer and closer
    around those of the round before, and the bound is that of stages that share nothing. `positions` are those at which
    stages may begin and end at first; by default anywhere in a short chain, and at few in a longer one.
    """

    def __init__(self, problem: Problem, positions: Sequence[int] = ()) -> None:
        self._problem = problem
        self._is_short = not positions and problem.items <= max(MOST_POSITIONS, 2 * len(problem.stages))
        few = max(_FEW_POSITIONS, 3 * len(problem.stages))
        everywhere = range(problem.items + 1)
        self._use(list(positions or (everywhere if self._is_short else problem.spread_positions(few))))

    def around(self, division: Solution) -> ChainSolver:
        """Return a quick solver with few positions around a division."""
        few = max(_FEW_POSITIONS, 3 * len(self._problem.stages))
        cuts = {stage.end for stage in division.stages}
        return ChainSolver(self._problem, sorted({*self._problem.spread_positions(few), *cuts}))

    def fastest(self) -> Solution | None:
        """Return a division of least interval, or None."""
        if self._is_short:
            return self._solver.fastest()
        best, bound = self._approach()
        unlimited = best
        if best is None or not self._fits(best):
            # What is fast may need more than there is of something: few positions show what does not.
            best = self._solver.fastest()
            best = None if best is None else best.at_positions(self._positions)
        elif not self._problem.stages:
            self._use(self._positions_around([best]), best.interval)
            return replace(best, bound=min(bound, best.interval))
        candidates = [candidate for candidate in (unlimited, best) if candidate is not None]
        for _ in range(_ROUNDS if candidates else 0):
            positions = self._positions_around(candidates)
            if positions == self._positions:
                break
            # Only rounding may lose the division of the round before.
            self._use(positions, np.inf if best is None else best.interval)
            if best is not None and best.interval <= bound * (1 + PRECISION):
                break
            finer = self._solver.fastest()
            gain = finer is not None and (best is None or finer.interval < best.interval * (1 - PRECISION))
            if finer is not None and (best is None or finer.interval < best.interval):
                best = finer.at_positions(positions)
            candidates = [best] if best is not None else []
            if not gain or (best is not None and best.interval <= bound * (1 + 2 * PRECISION)):
                break
        return None if best is None else replace(best, bound=min(bound, best.interval))

    def least(self, goal: str, interval: float) -> Solution | None:
        """Return the division with the least of `goal`, near the fastest."""
        cheapest = self._solver.least(goal, interval)
        return None if cheapest is None else cheapest.at_positions(self._positions)

    def _use(self, positions: list[int], ceiling: float = np.inf) -> None:
        self._positions = positions
        self._solver = Solver(self._problem.merge_items(positions), ceiling)

    def _approach(self) -> tuple[Solution | None, float]:
        """Return the fastest division without sharing, and a lower bound."""
        positions = self._problem.spread_positions(max(_SOME_POSITIONS, 3 * len(self._problem.stages)))
        merged, low = self._problem.merge_items(positions), relaxed_interval(self._problem)
        # What is impossible with cuts at some positions may be possible with others.
        best, _ = approach(merged, low, np.inf, 1.0)
        high = np.inf
        if best is not None:
            best, high = best.at_positions(positions), _slowest(best)
        # With a fixed number of stages a search is short.
        precision = _GAIN if self._problem.stages else PRECISION
        finer, bound = approach(self._problem, low, high, precision, precision)
        return finer or best, bound

    def _fits(self, division: Solution) -> bool:
        """Check a division's resources and memories."""
        return division.interval <= _slowest(division) * (1 + ROUNDING) and all(
            sum(stage.nbytes for stage in division.stages if stage.choice.processor in memory.processors)
            <= memory.nbytes
            for memory in self._problem.memories
        )

    def _positions_around(self, divisions: Sequence[Solution]) -> list[int]:
        """Return positions around divisions' cuts, and spread over the chain."""
        total = MOST_POSITIONS
        positions = {0, self._problem.items, *(stage.end for division in divisions for stage in division.stages)}
        if not self._problem.stages:
            total //= 2
            positions.update(self._problem.spread_positions(total))
        cuts = [(stage.end, self._gap(stage.end)) for division in divisions for stage in division.stages[:-1]]
        count = max(16, total // max(1, len(cuts)))
        for cut, gap in cuts:
            # Rounded up, so that `count` positions reach from one neighbour of the cut to the other.
            step = -(-gap // count)
            window = range(cut - count // 2 * step, cut + count // 2 * step + 1, step)
            positions.update(position for position in window if 0 < position < self._problem.items)
        return sorted(positions)

    def _gap(self, cut: int) -> int:
        """Return the gap around a cut; 0 if all were tried."""
        index = bisect_left(self._positions, cut)
        if self._positions[index] != cut:
            return 1
        return self._positions[index + 1] - self._positions[index - 1]


def approach(
    problem: Problem, low: float, high: float, step: float, precision: float = PRECISION
) -> tuple[Solution | None, float]:
    """Return the fastest division without sharing, near a lower bound.

    No division beats `low`, and one is known to reach `high`. The first `step` down is a share of it, and doubles as
    long as there are divisions; in the end the two differ by at most `precision`.
    """
    search, best = ReachSearch(problem), None
    high = min(high, search.longest)
    while high > low * (1 + precision):
        # What is possible is found soon, and what is not takes a whole search.
        interval = max((low + high) / 2, high * (1 - step))
        segments = search.division(interval)
        if segments is None:
            low, step = interval, 1.0
            continue
        division = solution(problem, search.borders, segments)
        if _slowest(division) >= high * (1 - ROUNDING):
            # It only keeps up as the search counts.
            break
        best, high, step = division, _slowest(division), 2 * step
    return best, low


def _slowest(division: Solution) -> float:
    return max(stage.interval for stage in division.stages)


def shorten(problem: Problem) -> Problem:
    """Return the problem with few positions over the whole chain."""
    return problem.merge_items(problem.spread_positions(MOST_POSITIONS))
