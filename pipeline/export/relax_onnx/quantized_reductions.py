"""Means of bytes: sums and a factor in quantised models."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from pipeline.export.relax_onnx.definitions import Definitions
from pipeline.export.relax_onnx.operands import axes, dtype, shape

_BYTES = ("int8", "uint8")


class Mean(NamedTuple):
    """Sum of a tensor of bytes over axes, less zero points."""

    data: Any
    zero: int
    axes: tuple[int, ...]
    elements: int
    """Number of elements in each sum."""


def find_mean(definitions: Definitions, expression: Any) -> Mean | None:
    """Return the sum over axes inside a mean, or None."""
    less = definitions.with_constant(expression, "subtract")
    total = definitions.call(expression if less is None else less[0], "sum")
    cast = None if total is None else definitions.call(total.args[0], "astype")
    if total is None or cast is None or dtype(cast.args[0]) not in _BYTES or (less is not None and less[1].ndim):
        return None
    extents = shape(cast.args[0])
    over = axes(total.attrs.axis, len(extents))
    count = math.prod(extents[axis] for axis in over)
    zero, remainder = divmod(0 if less is None else int(less[1]), count)
    return None if remainder else Mean(cast.args[0], zero, over, count)
