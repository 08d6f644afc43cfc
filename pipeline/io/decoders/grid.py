"""Grid: the cells of detectors that predict boxes at fixed positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.io.decoders.base import ModelInterface
from pipeline.io.decoders.suppression import BoxParameters, best_classes

STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32), (16, 32))
"""Strides of the usual detectors: of three levels, with a coarser, with a finer one, and tiny ones of two."""

ULTRALYTICS = Preparation(resize="letterbox", scale=1, fill=114, sampling="opencv")
"""Preparation by the exporters of YOLOv5 and its successors."""


class GridParameters(BoxParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of grid detectors."""

    strides: tuple[Annotated[int, msgspec.Meta(ge=1)], ...] = (8, 16, 32)
    """Pixels between the cells of each level."""
    pixels: bool | None = None
    """True if boxes are in pixels already; by default the centres of all boxes tell."""


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
    """Return the usual strides with `count` predicted boxes, `per_cell` in each cell, or None."""
    if min(interface.size) < 1:
        return None
    return next((strides for strides in STRIDES if per_cell * count_cells(interface.size, strides) == count), None)


def describe_cells(interface: ModelInterface, strides: Sequence[int]) -> str:
    """Describe a grid, for messages."""
    return f"each cell of strides {', '.join(map(str, strides))} of {interface.size[0]}x{interface.size[1]}"


def corners(centre_x: np.ndarray, centre_y: np.ndarray, width: np.ndarray, height: np.ndarray) -> np.ndarray:
    """Return boxes [N, 4] of left, top, right, bottom by centre and size."""
    across, along = width / 2, height / 2
    return np.stack([centre_x - across, centre_y - along, centre_x + across, centre_y + along], axis=1)


def in_pixels(parameters: GridParameters, positions: np.ndarray, limit: float) -> bool:
    """Test whether a network's boxes are in pixels, by the positions of all of them.

    Boxes of cells near the right edge lie there, whatever their scores.  Fractions of the input and offsets from cells
    stay below the limit.
    """
    if parameters.pixels is not None:
        return parameters.pixels
    return positions.size > 0 and bool(np.fmax.reduce(positions, axis=None) > limit)


def best_rows(rows: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find rows of x, y, width, height, objectness and classes with a score above a threshold."""
    # A class's score is at most 1, so that objectness is an upper bound.
    numbers = np.flatnonzero(rows[:, 4] > threshold)
    seen = rows[numbers]
    cells, classes, scores = best_classes(seen[:, 5:].T * seen[:, 4], threshold)
    return numbers[cells], classes, scores


def mean_distances(distributions: np.ndarray) -> np.ndarray:
    """Return the means of distributions over 0, 1, 2, ..., whose logits are the last axis.

    This is the DFL of "Generalized Focal Loss", arXiv 2006.04388.
    """
    # Less the largest, so that no exponential overflows.
    weights = np.exp(distributions - distributions.max(-1, keepdims=True))
    means: np.ndarray = weights @ np.arange(weights.shape[-1], dtype=weights.dtype) / weights.sum(-1)
    return means
