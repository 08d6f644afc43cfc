"""Borrowing gain: whether a frame takes less time where its workers borrow devices several times."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pipeline.split.planning.borrowing.heterogeneous import OWN, StepCosts, path_totals, shortest_path
from pipeline.split.planning.problem.arrays import span_sums

_WORTH_IT = 1.1
"""By how much faster one frame has to be for stages to borrow unasked: each number of workers is one more choice."""


def is_useful(costs: StepCosts) -> bool:
    """Check that to borrow several times is faster than to have each device once, as a chain of stages does."""
    # The whole chain may hold items that none of these devices runs.
    edges = [0, *(np.flatnonzero(np.isinf(costs.seconds.min(axis=0))) + 1), costs.items + 1]
    begin, end = max(((begin, end - 1) for begin, end in pairwise(edges)), key=lambda span: span[1] - span[0])
    try:
        steps = shortest_path(costs, np.zeros(costs.resources), begin, end)
    except ValueError:
        return False
    if sum(step.device != OWN for step in steps) < 2:
        return False
    return float(path_totals(costs, steps)[0]) * _WORTH_IT < _once_borrowed(costs, begin, end)


def _once_borrowed(costs: StepCosts, begin: int, end: int) -> float:
    """Return the least time of a path with one step on a borrowed device, or with none."""
    own = np.concatenate([[0.0], np.cumsum(costs.seconds[OWN, begin:end])])
    least = float(own[-1])
    for device in range(1, len(costs.start_s)):
        inside = span_sums(costs.seconds[device, begin:end])
        enter, leave = (
            costs.change_costs[0, pair[0], pair[1], begin : end + 1] for pair in ((OWN, device), (device, OWN))
        )
        # Before the step, in it, and behind it; entry ``[j, i]`` as elsewhere.
        # Where the own cores cannot run everything, what is behind is infinity less infinity: no number.
        with np.errstate(invalid="ignore"):
            before, behind = own + enter[begin : end + 1], own[-1] - own + leave[begin : end + 1]
            totals = before[None, :] + inside + behind[:, None]
        least = min(least, float(np.where(np.isnan(totals), np.inf, totals).min()))
    return least
