"""Borrowing gain: time saved by borrowing devices several times."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from pipeline.split.planning.borrowing.heterogeneous import OWN, StepCosts, path_totals, shortest_path
from pipeline.split.planning.problem.arrays import span_sums

_WORTH_IT = 1.1
"""Least speed-up of a frame for stages to borrow unasked: each number of workers is one more choice."""


def is_useful(costs: StepCosts) -> bool:
    """Check if repeated borrowing beats a chain's single visits."""
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
    """Return the least seconds with one borrowed step at most."""
    home_seconds = np.concatenate([[0.0], np.cumsum(costs.seconds[OWN, begin:end])])
    best = float(home_seconds[-1])
    for device in range(1, len(costs.start_s)):
        borrowed = span_sums(costs.seconds[device, begin:end])
        enter, leave = (
            costs.change_costs[0, pair[0], pair[1], begin : end + 1] for pair in ((OWN, device), (device, OWN))
        )
        # Before the step, in it, and behind it; entry ``[j, i]`` as elsewhere.
        # Where the own cores cannot run everything, what is behind is infinity less infinity: no number.
        with np.errstate(invalid="ignore"):
            head, tail = home_seconds + enter, home_seconds[-1] - home_seconds + leave
            totals = head[None, :] + borrowed + tail[:, None]
        best = min(best, float(np.where(np.isnan(totals), np.inf, totals).min()))
    return best
