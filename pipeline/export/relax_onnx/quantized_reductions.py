"""Means of bytes, which quantised models have as sums and a factor."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from pipeline.export.relax_onnx.definitions import Definitions
from pipeline.export.relax_onnx.operands import axes, dtype, shape

_BYTES = ("int8", "uint8")


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
