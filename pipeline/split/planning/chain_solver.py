"""ChainSolver: a chain of any length, solved at few positions, and then at those around the cuts it got."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from pipeline.split.planning.bound import relaxed_interval
from pipeline.split.planning.problem import Problem
from pipeline.split.planning.solution import Solution
from pipeline.split.planning.solver import Solver

MOST_POSITIONS = 500
"""In longer chains, cuts are looked for at so many positions at once; the solver's time grows with their square."""

# Each round looks at least eight times closer: four tell single items in a chain of a million.
_ROUNDS = 4
# Further rounds are not worth their time once one gains less than this share.
_GAIN = 1e-4


class ChainSolver:
    """A problem of any length that is being solved.

    Up to `MOST_POSITIONS` items, it is solved exactly.  In a longer chain, cuts are first looked for at positions that
    divide the work evenly, then closer and closer around those that the round before chose.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._use(problem.spread_positions(max(MOST_POSITIONS, 2 * len(problem.stages))))

    def fastest(self) -> Solution | None:
        """Return a division with the least interval, None if there is none at all."""
        best = self._solver.fastest()
        if best is None or len(self._positions) > self._problem.items:
            return best
        best = best.at_positions(self._positions)
        for _ in range(_ROUNDS):
            positions = self._positions_around(best, self._centre(best))
            if positions == self._positions:
                break
            previous_interval = best.interval
            self._use(positions, previous_interval)
            # Only rounding may lose the division of the round before.
            finer = self._solver.fastest()
            best = finer.at_positions(positions) if finer else best
            # A fixed number of stages is looked for around all of its cuts, until these are as near as can be.
            if best.interval > previous_interval * (1 - _GAIN) and (not self._problem.stages or self._is_finest(best)):
                break
        # What was proved at some positions holds for no others; a relaxation holds for all.
        # The chain's own relaxation, and not that of the merged items.
        return replace(best, bound=relaxed_interval(self._problem))

    def least(self, goal: str, interval: float) -> Solution | None:
        """Return the division with the least of `goal`, at the positions where the fastest one was looked for."""
        cheapest = self._solver.least(goal, interval)
        return None if cheapest is None else cheapest.at_positions(self._positions)

    def _use(self, positions: Sequence[int], ceiling: float = float("inf")) -> None:
        self._positions = list(positions)
        self._solver = Solver(self._problem.merge_items(positions), ceiling)

    def _gaps(self, best: Solution) -> list[tuple[int, int]]:
        """Return each cut with the distance between the positions beside it."""
        indices = [bisect_left(self._positions, stage.end) for stage in best.stages[:-1]]
        return [(self._positions[at], self._positions[at + 1] - self._positions[at - 1]) for at in indices]

    def _is_finest(self, best: Solution) -> bool:
        return all(gap == 2 for _, gap in self._gaps(best))

    def _centre(self, best: Solution) -> Solution:
        """Return the division around whose cuts to look for a better one.

        Stages that need not be slow may be, as long as another one is: cuts then are far from where they should be.
        """
        return (self._problem.stages and self.least("imbalance", best.interval)) or best

    def _positions_around(self, best: Solution, centre: Solution) -> list[int]:
        """Return positions around the cuts, and over the whole chain where there may be more or fewer of them."""
        gaps, total = self._gaps(centre), MOST_POSITIONS
        # With the cuts so far, no round is worse than the one before.
        positions = {0, *(stage.end for stage in best.stages)}
        if not self._problem.stages:
            total //= 2
            positions.update(self._problem.spread_positions(total))
        count = max(16, total // max(1, len(gaps)))
        for cut, gap in gaps:
            # Rounded up, so that `count` positions reach from one neighbour of the cut to the other.
            step = -(-gap // count)
            window = range(cut - count // 2 * step, cut + count // 2 * step + 1, step)
            positions.update(position for position in window if 0 < position < self._problem.items)
        return sorted(positions)


def shorten(problem: Problem) -> Problem:
    """Return the problem with few positions, spread over the whole chain."""
    return problem.merge_items(problem.spread_positions(MOST_POSITIONS))
