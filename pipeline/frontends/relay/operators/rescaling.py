"""Integers rescaled as in TVM: fixed point, halves up by default."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.relay.builder import BindingBuilder, check_dtype, constant_values, dtype, shape
from pipeline.frontends.relay.operators.common import align_with_axis, cast
from pipeline.frontends.relay.operators.elementwise import clip, round_away_from_zero

op = relax.op

# TVM's qnn::GetFixedPointMultiplierShift: a 32-bit number whose highest bit but the sign is set.
_FRACTION_BITS = 31


def multiplier_and_shift(factor: float) -> tuple[int, int]:
    """Return a factor as 31-bit integer and power of two."""
    fraction, exponent = math.frexp(factor)
    # C rounds halves away from zero; the factor is positive.
    multiplier = math.floor(fraction * 2**_FRACTION_BITS + 0.5)
    # Rounding may carry to 2**31, which 32 bits cannot hold: half of it, and twice the power.
    return (multiplier // 2, exponent + 1) if multiplier == 2**_FRACTION_BITS else (multiplier, exponent)


def fixed_point(  # noqa: PLR0913, PLR0917 - what belongs to the factor stays together
    builder: BindingBuilder, x: Any, multiplier: Any, shift: Any, rounding: str = "UPWARD", number: int = 0
) -> Any:
    """Return ``x * multiplier * 2**(shift - 31)`` as int32.

    Parameters
    ----------
    multiplier, shift : int or numpy.ndarray
        One for all, or one for each position along the axis `number`.
    rounding : str
        ``"UPWARD"`` rounds halves up, ``"TONEAREST"`` away from zero.
    """
    multiplier, shift = np.array(multiplier, np.int64), np.array(shift, np.int64)
    # Beyond these the product with 32 bits leaves 64, and a shift leaves what LLVM defines.
    if np.any(np.abs(multiplier) >= 2**32) or np.any(np.abs(shift) > _FRACTION_BITS):
        raise ModelError(f"the multiplier {multiplier} with the shift {shift} is not supported")

    def constant(values: np.ndarray) -> Any:
        return align_with_axis(builder, builder.constant(values, "int64"), x, number)

    # A positive shift happens before the product and a negative one after it, so that no bit is lost early.
    shift_right = _FRACTION_BITS + np.maximum(-shift, 0)
    scaled = cast(builder, x, "int64")
    if np.any(shift > 0):
        scaled = builder.emit(op.left_shift(scaled, constant(np.maximum(shift, 0))))
    scaled = builder.emit(op.multiply(scaled, constant(multiplier)))
    half = constant(np.left_shift(1, shift_right - 1))
    # The shift rounds down; one less than a half keeps halves of negative numbers from going up.
    if rounding == "TONEAREST":
        half_of_negatives = constant(np.left_shift(1, shift_right - 1) - 1)
        negative = builder.emit(op.less(scaled, builder.constant(0, "int64")))
        half = builder.emit(op.where(negative, half_of_negatives, half))
    scaled = builder.emit(op.right_shift(builder.emit(op.add(scaled, half)), constant(shift_right)))
    return cast(builder, scaled, "int32")


def align_scales(builder: BindingBuilder, x: Any, values: Any, number: int, kind: str) -> Any:
    """Return scales or zero points, shaped to combine with `x`."""
    if len(shape(values)) > 1:
        raise ModelError(f"expected one value, or one per channel, found the shape {shape(values)}")
    # Exporters write a scale for all channels as a scalar or as a vector of one.
    single = math.prod(shape(values)) == 1
    values = cast(builder, values, kind)
    if single:
        return builder.emit(op.reshape(values, ())) if shape(values) else values
    return align_with_axis(builder, values, x, number)


def is_zero(zero_point: Any) -> bool:
    """Check for zero points of 0."""
    return not constant_values(zero_point, "a zero point").any()


def subtract_zero_point(builder: BindingBuilder, x: Any, zero_point: Any, number: int = 0) -> Any:
    """Return `x` less its zero point, as int32 if any."""
    if is_zero(zero_point):
        return x
    value = cast(builder, x, "int32")
    return builder.emit(op.subtract(value, align_scales(builder, x, zero_point, number, "int32")))


def saturate(builder: BindingBuilder, x: Any, target: str) -> Any:
    """Return `x` clipped to a smaller dtype."""
    if dtype(x) == target:
        return x
    # In the wide dtype first: a cast alone would keep the lower bits.
    limits = np.iinfo(check_dtype(target))
    return cast(builder, clip(builder, x, limits.min, limits.max), target)


def requantize(  # noqa: PLR0913, PLR0917 - two pairs of scale and zero point, as everywhere in qnn
    builder: BindingBuilder,
    x: Any,
    scale: Any,
    zero_point: Any,
    out_scale: Any,
    out_zero_point: Any,
    target: str,
    number: int = 0,
    rounding: str = "UPWARD",
    compute: str = "int64",
) -> Any:
    """Return rescaled integers, computed in integers or `compute`."""
    # In 64 bits: TVM divides doubles, and a quotient of floats would choose another multiplier now and then.
    factors = constant_values(scale, "a scale").astype(np.float64) / float(single_scale(out_scale))
    # Before the factor: the zero point belongs to the scale of the operand.
    x = subtract_zero_point(builder, x, zero_point, number)
    if compute.startswith("float"):
        x = _rescale_by_float(builder, x, factors.astype(compute), out_zero_point, number, rounding)
    else:
        x = _rescale_by_fixed_point(builder, x, factors, out_zero_point, number, rounding)
    return saturate(builder, x, target)


def _rescale_by_fixed_point(  # noqa: PLR0913, PLR0917 - all of a scale
    builder: BindingBuilder, x: Any, factors: np.ndarray, zero_point: Any, number: int, rounding: str
) -> Any:
    """Multiply in 64 bits, bit for bit as TVM's default."""
    if np.any(factors <= 0) or not np.all(np.isfinite(factors)):
        raise ModelError("scales must be positive")
    x = cast(builder, x, "int32")
    # Equal scales need no multiplication.
    if np.any(factors != 1):
        pairs = np.array([multiplier_and_shift(float(factor)) for factor in factors.reshape(-1)], np.int64)
        multiplier, shift = pairs[0] if len(pairs) == 1 else pairs.T
        x = fixed_point(builder, x, multiplier, shift, rounding, number)
    return _add_zero_point(builder, x, zero_point, number)


