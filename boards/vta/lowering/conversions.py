"""Conversions: from bytes to numbers with a unit, and back."""

from __future__ import annotations

from typing import Any

from boards.vta.lowering import constants
from boards.vta.lowering.step_builder import StepBuilder
from boards.vta.lowering.values import HALF, MemoryTensor, TensorCopy, Unsupported, unbounded_sums


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
    target, sums = str(call.attrs.dtype), builder.sums(call.args[0])
    if not str(call.args[0].ty.dtype).startswith("int"):
        raise Unsupported("it cuts fractions off")
    # Sums are exact, so that wider numbers change nothing.
    if target in ("int32", "int64"):
        return sums
    if target != "int8" or (sums.low < -HALF).any() or (sums.high > HALF - 1).any():
        raise Unsupported(f"it casts to {target} what was not clipped to it")
    return builder.round_sums(sums, 0.0, 0)
