"""Pareto rows: those of which no other one is at most as large in everything."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.split.planning.problem.arrays import Array

# So many labels are compared with each other at once.
_BLOCK = 128


def pareto_rows(rows: Array, most: float = np.inf) -> tuple[NDArray[np.int_], int]:
    """Return the numbers of those rows of which no other one is at most as large in all columns.

    Parameters
    ----------
    rows : array of float
    most : float
        Comparisons of two rows after which it gives up, without those that it did not come to.

    Returns
    -------
    numbers : array of int
    comparisons : int
        How many it took; above `most` if it gave up.
    """
    # A row that is as good as another one in everything has no larger sum, and so comes before it.
    waiting = np.lexsort((np.arange(len(rows)), rows.sum(axis=1)))
    kept, comparisons = [np.zeros(0, np.int_)], 0
    while len(waiting) and comparisons <= most:
        block, waiting = waiting[:_BLOCK], waiting[_BLOCK:]
        comparisons += len(block) * (len(block) + len(waiting))
        as_good = (rows[block, None] <= rows[None, block]).all(axis=2)
        block = block[~np.triu(as_good, 1).any(axis=0)]
        kept.append(block)
        for first in range(0, len(block), 16):
            dominated = (rows[block[first : first + 16], None] <= rows[None, waiting]).all(axis=2).any(axis=0)
            waiting = waiting[~dominated]
    return np.concatenate(kept), comparisons
