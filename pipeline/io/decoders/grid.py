"""Grid: the cells of detectors that predict boxes at fixed positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.io.decoders.base import ModelInterface

STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32), (16, 32))
"""Strides of the usual detectors: of three levels, with a coarser, with a finer one, and tiny ones of two."""


def grid_sizes(size: tuple[int, int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return rows and columns of each level's cells."""
    return [(-(-size[1] // stride), -(-size[0] // stride)) for stride in strides]


def count_cells(size: tuple[int, int], strides: Sequence[int]) -> int:
    """Return the number of cells of all levels."""
    return sum(rows * columns for rows, columns in grid_sizes(size, strides))


def grid_cells(size: tuple[int, int], strides: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return column and row of each cell [2, cells], and its stride [cells], as float32.

    Levels follow one another in the order of the strides, rows from the top within.
    """
    levels = grid_sizes(size, strides)
    # Rows vary slowest.
    positions = [np.mgrid[:rows, :columns].reshape(2, -1)[::-1] for rows, columns in levels]
    factors = [np.full(rows * columns, stride) for (rows, columns), stride in zip(levels, strides, strict=True)]
    return np.concatenate(positions, 1).astype(np.float32), np.concatenate(factors).astype(np.float32)


def match_strides(interface: ModelInterface, count: int, per_cell: int = 1) -> tuple[int, ...] | None:
    """Return the usual strides with a number of cells, or None.

    Parameters
    ----------
    interface : ModelInterface
    count : int
        Predicted boxes.
    per_cell : int
        Boxes of each cell.
    """
    if min(interface.size) < 1:
        return None
    return next((strides for strides in STRIDES if per_cell * count_cells(interface.size, strides) == count), None)


def corners(centre_x: np.ndarray, centre_y: np.ndarray, width: np.ndarray, height: np.ndarray) -> np.ndarray:
    """Return boxes [N, 4] of left, top, right, bottom by centre and size."""
    return np.stack([centre_x - width / 2, centre_y - height / 2, centre_x + width / 2, centre_y + height / 2], axis=1)


def decoded_in_pixels(centres: np.ndarray, extent: int) -> bool:
    """Test whether a network's boxes are in pixels already, by the centres of all its cells.

    Boxes of cells near the right edge lie there: in pixels their centres are near the input's width.  Offsets from
    cells, and fractions of the input, are small numbers.
    """
    return len(centres) > 0 and bool(np.nanmax(centres) > extent / 2)
