"""Arithmetic: additions, multiplications, shifts and clipping of sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from boards.vta.lowering import constants, rounding
from boards.vta.lowering.step_builder import StepBuilder
from boards.vta.lowering.values import TensorCopy, TensorPair, UnroundedSums, Unsupported, unbounded_sums

_INT32 = 2.0**31


def add(builder: StepBuilder, call: Any) -> UnroundedSums:
    """Add a constant, or another tensor."""
    addend, augend = call.args
    # Either operand may be the constant.
    if constants.array(addend) is not None:
        addend, augend = augend, addend
    first = builder.sums(addend)
    constant = constants.per_channel(augend, first.extents, first.channels)
    if constant is not None:
        return first.plus(constant)
    first, second = (_addend(builder, operand) for operand in (first, builder.sums(augend)))
    first_source, second_source = first.origin, second.origin
    if (
        not isinstance(first_source, TensorCopy)
        or not isinstance(second_source, TensorCopy)
        or first_source.source.shape != second_source.source.shape
    ):
        raise Unsupported("it adds tensors of different shapes")
    pair = TensorPair(first_source.source, second_source.source, (int(first.exponent[0]), int(second.exponent[0])))
    return unbounded_sums(pair, first.channels, first.extents, min(pair.exponents))


def _addend(builder: StepBuilder, sums: UnroundedSums) -> UnroundedSums:
    """Return a scaled tensor, rounded into its own tensor if divided."""
    if not isinstance(sums.origin, TensorCopy) or sums.is_clipped or (sums.offset.any() and not sums.is_floored):
        raise Unsupported("it adds what is not quantised")
    if not sums.is_floored:
        return sums
    # Rounded first, for the sum would still have the bits that rounding takes away.
    tensor = builder.append_step(rounding.layer(sums, 0.0), (sums.origin.source,), sums.extents, 0)
    return unbounded_sums(TensorCopy(tensor), sums.channels, sums.extents)


def clip_to(low: float, high: float) -> Callable[[StepBuilder, Any], UnroundedSums]:
    """Return the rule of an operator with fixed bounds."""
    return lambda builder, call: builder.sums(call.args[0]).clip(low, high)


def clip(builder: StepBuilder, call: Any) -> UnroundedSums:
    """Clip to two numbers."""
    low, high = (float(bound.value.value if hasattr(bound.value, "value") else bound.value) for bound in call.args[1:])
    return builder.sums(call.args[0]).clip(low, high)


def limit(name: str) -> Callable[[StepBuilder, Any], UnroundedSums]:
    """Return the rule of a minimum or maximum with a constant."""

    def rule(builder: StepBuilder, call: Any) -> UnroundedSums:
        limit_value = constants.array(call.args[1])
        if limit_value is None or limit_value.size != 1:
            raise Unsupported("it compares two tensors")
        return builder.sums(call.args[0]).clip(**{name: float(limit_value.reshape(-1)[0])})

    return rule


def multiply(builder: StepBuilder, call: Any) -> UnroundedSums:
    """Multiply with constant powers of two."""
    sums = builder.sums(call.args[0])
    factors = constants.per_channel(call.args[1], sums.extents, sums.channels)
    if factors is None:
        raise Unsupported("it multiplies two tensors")
    return _scale_sums(call, sums, constants.exponents(factors))


def left_shift(builder: StepBuilder, call: Any) -> UnroundedSums:
    """Multiply with two to the power of constants."""
    sums = builder.sums(call.args[0])
    return _scale_sums(call, sums, _bits(call, sums))


def _scale_sums(call: Any, sums: UnroundedSums, exponent: Any) -> UnroundedSums:
    # An addition has one shift for all channels.
    if sums.is_floored or (isinstance(sums.origin, TensorPair) and np.ptp(exponent)):
        raise Unsupported("it scales what was rounded")
    products = sums.times(exponent)
    # Sums are exact here, where the model's wrap around.
    if str(call.ty.dtype) == "int32" and (products.largest >= _INT32).any():
        raise Unsupported("its results may not fit 32 bits, and what does not fit is lost")
    return products


def right_shift(builder: StepBuilder, call: Any) -> UnroundedSums:
    """Divide by constant powers of two and round down."""
    sums = builder.sums(call.args[0])
    if sums.is_floored:
        raise Unsupported("it shifts right twice")
    return sums.shift_right(_bits(call, sums))


def _bits(call: Any, sums: UnroundedSums) -> Any:
    bits = constants.per_channel(call.args[1], sums.extents, sums.channels)
    if bits is None:
        raise Unsupported("it shifts by another tensor")
    return bits
