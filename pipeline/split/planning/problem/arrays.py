"""Arrays: sums and maxima over a chain's spans, as ``[end, begin]``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def span_sums(values: Array) -> Array:
    """Return the sums of ``values[i:j]`` as entry ``[j, i]``.

    Sums are infinite for an empty span or one with an infinity.
    """
    # Infinities are counted apart: in a prefix sum, one would swallow all that follow it.
    infinities = np.concatenate([[0], np.cumsum(np.isinf(values))])
    prefix = np.concatenate([[0.0], np.cumsum(np.where(np.isinf(values), 0.0, values))])
    sums: Array = np.subtract.outer(prefix, prefix)
    # A span with an infinity in it, whose prefix sums left it out.
    sums[np.subtract.outer(infinities, infinities) != 0] = np.inf
    sums[np.triu_indices(len(prefix))] = np.inf
    return sums


def span_maxima(values: Array) -> Array:
    """Return the maxima of ``values[i:j]`` as ``[j, i]``; 0 if empty."""
    size = len(values) + 1
    maxima = np.zeros((size, size))
    # Each row follows from the one above it: for each begin, one more item at the end.
    for end in range(1, size):
        maxima[end, :end] = np.maximum(maxima[end - 1, :end], values[end - 1])
    return maxima
