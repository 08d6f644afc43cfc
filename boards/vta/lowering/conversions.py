"""Conversions: from bytes to numbers with a unit, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from boards.vta.lowering import constants
from boards.vta.lowering.step_builder import StepBuilder
from boards.vta.lowering.values import HALF, MemoryTensor, TensorCopy, UnroundedSums, Unsupported, unbounded_sums


def dequantize(builder: StepBuilder, call: Any) -> Any:
    """Return constant bytes as weights, others as sums."""
    if str(call.attrs.out_dtype) != "float32":
        raise Unsupported(f"it dequantises to {call.attrs.out_dtype}")
    if constants.array(call.args[0]) is not None:
        return constants.dequantized_weights(call)
    source = builder.tensor(call.args[0])
    # For its check alone: the tensor in memory has its zero point already.
    constants.zero_point(call.args[2], str(call.args[0].ty.dtype))
    return unbounded_sums(TensorCopy(source), source.shape[0], source.extents, constants.exponent(call.args[1]))


def quantize(builder: StepBuilder, call: Any) -> MemoryTensor:
    """Return sums as bytes."""
    zero = constants.zero_point(call.args[2], str(call.attrs.out_dtype))
    return builder.round_sums(builder.sums(call.args[0]), constants.exponent(call.args[1]), zero)


def astype(builder: StepBuilder, call: Any) -> Any:
    """Widen, or narrow clipped values to int8."""
    if not str(call.args[0].ty.dtype).startswith("int"):
        raise Unsupported("it cuts fractions off")
    return _narrow(builder, builder.sums(call.args[0]), str(call.attrs.dtype))


def requantize(builder: StepBuilder, call: Any) -> Any:
    """Return sums on another scale, whose factor is a power of two."""
    from pipeline.model.requantization import NONE, UPWARD, Requantization

    form = Requantization.of(call)
    assert form is not None  # noqa: S101 - asked before
    sums = builder.sums(call.args[1].fields[0])
    if form.rounding == UPWARD:
        if sums.is_floored:
            raise Unsupported("it rounds twice")
        mantissa, left, right = (
            np.resize(np.array(values, np.float64), sums.channels) for values in (form.mantissa, form.left, form.right)
        )
        # The shift rounds down: a half before it makes that to the nearest.
        sums = sums.times(constants.exponents(mantissa) + left).plus(np.exp2(right - 1)).shift_right(right)
    elif form.rounding != NONE:
        raise Unsupported("it rounds halves in a way that VTA does not")
    shifted = sums.plus(np.full(sums.channels, float(form.zero)))
    return _narrow(builder, shifted.clip(form.low, form.high) if form.is_bounded else shifted, form.dtype)


def _narrow(builder: StepBuilder, sums: UnroundedSums, target: str) -> Any:
    # Sums are exact, so that wider numbers change nothing.
    if target in ("int32", "int64"):
        return sums
    if target != "int8" or (sums.low < -HALF).any() or (sums.high > HALF - 1).any():
        raise Unsupported(f"it casts to {target} what was not clipped to it")
    return builder.round_sums(sums, 0.0, 0)
