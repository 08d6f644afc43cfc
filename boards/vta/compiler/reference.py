"""Reference: the layers in NumPy's int64, baseline of every comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.compiler.grouped import expand_groups
from boards.vta.compiler.layers import Addition, Concatenation, Convolution, MaxPool
from boards.vta.compiler.network import Layer


def compute_convolution(layer: Convolution, values: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Compute a convolution of ``int8[channels, height, width]``, sums modulo 2^32."""
    top, left, bottom, right = layer.padding
    image = np.pad(values.astype(np.int64), ((0, 0), (top, bottom), (left, right)))
    row_stride, column_stride = layer.strides
    _, height, width = layer.outputs
    weights = expand_groups(layer.weights, layer.groups)
    sums = np.zeros(layer.outputs, np.int64) + layer.bias[:, None, None]
    for y in range(layer.kernel[0]):
        for x in range(layer.kernel[1]):
            rows = slice(y, y + row_stride * height, row_stride)
            columns = slice(x, x + column_stride * width, column_stride)
            window = image[:, rows, columns][:, :height, :width]
            sums += np.tensordot(weights[:, :, y, x].astype(np.int64), window, 1)
    shift = layer.shift.astype(np.int64)[:, None, None]
    results: npt.NDArray[np.int64] = np.clip(_shift_right(sums, shift, even=layer.even), layer.low, layer.high)
    return results.astype(np.int8)


def _shift_right(sums: npt.NDArray[np.int64], shift: Any, *, even: bool) -> npt.NDArray[np.int64]:
    """Divide 32-bit sums by 2^shift, rounded."""
    # As `Requantization`, half a result is added first: what lay halfway is a multiple of a result then.
    sums_and_half = _wrap_int32(sums + ((np.int64(1) << shift) >> 1))
    quotients: npt.NDArray[np.int64] = sums_and_half >> shift
    if not even:
        return quotients
    halfway = (shift > 0) & (sums_and_half & ((np.int64(1) << shift) - 1) == 0)
    return _wrap_int32(sums_and_half - (halfway & (quotients % 2 == 1))) >> shift  # type: ignore[no-any-return]


def _wrap_int32(sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return (sums + 2**31) % 2**32 - 2**31


def compute_addition(
    layer: Addition, augend: npt.NDArray[np.int8], addend: npt.NDArray[np.int8]
) -> npt.NDArray[np.int8]:
    """Add two tensors, each shifted left."""
    sums = (augend.astype(np.int64) << layer.left_shift) + (addend.astype(np.int64) << layer.right_shift)
    quotients = _shift_right(sums, layer.shift, even=layer.even)
    return np.clip(quotients, layer.low, layer.high).astype(np.int8)


def compute_max_pool(layer: MaxPool, values: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Pool a tensor, padded with the least int8."""
    top, left, bottom, right = layer.padding
    image = np.pad(values, ((0, 0), (top, bottom), (left, right)), constant_values=-128)
    windows = np.lib.stride_tricks.sliding_window_view(image, layer.kernel, (1, 2))
    largest: npt.NDArray[np.int8] = windows[:, :: layer.strides[0], :: layer.strides[1]].max((3, 4))
    return largest


def compute_layer(layer: Layer, *values: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Compute a layer of any kind."""
    if isinstance(layer, Concatenation):
        return np.concatenate(values)
    if isinstance(layer, Addition):
        return compute_addition(layer, *values)
    return compute_max_pool(layer, *values) if isinstance(layer, MaxPool) else compute_convolution(layer, *values)
