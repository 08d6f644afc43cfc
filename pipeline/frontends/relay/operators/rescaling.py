"""Integers rescaled as in TVM: fixed point, halves up by default."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.relay.builder import BindingBuilder, check_dtype, constant_values, dtype, shape
from pipeline.frontends.relay.operators.common import align_with_axis, cast
from pipeline.frontends.relay.operators.elementwise import clip, round_away_from_zero
from pipeline.model.requantization import (
    FRACTION_BITS,
    OUTWARD,
    UPWARD,
    Multiplier,
    Requantization,
    multiplier_and_shift,
)

op = relax.op

_INT32 = (-(1 << 31), (1 << 31) - 1)

_ROUNDINGS = {"UPWARD": UPWARD, "TONEAREST": OUTWARD}
"""Roundings of halves by Relay's names: up, and away from zero."""


def fixed_point(builder: BindingBuilder, x: Any, multiplier: Multiplier) -> Any:
    """Return numbers times a multiplier, halves rounded up, as int32; `ModelError` if products may not fit 64 bits."""
    return builder.requantize(x, _scale(multiplier))


def multiplier_of(factors: np.ndarray) -> Multiplier:
    """Return factors as TVM's GetFixedPointMultiplierShift does."""
    pairs = np.array([multiplier_and_shift(float(factor)) for factor in factors.reshape(-1)], np.int64)
    return Multiplier(*pairs.T)


def _scale(multiplier: Multiplier, rounding: str = UPWARD, axis: int = -1) -> Requantization:
    # Beyond these the product with 32 bits leaves 64, and a shift leaves what LLVM defines.
    if np.any(np.abs(multiplier.mantissa) >= 2**32) or np.any(np.abs(multiplier.shift) > FRACTION_BITS):
        raise ModelError(f"the multiplier {multiplier.mantissa} with the shift {multiplier.shift} is not supported")
    return multiplier.scale(rounding, axis)


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
        return saturate(builder, x, target)
    return _rescale_by_fixed_point(builder, x, _scale_of(x, factors, number, rounding), out_zero_point, number, target)


def _scale_of(x: Any, factors: np.ndarray, number: int, rounding: str) -> Requantization:
    if np.any(factors <= 0) or not np.all(np.isfinite(factors)):
        raise ModelError("scales must be positive")
    # Equal scales need no multiplication.
    if np.all(factors == 1):
        return Requantization()
    return _scale(multiplier_of(factors), _ROUNDINGS[rounding], number - len(shape(x)))


def _rescale_by_fixed_point(  # noqa: PLR0913, PLR0917 - all of a scale
    builder: BindingBuilder, x: Any, scale: Requantization, zero_point: Any, number: int, target: str
) -> Any:
    """Multiply in 64 bits, bit for bit as TVM's default."""
    x = cast(builder, x, "int32")
    zeros, limits = constant_values(zero_point, "a zero point"), np.iinfo(check_dtype(target))
    if zeros.size > 1:
        shifted = _add_zero_point(builder, builder.requantize(x, scale), zero_point, number)
        return saturate(builder, shifted, target)
    low, high = (int(np.clip(limit, *_INT32)) for limit in (limits.min, limits.max))
    return builder.requantize(x, replace(scale, zero=int(zeros.item()), low=low, high=high, dtype=target))


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
