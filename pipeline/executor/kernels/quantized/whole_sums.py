"""Whole sums: byte products without byte kernel, in exact float32.

Kernels of float32 add in an order of their own. Sums of whole numbers up to 2 to the 24th are the same in any order,
so that the result is requantised as a sum of integers is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst

from pipeline.executor.kernels.layout.expressions import constant, extents, is_image, is_static, name_of
from pipeline.executor.kernels.layout.rewriter import LineLayout, ModelLayout, Rewriter
from pipeline.executor.kernels.quantized import integer_sums, rescaling
from pipeline.executor.kernels.quantized.integer_sums import IntegerSums
from pipeline.executor.kernels.quantized.rescaling import scale_of
from pipeline.model.passes.bindings import replace

PRODUCTS = frozenset({"matmul", *(f"nn.conv{rank}d{suffix}" for rank in (1, 2, 3) for suffix in ("", "_transpose"))})
"""Operators that sum products."""

_EXACT = 1 << 24
"""Up to here float32 has all whole numbers."""

_LARGEST = 1 << 30
"""Half of int32, so that a bias can be added."""


@dataclass(frozen=True)
class _Axes:
    """Product axes: contracted terms, weight channels, and result channels from the end."""

    data: int
    weights: int
    outputs: int
    channels: int


def sum_products(
    rewriter: Rewriter, call: Any, operands: list[Any], multiply: Callable[[Any], Any]
) -> IntegerSums | None:
    """Sum a product of operands, which calls dequantise, or None if float32 is inexact.

    `multiply` makes a rewrite's result from a product of float32.
    """
    scale, axes = scale_of(operands[0]), _axes(call)
    if scale is None or axes is None or not is_static(call, *call.args):
        return None
    scales, bounds = _scales(call, operands[1], axes), _bounds(call, operands, axes)
    if scales is None or bounds is None:
        return None
    # The terms of one group do not lie side by side in the data.
    if not (parts := _parts(bounds)) or (len(parts) > 1 and int(getattr(call.attrs, "groups", 1)) > 1):
        return None
    numbers = [_whole_numbers(rewriter, operand) for operand in operands]
    products = [numbers]
    if len(parts) > 1:
        products = [
            [_slice(rewriter, numbers[0], axes.data, part), _slice(rewriter, numbers[1], axes.weights, part)]
            for part in parts
        ]
    values = [_multiply(rewriter, Call(call.op, product, call.attrs), multiply) for product in products]
    return _join(rewriter, call, values, scale.value * scales.astype(np.float64), axes.channels)


def _axes(call: Any) -> _Axes | None:
    ranks = [operand.ty.ndim for operand in call.args]
    if name_of(call) == "matmul":
        return _Axes(ranks[0] - 1, ranks[1] - 2, ranks[1] - 1, -1) if min(ranks) > 1 else None
    layout, kernel = str(call.attrs.data_layout), str(call.attrs.kernel_layout)
    # Layouts with blocks of channels have longer names.
    if str(call.attrs.out_layout or layout) != layout or ranks != [len(layout), len(kernel)]:
        return None
    return _Axes(layout.index("C"), kernel.index("I"), kernel.index("O"), layout.index("C") - len(layout))


def _scales(call: Any, dequantize: Any, axes: _Axes) -> np.ndarray | None:
    """Return weight scales per result channel, None if inside the sums."""
    if (scale := scale_of(dequantize)) is not None:
        return np.array([scale.value])
    if not all(isinstance(operand, GenericConst) for operand in dequantize.args):
        return None
    values, zeros = (operand.value.numpy().reshape(-1) for operand in dequantize.args[1:])
    axis = int(dequantize.attrs.axis) % dequantize.ty.ndim
    if str(dequantize.args[0].ty.dtype) not in ("int8", "uint8") or str(values.dtype) != "float32":
        return None
    if max(values.size, zeros.size) > 1 and axis != axes.outputs:
        return None
    # The weights of a transposed convolution name the channels of one group.
    channels = int(call.ty.shape[axes.channels])
    return values if values.size == 1 else np.resize(values, channels)


def _bounds(call: Any, operands: list[Any], axes: _Axes) -> np.ndarray | None:
    """Return magnitude limits per output and term."""
    shape = extents(operands[1].ty)
    if 0 in shape or 0 in extents(operands[0].ty):
        return None
    magnitudes = np.broadcast_to(_magnitudes(operands[1]), shape).astype(np.int64)
    if name_of(call) != "matmul":
        window = tuple(axis for axis in range(len(shape)) if axis not in (axes.weights, axes.outputs))
        magnitudes = magnitudes.sum(window, keepdims=True)
    is_transposed = name_of(call).endswith("_transpose")
    terms = shape[axes.weights] // (int(call.attrs.groups) if is_transposed else 1)
    bounds: np.ndarray = np.moveaxis(magnitudes, axes.weights, -1).reshape(-1, terms)
    return bounds * int(_magnitudes(operands[0]).max())


def _magnitudes(dequantize: Any) -> np.ndarray:
    """Return the known or possible magnitudes of zero-centred bytes."""
    if isinstance(dequantize.args[0], GenericConst):
        magnitudes: np.ndarray = np.abs(integer_sums.integers_of(dequantize))
        return magnitudes
    limits, zero = np.iinfo(str(dequantize.args[0].ty.dtype)), int(dequantize.args[2].value.numpy().item())
    return np.array(max(zero - int(limits.min), int(limits.max) - zero))


def _parts(bounds: np.ndarray) -> list[tuple[int, int]]:
    """Divide terms into the fewest even intervals with exact sums."""
    total, terms = int(bounds.sum(1).max()), bounds.shape[1]
    if total > _LARGEST:
        return []
    for count in range(1 + total // _EXACT, terms + 1):
        borders = [terms * number // count for number in range(count + 1)]
        if np.add.reduceat(bounds, borders[:-1], 1).max() <= _EXACT:
            return list(pairwise(borders))
    return []


def _whole_numbers(rewriter: Rewriter, dequantize: Any) -> Any:
    """Return bytes without zero points as float32 numbers."""
    data = dequantize.args[0]
    if isinstance(data, GenericConst):
        return constant(integer_sums.integers_of(dequantize).astype(np.float32))
    zero = int(dequantize.args[2].value.numpy().item())
    return rewriter.elementwise(data, "float32", lambda value: rescaling.center(rewriter.builder, value, zero))


def _slice(rewriter: Rewriter, numbers: Any, axis: int, part: tuple[int, int]) -> Any:
    if isinstance(numbers, GenericConst):
        return constant(np.take(numbers.value.numpy(), range(*part), axis))
    start, end = part
    return rewriter.adopt(relax.op.strided_slice(rewriter.plain(numbers), [axis], [start], [end]))


def _multiply(rewriter: Rewriter, call: Any, multiply: Callable[[Any], Any]) -> Any:
    product = rewriter.builder.normalize(call)
    value = multiply(product)
    return ModelLayout(replace(product, rewriter.plain)) if value is None else value


def _join(rewriter: Rewriter, call: Any, values: list[Any], unit: np.ndarray, channels: int) -> IntegerSums:
    """Add parts of equal layout in one kernel."""
    layout = next((kind for kind in (ModelLayout, LineLayout) if isinstance(values[0], kind)), None)
    parts = [rewriter.builder.emit(value if layout is None else value.value) for value in values]
    if len(parts) > 1:
        integers = [rewriter.builder.emit(relax.op.astype(part, "int32")) for part in parts]
        parts = [reduce(lambda total, part: rewriter.builder.emit(relax.op.add(total, part)), integers)]
    is_last = layout is LineLayout or (layout is None and is_image(call.ty))
    return IntegerSums(
        parts[0], np.zeros(1, np.int64), unit, layout or (lambda value: value), channels, -1 if is_last else channels
    )
