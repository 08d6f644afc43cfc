"""Matching of row operators: axes in the current layout, and constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from pipeline.executor.kernels.layout.expressions import AXIS, extents, is_static
from pipeline.executor.kernels.layout.rewriter import ModelLayout, Rewriter
from pipeline.executor.kernels.rows.rows import Rows


def rows_of(rewriter: Rewriter, data: Any, axes: Sequence[int], *, last: bool) -> tuple[Any, Rows]:
    """Return a tensor, optionally channels last, and its rows."""
    source = rewriter.last(data) if last else rewriter.plain(data)
    return source, Rows(extents(source.ty), tuple(sorted(AXIS[axis] for axis in axes) if last else axes))


def axes_of(axes: Any, ndim: int) -> tuple[int, ...]:
    """Return an attribute's axes, sorted and non-negative; None means all."""
    return tuple(range(ndim)) if axes is None else tuple(sorted({int(axis) % ndim for axis in axes}))


def in_layout(result: Any, *, last: bool) -> Any:
    """Return a result as a match result, channels last or unchanged."""
    return result if last else ModelLayout(result)


def is_float_data(*values: Any) -> bool:
    """Test for static, non-empty float32 tensors, the first not constant."""
    return (
        is_static(*values)
        and all(str(value.ty.dtype) == "float32" for value in values)
        # A row without elements has no mean, and a maximum that no loop would write.
        and 0 not in [extent for value in values for extent in extents(value.ty)]
        and isinstance(values[0], relax.Var)
    )


def squared_operand(rewriter: Rewriter, value: Any) -> tuple[Any, bool]:
    """Return a square's operand and True, or the value and False."""
    # Exporters write a square in either way.
    product = rewriter.producer(value, "multiply")
    if product is not None and isinstance(product.args[0], relax.Var) and product.args[0].same_as(product.args[1]):
        return product.args[0], True
    power = rewriter.producer(value, "power")
    if power is not None and isinstance(power.args[0], relax.Var) and constant_number(power.args[1]) == 2:
        return power.args[0], True
    return value, False


def constant_number(value: Any) -> float | None:
    """Return the number in a constant of one element."""
    array = np.asarray(value.value.numpy()) if isinstance(value, GenericConst) else None
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None
