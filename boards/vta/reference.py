"""What layers compute, in NumPy's integers of 64 bits: the other side of every comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.compiler.layers import Addition, Convolution, MaxPool
from boards.vta.compiler.network import Layer


def computed(layer: Convolution, values: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Return what a layer makes of ``int8[channels, height, width]``; sums are modulo 2^32."""
    top, left, bottom, right = layer.padding
    padded = np.pad(values.astype(np.int64), ((0, 0), (top, bottom), (left, right)))
    down, across = layer.strides
    _, height, width = layer.outputs
    sums = np.zeros(layer.outputs, np.int64) + layer.bias[:, None, None]
    for y in range(layer.kernel[0]):
        for x in range(layer.kernel[1]):
            part = padded[:, y : y + down * height : down, x : x + across * width : across][:, :height, :width]
            sums += np.tensordot(layer.weights[:, :, y, x].astype(np.int64), part, 1)
    shift = layer.shift.astype(np.int64)[:, None, None]
    clipped: npt.NDArray[np.int64] = np.clip(_shifted(sums, shift, even=layer.even), layer.low, layer.high)
    return clipped.astype(np.int8)


def _shifted(sums: npt.NDArray[np.int64], shift: Any, *, even: bool) -> npt.NDArray[np.int64]:
    """Return sums divided by 2^shift and rounded, as 32 bits hold them."""
    raised = _wrapped(sums + ((np.int64(1) << shift) >> 1))
    rounded: npt.NDArray[np.int64] = raised >> shift
    if not even:
        return rounded
    halfway = (shift > 0) & (raised & ((np.int64(1) << shift) - 1) == 0)
    return _wrapped(raised - (halfway & (rounded % 2 == 1))) >> shift  # type: ignore[no-any-return]


def _wrapped(sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return (sums + 2**31) % 2**32 - 2**31


def added(layer: Addition, left: npt.NDArray[np.int8], right: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Return what an addition makes of two tensors."""
    sums = (left.astype(np.int64) << layer.left_shift) + (right.astype(np.int64) << layer.right_shift)
    rounded = _shifted(sums, layer.shift, even=layer.even)
    return np.clip(rounded, layer.low, layer.high).astype(np.int8)


def pooled(layer: MaxPool, values: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Return what a max pool makes of a tensor."""
    top, left, bottom, right = layer.padding
    padded = np.pad(values, ((0, 0), (top, bottom), (left, right)), constant_values=-128)
    windows = np.lib.stride_tricks.sliding_window_view(padded, layer.kernel, (1, 2))
    largest: npt.NDArray[np.int8] = windows[:, :: layer.strides[0], :: layer.strides[1]].max((3, 4))
    return largest


def any_of(layer: Layer, *values: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Return what a layer makes of its inputs."""
    if isinstance(layer, Addition):
        return added(layer, *values)
    return pooled(layer, *values) if isinstance(layer, MaxPool) else computed(layer, *values)
