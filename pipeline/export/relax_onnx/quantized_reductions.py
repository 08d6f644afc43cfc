"""Averages and softmax of bytes, recognised in the integer arithmetic that TFLite models have of them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pipeline.export.relax_onnx.fixed_point import Definitions, Stored
from pipeline.export.relax_onnx.operands import axes, dtype, integers, shape
from pipeline.model.passes.bindings import array, calls

_BYTES = ("int8", "uint8")
_DEPTH = 9
"""Expressions between the share of a softmax and the table of its exponentials."""


class Mean(NamedTuple):
    """Sum over axes of a tensor of bytes, less their zero point.

    Attributes
    ----------
    data : tvm.relax.Expr
    zero : int
    axes : tuple of int
    elements : int
        Of each sum.
    """

    data: Any
    zero: int
    axes: tuple[int, ...]
    elements: int


class Softmax(NamedTuple):
    """Softmax over the last axis of a tensor of bytes, and the scale of these."""

    data: Any
    scale: float


def find_average(definitions: Definitions, expression: Any) -> Any:
    """Return the convolution by ones whose sums are divided by the elements of their windows; None if it is none."""
    choice = definitions.call(expression, "where")
    quotient = None if choice is None else definitions.with_constant(choice.args[1], "floor_divide")
    size = None if quotient is None else definitions.with_constant(quotient[0], "add")
    sums = None if size is None else definitions.call(size[0], "abs")
    call = None if sums is None else definitions.call(sums.args[0], "nn.conv2d")
    if call is None or quotient is None or size is None or (size[1] != quotient[1] // 2).any():
        return None
    weights = array(call.args[1])
    if weights is None or (weights != 1).any() or int(call.attrs.groups) != shape(call)[-1]:
        return None
    if str(call.attrs.data_layout) != "NHWC" or set(integers(call.attrs.dilation)) != {1}:
        return None
    return call if np.array_equal(np.broadcast_to(quotient[1], (1, *shape(call)[1:3], 1)), _counts(call)) else None


def _counts(call: Any) -> np.ndarray:
    """Return the elements of each window of a convolution that lie inside of its data."""
    extents, results, window = shape(call.args[0])[1:3], shape(call)[1:3], shape(call.args[1])[:2]
    sizes = zip(extents, results, window, integers(call.attrs.strides), integers(call.attrs.padding)[:2], strict=True)
    counts = []
    for extent, count, size, stride, before in sizes:
        first = np.arange(count) * stride - before
        counts.append(np.minimum(first + size, extent) - np.maximum(first, 0))
    product: np.ndarray = (counts[0][:, None] * counts[1][None, :])[None, :, :, None]
    return product


def find_mean(definitions: Definitions, expression: Any) -> Mean | None:
    """Return a sum over axes, of which a product with a factor makes a mean; None if it is none."""
    less = definitions.with_constant(expression, "subtract")
    total = definitions.call(expression if less is None else less[0], "sum")
    cast = None if total is None else definitions.call(total.args[0], "astype")
    if total is None or cast is None or dtype(cast.args[0]) not in _BYTES or (less is not None and less[1].ndim):
        return None
    extents = shape(cast.args[0])
    over = axes(total.attrs.axis, len(extents))
    count = math.prod(extents[axis] for axis in over)
    zero, rest = divmod(0 if less is None else int(less[1]), count)
    return None if rest else Mean(cast.args[0], zero, over, count)


def find_softmax(definitions: Definitions, stored: Stored) -> Softmax | None:
    """Return the softmax whose shares are stored; None if they are those of something else."""
    # Only a table of all exponentials down to the first has these values.
    take = _find_table(definitions, stored.source, _DEPTH)
    if take is None or stored.high - stored.low != np.iinfo(np.uint8).max or stored.zero != stored.low:
        return None
    table = array(take.args[0])
    place = definitions.with_constant(take.args[1], "add")
    difference = None if place is None or place[1] != np.iinfo(np.uint8).max else definitions.call(place[0], "subtract")
    largest = None if difference is None else definitions.call(difference.args[1], "max")
    cast = None if difference is None else definitions.call(difference.args[0], "astype")
    if table is None or difference is None or largest is None or cast is None or dtype(cast.args[0]) not in _BYTES:
        return None
    is_of_same = largest.args[0] == difference.args[0]
    is_last = axes(largest.attrs.axis, len(shape(cast))) == (len(shape(cast)) - 1,)
    if not is_of_same or not is_last or not 0 < table[-2] < table[-1] == (1 << 31) - 1:
        return None
    return Softmax(cast.args[0], -math.log(float(table[-2]) / 2.0**31))


def _find_table(definitions: Definitions, expression: Any, depth: int) -> Any:
    """Return the lookup of a table of 256 elements in whose product something is, nearest first."""
    call = definitions.call(expression, "take", "astype", "right_shift", "add", "multiply")
    if call is None or not depth:
        return None
    if calls(call, "take"):
        table = array(call.args[0])
        return call if table is not None and table.shape == (256,) and str(table.dtype) == "int32" else None
    # The exponentials are the second factor.
    operand = call.args[1] if calls(call, "multiply") else call.args[0]
    return _find_table(definitions, operand, depth - 1)