def _rescale_by_float(  # noqa: PLR0913, PLR0917 - all of a scale
    builder: BindingBuilder, x: Any, factors: np.ndarray, zero_point: Any, number: int, rounding: str
) -> Any:
    """Multiply in the factors' dtype, zero point before the only rounding."""
    compute = str(factors.dtype)
    value = cast(builder, x, compute)
    value = builder.emit(op.multiply(value, align_scales(builder, x, builder.constant(factors), number, compute)))
    value = _add_zero_point(builder, value, zero_point, number)
    if rounding == "UPWARD":
        value = builder.emit(op.floor(builder.emit(op.add(value, builder.constant(0.5, compute)))))
    else:
        value = round_away_from_zero(builder, value)
    return cast(builder, value, "int32")


def _add_zero_point(builder: BindingBuilder, x: Any, zero_point: Any, number: int) -> Any:
    if is_zero(zero_point):
        return x
    return builder.emit(op.add(x, align_scales(builder, x, zero_point, number, dtype(x))))


def single_scale(constant: Any) -> Any:
    """Return the only value of a scale; `ModelError` if it has more than one, or none."""
    values = constant_values(constant, "a scale").reshape(-1)
    if len(values) != 1:
        raise ModelError(f"expected one scale, found {len(values)}")
    return values[0]
