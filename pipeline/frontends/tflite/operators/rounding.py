"""Rounding of real numbers, as LiteRT's reference kernels round them."""

from __future__ import annotations

from typing import Any

from tvm import relax

op = relax.op


def round_from_zero(bb: Any, x: Any) -> Any:
    """Return reals rounded to integers, halves away from zero."""
    x = bb.emit(x)
    dtype = x.ty.dtype
    half, zero = relax.const(0.5, dtype), relax.const(0, dtype)
    return op.where(op.less(x, zero), op.ceil(op.subtract(x, half)), op.floor(op.add(x, half)))


def rounded_product(x: Any) -> Any:
    """Return a float32 product rounded before any addition."""
    # They are all larger than this, which the compiler does not know: it would make one operation of product and sum.
    return op.maximum(x, relax.const(-1e30, "float32"))
