"""Resampling: pixels of another size as sums of a picture's, and maps at positions between their elements."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

_WEIGHT_ONE = 2048
"""Weight of a whole pixel: OpenCV has 11 bits for fractions."""


class Taps(NamedTuple):
    """Windows along an axis."""

    starts: np.ndarray
    """First source pixel of each new one."""
    weights: np.ndarray
    """Weights [new pixels, taps] of those from there on."""

    @property
    def number(self) -> int:
        """Taps of each new pixel."""
        return int(self.weights.shape[1])


# Crops differ in size, but share extents: the longer side of all is the input's, and most are cut from one picture.
@functools.lru_cache(maxsize=256)
def taps(extent: int, resized: int, sampling: str, part: tuple[int, int], shared: int = 1) -> Taps:
    """Return the windows of new pixels, arrays that are not to be changed.

    `part` is the first and the end of the new pixels of interest; `sampling` is that of `Preparation`, of which an
    average is Pillow's bilinear one. As of colours, `shared` pixels of the picture stand for one of a plane.
    """
    positions = np.arange(*part)
    pixels, weights = (_neighbours if sampling == "opencv" else _filter)(positions, extent, resized, sampling)
    weights /= weights.sum(axis=1, keepdims=True)
    plane_extent = -(-extent // shared)
    plane_pixels = pixels.clip(0, extent - 1) // shared
    used = weights != 0
    first = np.where(used, plane_pixels, extent).min(axis=1)
    count = int((np.where(used, plane_pixels, -1).max(axis=1) - first).max()) + 1
    starts = np.minimum(first, plane_extent - count)
    table = np.zeros((len(positions), count))
    rows = np.broadcast_to(np.arange(len(positions))[:, None], pixels.shape)
    np.add.at(table, (rows[used], (plane_pixels - starts[:, None])[used]), weights[used])
    return Taps(starts, table.astype(np.float32))


def _neighbours(positions: np.ndarray, extent: int, resized: int, _: str) -> tuple[np.ndarray, np.ndarray]:
    # In OpenCV's types: positions of 64 bits rounded to 32, from which fractions are taken.
    places = ((positions + 0.5) * (1 / (resized / extent)) - 0.5).astype(np.float32)
    before = np.floor(places)
    fractions = ((places - before) * np.float32(_WEIGHT_ONE)).round().astype(np.float64)
    pixels = before.astype(np.int64)
    return np.stack([pixels, pixels + 1], axis=1), np.stack([_WEIGHT_ONE - fractions, fractions], axis=1)


def _filter(positions: np.ndarray, extent: int, resized: int, sampling: str) -> tuple[np.ndarray, np.ndarray]:
    # Pillow's windows: as wide as the filter where a picture grows, and as many pixels as a new one covers else.
    scale = extent / resized
    stretch = max(scale, 1.0)
    reach = (2 if sampling == "bicubic" else 1) * stretch
    centres = ((positions + 0.5) * scale)[:, None]
    first = np.maximum((centres - reach + 0.5).astype(np.int64), 0)
    last = np.minimum((centres + reach + 0.5).astype(np.int64), extent)
    pixels = first + np.arange(math.ceil(2 * reach) + 1)
    distances = np.abs((pixels - centres + 0.5) / stretch)
    weights = _cubic(distances) if sampling == "bicubic" else np.maximum(1 - distances, 0)
    return pixels, np.where(pixels < last, weights, 0)


def _cubic(distance: np.ndarray) -> np.ndarray:
    """Cubic convolution with a slope of -0.5 (Keys, 1981), as Pillow has it."""
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return np.where(distance < 1, near, np.where(distance < 2, far, 0))


def interpolate(array: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Interpolate linearly at rows and columns.

    The array is [..., height, width], the result [..., len(rows), len(columns)]; positions outside have the values of
    the edge.
    """
    return _interpolate_last(_interpolate_last(array.swapaxes(-1, -2), rows).swapaxes(-1, -2), columns)


def _interpolate_last(array: np.ndarray, positions: np.ndarray) -> np.ndarray:
    inside = np.clip(positions, 0, array.shape[-1] - 1)
    before = np.floor(inside).astype(np.intp)
    after = np.minimum(before + 1, array.shape[-1] - 1)
    weight = (inside - before).astype(array.dtype)
    values: np.ndarray = array[..., before] * (1 - weight) + array[..., after] * weight
    return values
