"""Conversions: from bytes to numbers with a unit, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boards.vta.lowering import constants, products
from boards.vta.lowering.values import HALF, Copy, Tensor, Unsupported, sums

if TYPE_CHECKING:
    from boards.vta.lowering.reader import Reader


def dequantize(reader: Reader, call: Any) -> Any:
    """Return weights, if the bytes are constant, or else sums."""
    if str(call.attrs.out_dtype) != "float32":
        raise Unsupported(f"it dequantises to {call.attrs.out_dtype}")
    if constants.array(call.args[0]) is not None:
        return products.quantized(call)
    source = reader.tensor(call.args[0])
    constants.zero_point(call.args[2], str(call.args[0].ty.dtype))
    return sums(Copy(source), source.shape[0], source.extents, constants.exponent(call.args[1]))


def quantize(reader: Reader, call: Any) -> Tensor:
    """Return sums as bytes."""
    zero = constants.zero_point(call.args[2], str(call.attrs.out_dtype))
    return reader.rounded(reader.sums(call.args[0]), constants.exponent(call.args[1]), zero)


def astype(reader: Reader, call: Any) -> Any:
    """Widen, or narrow what was clipped to what int8 holds."""
    target, found = str(call.attrs.dtype), reader.sums(call.args[0])
    if not str(call.args[0].ty.dtype).startswith("int"):
        raise Unsupported("it cuts fractions off")
    if target in ("int32", "int64"):
        return found
    if target != "int8" or (found.low < -HALF).any() or (found.high > HALF - 1).any():
        raise Unsupported(f"it casts to {target} what was not clipped to it")
    return reader.rounded(found, 0.0, 0)
