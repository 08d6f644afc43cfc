"""Small grey: brightness of a picture at a few pixels, for decisions that have to be cheap."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pipeline.picture.pixels import Pixels

LARGEST = 160
"""Pixels of its longer side, at most."""


def small_grey(pixels: Pixels, array: np.ndarray) -> np.ndarray:
    """Return the brightness of a picture as float32 [rows, columns]; green stands for it in colours.

    Each pixel is the mean of four, evenly spread over its place.
    """
    if array.ndim == 3:
        array = array[..., 0 if pixels.format == "yuyv422" else 1]
    # Two points for each pixel of the result; below the brightness, planes of colour may follow.
    step = max(1, math.ceil(max(pixels.width, pixels.height) / (2 * LARGEST)))
    points = array[: pixels.height : step, ::step].astype(np.float32)
    pairs = np.pad(points, [(0, extent % 2) for extent in points.shape], "edge")
    rows = pairs[::2] + pairs[1::2]
    means: np.ndarray = (rows[:, ::2] + rows[:, 1::2]) / 4
    return means
