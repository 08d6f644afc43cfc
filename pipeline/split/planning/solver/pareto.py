"""Pareto rows: rows not dominated by another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.split.planning.problem.arrays import Array

# So many labels are compared with each other at once.
_BLOCK = 128


def pareto_rows(rows: Array, limit: float = np.inf) -> tuple[NDArray[np.int_], int]:
    """Return the numbers of undominated rows.

    It gives up after `limit` comparisons of two rows, without those that it did not come to. Also returns the number of
    comparisons; above `limit` if it gave up.
    """
    # A row that is as good as another one in everything has no larger sum, and so comes before it.
    waiting = np.lexsort((np.arange(len(rows)), rows.sum(axis=1)))
    pareto, comparisons = [np.zeros(0, np.int_)], 0
    while len(waiting) and comparisons <= limit:
        block, waiting = waiting[:_BLOCK], waiting[_BLOCK:]
        comparisons += len(block) * (len(block) + len(waiting))
        as_good = (rows[block, None] <= rows[None, block]).all(axis=2)
        block = block[~np.triu(as_good, 1).any(axis=0)]
        pareto.append(block)
        for first in range(0, len(block), 16):
            dominated = (rows[block[first : first + 16], None] <= rows[None, waiting]).all(axis=2).any(axis=0)
            waiting = waiting[~dominated]
    return np.concatenate(pareto), comparisons
