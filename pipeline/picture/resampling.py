"""Resampling: arrays of floats at positions between their elements."""

from __future__ import annotations

import numpy as np


def interpolate(array: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Interpolate linearly at rows and columns.

    Parameters
    ----------
    array : array
        [..., height, width].
    rows, columns : array
        Positions along the last two axes; those outside have the values of the edge.

    Returns
    -------
    array
        [..., len(rows), len(columns)].
    """
    return _interpolate_last(_interpolate_last(array.swapaxes(-1, -2), rows).swapaxes(-1, -2), columns)


def _interpolate_last(array: np.ndarray, positions: np.ndarray) -> np.ndarray:
    inside = np.clip(positions, 0, array.shape[-1] - 1)
    before = np.floor(inside).astype(np.intp)
    after = np.minimum(before + 1, array.shape[-1] - 1)
    weight = (inside - before).astype(array.dtype)
    values: np.ndarray = array[..., before] * (1 - weight) + array[..., after] * weight
    return values
