"""Kernel arguments: the tables of one size of pictures for one input."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.core.picture_layout import PictureLayout
from pipeline.executor import picture_tables as tables
from pipeline.executor.picture_tables import TILE, PixelPlane
from pipeline.picture.geometry import Geometry
from pipeline.picture.pixels import Pixels
from pipeline.picture.resampling import Taps, taps

_OPENCV_BIAS = -0.125
"""Mean of what OpenCV cuts off: of two rows it keeps two bits below the point, half a bit of each is lost, and rounding
gives half a bit back."""

_GREY = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in the brightness (ITU-R BT.601)."""

_BRIGHTNESS = {1: (0.2126, 0.0722), 9: (0.2627, 0.0593)}
"""Shares of red and blue in colour spaces by FFmpeg's numbers, BT.709 and BT.2020; BT.601 is common without any."""

_FULL_RANGE = 2
"""FFmpeg's number for values from 0 to 255, instead of 16 to 235 or 240."""


class Channels(NamedTuple):
    """Values of the input's channels, of bytes: ``byte * scale + shift``; and of margins."""

    scale: np.ndarray
    shift: np.ndarray
    fill: np.ndarray


class KernelArguments(NamedTuple):
    """Tables of a kernel, and the columns that it keeps."""

    numbers: np.ndarray
    weights: np.ndarray
    columns: int


class _Part(NamedTuple):
    """Visible part of a picture along one axis."""

    extent: int
    resized: int
    begin: int
    pixels: tuple[int, int]

    @property
    def room(self) -> int:
        return self.pixels[1] - self.pixels[0]


def arguments(  # noqa: PLR0913, PLR0917 - all that tables follow from
    pixels: Pixels, stride: int, layout: PictureLayout, geometry: Geometry, rules: Preparation, channels: Channels
) -> KernelArguments:
    """Return the tables for pictures with `stride` bytes from row to row."""
    across = _part(pixels.width, geometry.width, geometry.left, layout.width)
    down = _part(pixels.height, geometry.height, geometry.top, layout.height)
    # The kernel's channels are in the order of the picture's.
    order = np.arange(layout.channels)
    order = order[::-1] if pixels.format.startswith("bgr") != (rules.channels == "bgr") else order
    numbers, weights = _numbers(layout, across, down, order), np.zeros(tables.FIRST_WEIGHT, np.float32)
    weights[tables.MATRIX : tables.SCALE] = _matrix(pixels, layout.channels)
    # What keeps its size is not cut off.
    is_resized = (pixels.width, pixels.height) != (geometry.width, geometry.height)
    weights[tables.BIAS] = _OPENCV_BIAS if rules.sampling == "opencv" and is_resized else 0
    for position, values in zip((tables.SCALE, tables.SHIFT, tables.FILL), channels, strict=True):
        weights[position : position + layout.channels] = values[order]
    # Tables lie behind these headers, which have their positions.
    number_tables, weight_tables, columns = [numbers], [weights], 0
    for number, plane in enumerate(tables.planes_of(pixels.kernel, layout.channels)):
        row_taps = taps(down.extent, down.resized, rules.sampling, down.pixels, plane.shared[1])
        column_taps, starts, windows = _columns(plane, across, rules.sampling)
        rows = row_taps.starts[:, None] + np.arange(row_taps.number)
        position = sum(map(len, number_tables))
        row_weights = sum(map(len, weight_tables))
        numbers[tables.FIRST_PLANE + number * tables.PLANE_NUMBERS :][: tables.WINDOWS + 1] = (
            row_taps.number, position, row_weights,
            column_taps.number, position + rows.size, row_weights + row_taps.weights.size,
            position + rows.size + starts.size,
        )  # fmt: skip
        windows = windows + np.array([0, 0, columns])
        number_tables += [pixels.row_offsets(number, rows, stride).ravel(), starts + columns, windows.ravel()]
        weight_tables += [row_taps.weights.ravel(), column_taps.weights.ravel()]
        columns += int(windows[:, 1].max())
    return KernelArguments(np.concatenate(number_tables), np.concatenate(weight_tables), columns)


def _part(extent: int, resized: int, begin: int, room: int) -> _Part:
    first = max(-begin, 0)
    return _Part(extent, resized, max(begin, 0), (first, first + min(resized - first, room - max(begin, 0))))


def _numbers(layout: PictureLayout, across: _Part, down: _Part, order: np.ndarray) -> np.ndarray:
    step = layout.channels if layout.last else 1
    line = layout.width * step
    numbers = np.zeros(tables.FIRST_NUMBER, np.int64)
    numbers[: tables.POSITIONS] = (
        down.room, across.room, down.begin * line + across.begin * step, line,
        layout.height, layout.width, down.begin, across.begin,
    )  # fmt: skip
    distance = 1 if layout.last else layout.width * layout.height
    numbers[tables.POSITIONS : tables.POSITIONS + layout.channels] = order * distance
    return numbers


@functools.lru_cache(maxsize=128)
def _columns(plane: PixelPlane, part: _Part, sampling: str) -> tuple[Taps, np.ndarray, np.ndarray]:
    """Return taps; where each new column's pixels are kept; and first byte, bytes, and first column of each tile."""
    columns = taps(part.extent, part.resized, sampling, part.pixels, plane.shared[0])
    starts = np.pad(columns.starts, (0, -len(columns.starts) % TILE), mode="edge").reshape(-1, TILE)
    begin, end = starts.min(axis=1), starts.max(axis=1) + columns.number
    count = np.maximum(end - begin, tables.NARROWEST)
    begin = np.clip(begin, 0, np.maximum(-(-part.extent // plane.shared[0]) - count, 0))
    places = (starts - begin[:, None]) * plane.step
    return columns, places.ravel(), np.stack([begin * plane.step, count * plane.step, np.zeros_like(begin)], axis=1)


def _matrix(pixels: Pixels, channels: int) -> np.ndarray:
    """Return nine factors of the picture's colours for the input's, and three numbers to add."""
    matrix, offset = np.zeros((3, 3)), np.zeros(3)
    if len(tables.PLANES[pixels.kernel]) == 1:
        matrix[0] = _GREY[::-1] if pixels.format.startswith("bgr") else _GREY
        return np.concatenate([matrix.ravel(), offset])
    full = pixels.format == "yuvj420p" or pixels.color_range == _FULL_RANGE
    red, blue = _BRIGHTNESS.get(pixels.colorspace, (_GREY[0], _GREY[2]))
    bright, colour = (1.0, 1.0) if full else (255 / 219, 255 / 224)
    matrix[:, 0] = bright
    if channels == 3:
        to_red, to_blue = 2 * (1 - red) * colour, 2 * (1 - blue) * colour
        green = 1 - red - blue
        matrix[:, 1] = 0, -to_blue * blue / green, to_blue
        matrix[:, 2] = to_red, -to_red * red / green, 0
    offset -= matrix @ np.array([0 if full else 16, 128, 128])
    return np.concatenate([matrix.ravel(), offset])
