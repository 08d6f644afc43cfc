"""Resizing by weighted elements, axis by axis, in ONNX's ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from pipeline.model.passes.bindings import constant

Emit = Callable[[Any], Any]

BY_CORNERS = ("align_corners", "tf_crop_and_resize")
"""Coordinates for which TVM divides by the size less one, also where that is zero."""


@dataclass(frozen=True)
class ResizedAxis:
    """Axis to resize.

    `region` is the part that ``tf_crop_and_resize`` reads, as shares of the extent, which is 0 if it is symbolic.
    """

    number: int
    extent: int
    size: int
    scale: np.float32
    region: tuple[float, float] = (0.0, 1.0)

    @property
    def changes(self) -> bool:
        """True if resizing changes the axis."""
        return self.extent != self.size or self.scale != 1 or self.region != (0.0, 1.0)


@dataclass(frozen=True)
class Resizing:
    """Attributes of a resizing, with ONNX's words for `coordinates`, `mode` and `rounding`."""

    coordinates: str
    mode: str
    rounding: str = "round_prefer_floor"
    alpha: float = -0.75
    excludes_outside: bool = False
    fill: float = 0.0


def resize(emit: Emit, data: Any, axes: Sequence[ResizedAxis], how: Resizing) -> Any:
    """Resize some axes of an image."""
    dtype = str(data.ty.dtype)
    # Weights are real numbers even if pixels are bytes; ONNX Runtime cuts off the fraction of the result as well.
    if how.mode != "nearest" and dtype != "float32":
        data = emit(relax.op.astype(data, "float32"))
    # Interpolation is a product of one function per axis, so that one axis after the other gives the same sums.
    for axis in axes:
        if axis.changes:
            coordinates = _coordinates(how.coordinates, axis)
            data = _interpolate(emit, data, axis.number, _taps(coordinates, axis.extent, how))
            if how.coordinates == "tf_crop_and_resize":
                # An axis after this one reads filled rows, whose weights add up to one, so that the fill stays what it
                # is.
                is_outside = (coordinates < 0) | (coordinates > axis.extent - 1)
                data = _fill(emit, data, axis.number, is_outside, how.fill)
    return data if str(data.ty.dtype) == dtype else relax.op.astype(data, dtype)


def _coordinates(mode: str, axis: ResizedAxis) -> Any:
    """Return the input positions of output elements, by ONNX's table.

    Positions are computed in 32 bits, as in ONNX Runtime: which neighbour is the nearest depends on the last bit.
    """
    position, half = np.arange(axis.size, dtype=np.float32), np.float32(0.5)
    last, scale = np.float32(axis.extent - 1), axis.scale
    if mode == "asymmetric":
        return position / scale
    if mode == "tf_half_pixel_for_nn":
        return (position + half) / scale
    if mode in BY_CORNERS:
        start, end = map(np.float32, axis.region)
        if axis.size > 1:
            return start * last + position * (end - start) * last / np.float32(axis.size - 1)
        return np.zeros_like(position) if mode == "align_corners" else half * (start + end) * last + position
    # PyTorch reads the first pixel, not the one in the middle, if it makes just one.
    if mode == "pytorch_half_pixel" and axis.size == 1:
        return np.zeros_like(position)
    if mode not in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        raise ValueError(f"coordinate_transformation_mode={mode!r} is not supported")
    coordinates = (position + half) / scale - half
    if mode == "half_pixel_symmetric":
        # Where the size was rounded, half of what was cut off goes to each side.
        coordinates += np.float32(axis.extent / 2) * (1 - np.float32(axis.size) / (scale * np.float32(axis.extent)))
    return coordinates


def _taps(coordinates: np.ndarray, extent: int, how: Resizing) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the neighbours' indices and weights, inside the input."""
    mode = how.mode
    if mode == "nearest":
        index = {
            "round_prefer_floor": np.ceil(coordinates - np.float32(0.5)),
            "round_prefer_ceil": np.floor(coordinates + np.float32(0.5)),
            "floor": np.floor(coordinates),
            "ceil": np.ceil(coordinates),
        }[how.rounding]
        yield np.clip(index, 0, extent - 1), np.ones_like(coordinates)
        return
    if mode == "linear":
        # Beyond the border the border itself counts, while a cubic curve goes on through its clamped neighbours.
        coordinates = np.clip(coordinates, 0, extent - 1)
    indices = [np.floor(coordinates) + offset for offset in ((0, 1) if mode == "linear" else (-1, 0, 1, 2))]
    distances = np.abs(coordinates - np.stack(indices))
    weights = 1 - distances if mode == "linear" else _cubic_weight(distances, how.alpha)
    if mode == "cubic" and how.excludes_outside:
        weights *= np.stack([(index >= 0) & (index < extent) for index in indices])
        weights /= weights.sum(axis=0)
    yield from zip((np.clip(index, 0, extent - 1) for index in indices), weights, strict=True)


def _cubic_weight(distance: np.ndarray, alpha: float) -> np.ndarray:
    """Return Keys' cubic kernel. "Cubic Convolution Interpolation for Digital Image Processing" (1981), equation 4."""
    first_piece = ((alpha + 2) * distance - (alpha + 3)) * distance**2 + 1
    second_piece = alpha * (((distance - 5) * distance + 8) * distance - 4)
    return np.asarray(np.where(distance <= 1, first_piece, second_piece))


def _align(values: np.ndarray, axis: int, rank: int) -> Any:
    return constant(values.reshape(-1, *[1] * (rank - axis - 1)))


def _interpolate(emit: Emit, data: Any, axis: int, taps: Iterator[tuple[np.ndarray, np.ndarray]]) -> Any:
    total = None
    for indices, weights in taps:
        # Aligned corners, and whole factors, leave neighbours out: no operator for what is multiplied by zero.
        if not weights.any():
            continue
        term = emit(relax.op.take(data, constant(indices.astype(np.int64)), axis))
        if (weights != 1).any():
            term = emit(relax.op.multiply(term, _align(weights.astype(np.float32), axis, data.ty.ndim)))
        total = term if total is None else emit(relax.op.add(total, term))
    return total


def _fill(emit: Emit, data: Any, axis: int, is_filled: np.ndarray, value: float) -> Any:
    if not is_filled.any():
        return data
    fill = relax.const(value, str(data.ty.dtype))
    return emit(relax.op.where(_align(is_filled, axis, data.ty.ndim), fill, data))
