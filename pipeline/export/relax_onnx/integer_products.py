"""Integer convolutions as exact convolutions of real numbers.

Up to 2**24 numbers of 32 bits hold all whole ones, so that no sum that stays below is rounded, in whatever order it is
computed.  Where sums may become larger, the weights are taken apart into digits, whose sums do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.integer_arithmetic import floor_divide
from pipeline.export.relax_onnx.tensors import Node, Tensor, Unwritable, constant

EXACT = 2.0**24
"""Below this, float32 numbers are one apart or less."""

_DIGIT_BITS = 8

Convolve = Callable[[Tensor, Tensor], Tensor]
"""Writes the convolution of float32 data and weights."""


class Form(NamedTuple):
    """Form of a convolution's sums."""

    dtype: str
    axis: int
    """Axis of the weights along which each index has sums of its own."""


def convolve(graph: GraphWriter, data: Tensor, weights: Tensor, form: Form, convolution: Convolve) -> Tensor:
    """Write a convolution of whole numbers."""
    if weights.values is None:
        raise Unwritable("its weights are whole numbers that are computed")
    parts = []
    for data_digit, data_power in _data_digits(graph, data):
        largest = bound(data_digit, graph.makers)
        for weight_digit, weight_power in _weight_digits(weights.values.astype(np.int64), form.axis, largest):
            sums = convolution(graph.cast(data_digit, "float32"), constant(weight_digit, np.float32))
            parts.append((graph.cast(sums, form.dtype), data_power + weight_power))
    total = _scale(graph, *parts[0])
    for part, power in parts[1:]:
        total = graph.elementwise("Add", total, _scale(graph, part, power))
    return total


def _scale(graph: GraphWriter, part: Tensor, power: int) -> Tensor:
    return graph.elementwise("Mul", part, graph.scalar(2**power, part)) if power else part


def _data_digits(graph: GraphWriter, data: Tensor) -> list[tuple[Tensor, int]]:
    """Return the summands of a tensor with their powers of two."""
    if bound(data, graph.makers) <= 2 * 255:
        return [(data, 0)]
    if bound(data, graph.makers) > np.iinfo(np.int16).max + 1:
        raise Unwritable("its data are whole numbers of more than 16 bits")
    wide = graph.cast(data, "int32")
    base = graph.scalar(1 << _DIGIT_BITS, wide)
    high = floor_divide(graph, wide, base)
    low = graph.elementwise("Mod", wide, base)
    # Both are small, which their dtypes say to whoever asks.
    return [(graph.cast(low, "uint8"), 0), (graph.cast(high, "int8"), _DIGIT_BITS)]


def _weight_digits(weights: np.ndarray, axis: int, largest: float) -> list[tuple[np.ndarray, int]]:
    """Return the summands of weights, small enough for exact sums."""
    for bits in (16, _DIGIT_BITS, 4, 2):
        digits = _digits(weights, bits)
        if all(largest * _largest_sum(digit, axis) < EXACT for digit, _ in digits):
            return digits
    raise Unwritable("its sums are too large")


def _digits(weights: np.ndarray, bits: int) -> list[tuple[np.ndarray, int]]:
    digits: list[tuple[np.ndarray, int]] = []
    power = 0
    while weights.any() or not digits:
        # Signed ones, which are smaller than those from zero on.
        digit = (weights + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        digits.append((digit, power))
        weights, power = (weights - digit) >> bits, power + bits
    return digits


def _largest_sum(digit: np.ndarray, axis: int) -> float:
    """Return the largest sum of absolute weights per result."""
    axes = tuple(number for number in range(digit.ndim) if number != axis)
    return float(np.abs(digit).astype(np.float64).sum(axis=axes).max())


def _keep_first(bounds: Sequence[float]) -> float:
    return bounds[0]


_COMBINATIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "Pad": max,
    "Add": sum,
    "Sub": sum,
    **dict.fromkeys(("Transpose", "Reshape", "Slice", "Gather", "Expand", "Identity", "Cast"), _keep_first),
}
"""Bound of a result from the bounds of its operands, by operator."""


def bound(tensor: Tensor, makers: Mapping[Tensor, Node]) -> float:
    """Return an upper bound on absolute values; infinity if unknown."""
    if tensor.values is not None:
        return float(np.abs(tensor.values.astype(np.float64)).max(initial=0))
    of_dtype = _bound_of_dtype(tensor.dtype)
    if tensor not in makers:
        return of_dtype
    node = makers[tensor]
    sources = [source for source in node.inputs if source is not None]
    if node.kind == "Pad":
        sources.pop(1)
    combine = _COMBINATIONS.get(node.kind)
    return of_dtype if combine is None else min(combine([bound(source, makers) for source in sources]), of_dtype)


def _bound_of_dtype(dtype: str) -> float:
    if dtype == "bool":
        return 1.0
    if not dtype.startswith(("int", "uint")):
        return float("inf")
    limits = np.iinfo(dtype)
    return float(max(limits.max, -int(limits.min)))
