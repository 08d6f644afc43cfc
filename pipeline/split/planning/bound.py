"""Bound: what no division can beat, from a relaxation of the problem."""

from __future__ import annotations

import numpy as np

from pipeline.split.planning.problem import Array, Problem

_STEPS = 300


def relaxed(problem: Problem) -> float:
    """Return a time between two frames that no division can beat.

    It lets each item go anywhere by any parts, without order and without transfers: a linear program, whose dual is

        maximise over prices >= 0 with sum(price * units) = 1:  sum over items of the cheapest choice's price.

    Every set of prices gives a bound, so that a few hundred steps uphill need no solver.  No stage can be faster than
    the slowest item on the choice that suits it best, either.
    """
    per_frame = np.array([choice.seconds / choice.replicas for choice in problem.choices])
    slowest = float(per_frame.min(axis=0).max())
    if not np.isfinite(slowest):
        return slowest
    return max(slowest, _dual(problem, np.where(np.isfinite(per_frame), per_frame, 1e300))) * (1 - 1e-9)


def _dual(problem: Problem, per_frame: Array) -> float:
    # Stages that take turns have one unit of time between them.
    units = np.array([1.0 if place.shares else place.units for place in problem.places])
    shares = np.array([place.shares for place in problem.places])
    use = np.array([choice.use for choice in problem.choices], np.float64)
    use = np.where(shares & (use > 0), 1.0, use)
    prices, best = np.full(len(units), 1 / units.sum()), 0.0
    rows = np.arange(problem.items)
    for step in range(_STEPS):
        costs = (use @ prices)[:, None] * per_frame
        cheapest = costs.argmin(axis=0)
        best = max(best, float(costs[cheapest, rows].sum()))
        # Dearer where the cheapest choices ask for more than there is, cheaper where they ask for less.
        wanted = per_frame[cheapest, rows] @ use[cheapest] / units
        prices *= np.exp((wanted / max(wanted.max(), 1e-300) - 0.5) * 2 / (1 + 0.1 * step))
        prices /= prices @ units
    return best
