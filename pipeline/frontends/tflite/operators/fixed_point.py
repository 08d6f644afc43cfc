"""Fixed point: whole numbers times a real factor, in the integer arithmetic of LiteRT's reference kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from tvm import relax

from pipeline.frontends.relay.operators.rescaling import multiplier_and_shift
from pipeline.model.passes.bindings import constant

op = relax.op

_FRACTION_BITS = 31
_LARGEST_SHORT = 0x7FFF
"""Mantissa for sums of 64 bits; those have 15 bits, so that the product fits into 64 again."""


class Multiplier(NamedTuple):
    """Real factors, one or one for each channel, as ``mantissa * 2**(shift - 31)``.

    Attributes
    ----------
    mantissa, shift : numpy.ndarray
        int64, of no or one axis.
    """

    mantissa: np.ndarray
    shift: np.ndarray


def multiplier_of(factors: Any) -> Multiplier:
    """Return positive float64 factors as LiteRT's QuantizeMultiplier does."""
    array = np.asarray(factors, np.float64)
    pairs = [_pair(float(factor)) for factor in array.reshape(-1)]
    mantissas, shifts = (np.array(column, np.int64).reshape(array.shape) for column in zip(*pairs, strict=True))
    return Multiplier(mantissas, shifts)


def _pair(factor: float) -> tuple[int, int]:
    mantissa, shift = multiplier_and_shift(factor) if factor else (0, 0)
    # All bits would be shifted out.
    return (0, 0) if shift < -_FRACTION_BITS else (mantissa, shift)


def multiply(bb: Any, x: Any, multiplier: Multiplier) -> Any:
    """Return int32 numbers times a factor, rounded twice: to 31 bits, halves up, then to units, halves from zero.

    Parameters
    ----------
    bb : relax.BlockBuilder
    x : relax.Expr
        Of dtype int32; a factor for each channel is one for each position along its last axis.
    multiplier : Multiplier
    """
    left, right = np.maximum(multiplier.shift, 0), np.maximum(-multiplier.shift, 0)
    # A shift to the left before the product is the same as one of the mantissa, unless it overflows.
    product = op.multiply(op.astype(x, "int64"), constant(multiplier.mantissa << left))
    half = constant(np.int64(1 << (_FRACTION_BITS - 1)))
    high = op.right_shift(op.add(product, half), constant(np.int64(_FRACTION_BITS)))
    return divide_by_power(bb, op.astype(high, "int32"), right)


def divide_by_power(bb: Any, x: Any, exponents: Any) -> Any:
    """Return int32 numbers divided by powers of two, halves rounded away from zero."""
    exponents = np.asarray(exponents, np.int64)
    if not exponents.any():
        return x
    x = bb.emit(x)
    # One less for negative numbers, so that their halves go down; the last bit apart, so that nothing overflows.
    sign = op.right_shift(x, constant(np.int32(_FRACTION_BITS)))
    before_last = constant(np.maximum(exponents - 1, 0).astype(np.int32))
    doubled = op.right_shift(op.add(x, sign), before_last)
    result = op.right_shift(op.add(doubled, constant(np.int32(1))), constant(np.int32(1)))
    return result if exponents.all() else op.where(constant(exponents > 0), result, x)


def multiply_wide(x: Any, multiplier: Multiplier) -> Any:
    """Return int64 sums times a factor as int32, rounded once, halves up; the factor has 15 bits."""
    mantissa = np.where(
        multiplier.mantissa < _LARGEST_SHORT << 16, (multiplier.mantissa + (1 << 15)) >> 16, _LARGEST_SHORT
    )
    total_shift = 15 - multiplier.shift
    product = op.add(op.multiply(x, constant(mantissa)), constant(np.left_shift(np.int64(1), total_shift - 1)))
    return op.astype(op.right_shift(product, constant(total_shift)), "int32")


def round_from_zero(bb: Any, x: Any) -> Any:
    """Return real numbers rounded to whole ones, halves away from zero, as C's round does."""
    x = bb.emit(x)
    dtype = x.ty.dtype
    half, zero = relax.const(0.5, dtype), relax.const(0, dtype)
    return op.where(op.less(x, zero), op.ceil(op.subtract(x, half)), op.floor(op.add(x, half)))


def rounded_product(x: Any) -> Any:
    """Return a float32 product of small numbers so that it is rounded before something is added to it."""
    # They are all larger than this, which the compiler does not know: it would make one operation of product and sum.
    return op.maximum(x, relax.const(-1e30, "float32"))


def saturate(x: Any, low: int, high: int, dtype: str) -> Any:
    """Return int32 numbers within bounds in a smaller dtype."""
    bounded = op.minimum(op.maximum(x, constant(np.int32(low))), constant(np.int32(high)))
    return op.astype(bounded, dtype)
