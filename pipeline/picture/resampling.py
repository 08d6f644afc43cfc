"""Resampling: pictures at another size, and maps at positions between their elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.system.optional import require

_WEIGHT_ONE = 2048
"""Weight of a whole pixel: OpenCV has 11 bits for fractions."""

_GREY, _GREY_BITS = (9798, 19235, 3735), 15
"""Shares of red, green and blue in OpenCV's brightness (ITU-R BT.601), and their bits."""


def resize_picture(picture: np.ndarray, size: tuple[int, int], channels: int, sampling: str) -> np.ndarray:
    """Resize a picture.

    Parameters
    ----------
    picture : array
        uint8 [height, width, 3], red, green and blue.
    size : (int, int)
        Width and height to resize to.
    channels : int
        3 for colours, 1 for brightness.
    sampling : str
        See `Preparation`.

    Returns
    -------
    array
        uint8 [channels, height, width].

    Raises
    ------
    MissingExtra
        If Pillow is not installed, for rules other than ``"opencv"``.
    """
    if sampling == "opencv":
        colours = picture.transpose(2, 0, 1) if channels == 3 else [_opencv_grey(picture)]
        return np.stack([resize_opencv(colour, size) for colour in colours])
    image: Any = require("PIL.Image", "images", "resizing pictures")
    # Averages of photos have always been bicubic ones; FFmpeg has no part in them.
    rule = image.Resampling.BILINEAR if sampling == "bilinear" else image.Resampling.BICUBIC
    resized = image.fromarray(picture).convert("RGB" if channels == 3 else "L").resize(size, rule)
    planes: np.ndarray = np.asarray(resized).reshape(size[1], size[0], channels).transpose(2, 0, 1)
    return planes


def resize_opencv(plane: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize uint8 [height, width] as `cv2.resize` with ``INTER_LINEAR``, to the bit."""
    if plane.shape[::-1] == size:
        return plane
    (left, right, left_weight, right_weight), (upper, lower, upper_weight, lower_weight) = (
        _taps(extent, resized) for extent, resized in zip(plane.shape[::-1], size, strict=True)
    )

    def line(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
        # Only rows that are read.  OpenCV keeps 15 bits of a line, and then 2 below the point, each cut off.
        pixels = plane[rows]
        values: np.ndarray = pixels.take(left, axis=1) * left_weight
        values += pixels.take(right, axis=1) * right_weight
        values >>= 4
        values *= weight[:, None]
        values >>= 16
        return values

    total = line(upper, upper_weight)
    total += line(lower, lower_weight)
    total += 2
    total >>= 2
    return total.astype(np.uint8)


def _taps(extent: int, resized: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return both neighbours of each new pixel, and their weights."""
    # In OpenCV's types: positions of 64 bits rounded to 32, from which fractions are taken.
    positions = ((np.arange(resized) + 0.5) * (1 / (resized / extent)) - 0.5).astype(np.float32)
    before = np.floor(positions)
    fractions = positions - before
    weights = ((share * np.float32(_WEIGHT_ONE)).round().astype(np.int32) for share in (1 - fractions, fractions))
    index = before.astype(np.intp)
    # Beyond the edge there is the edge.
    return np.clip(index, 0, extent - 1), np.clip(index + 1, 0, extent - 1), *weights


def _opencv_grey(picture: np.ndarray) -> np.ndarray:
    total = picture @ np.array(_GREY, np.int32) + (1 << (_GREY_BITS - 1))
    grey: np.ndarray = (total >> _GREY_BITS).astype(np.uint8)
    return grey


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
