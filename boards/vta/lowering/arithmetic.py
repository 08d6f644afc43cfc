"""Arithmetic: what is added to sums, multiplied with them, shifted and clipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from boards.vta.lowering import constants, rounding
from boards.vta.lowering.values import Copy, Pair, Sums, Unsupported, sums

if TYPE_CHECKING:
    from boards.vta.lowering.reader import Reader

_INT32 = 2.0**31


def add(reader: Reader, call: Any) -> Sums:
    """Add a constant, or another tensor."""
    left, right = call.args
    if constants.array(left) is not None:
        left, right = right, left
    first = reader.sums(left)
    constant = constants.per_channel(right, first.extents, first.channels)
    if constant is not None:
        return first.plus(constant)
    first, second = (_addend(reader, each) for each in (first, reader.sums(right)))
    one, other = first.made, second.made
    if not isinstance(one, Copy) or not isinstance(other, Copy) or one.source.shape != other.source.shape:
        raise Unsupported("it adds tensors of different shapes")
    pair = Pair(one.source, other.source, (int(first.exponent[0]), int(second.exponent[0])))
    return sums(pair, first.channels, first.extents, min(pair.exponents))


def _addend(reader: Reader, found: Sums) -> Sums:
    """Return a tensor times a power of two; one that was divided and rounded becomes a tensor of its own."""
    if not isinstance(found.made, Copy) or found.bounded or (found.offset.any() and not found.floored):
        raise Unsupported("it adds what is not quantised")
    if not found.floored:
        return found
    made = reader.append(rounding.layer(found, 0.0), (found.made.source,), found.extents, 0)
    return sums(Copy(made), found.channels, found.extents)


def clipped(low: float, high: float) -> Callable[[Reader, Any], Sums]:
    """Return the rule of an operator that clips to what it is called for."""
    return lambda reader, call: reader.sums(call.args[0]).clipped(low, high)


def clip(reader: Reader, call: Any) -> Sums:
    """Clip to two numbers."""
    low, high = (float(each.value.value if hasattr(each.value, "value") else each.value) for each in call.args[1:])
    return reader.sums(call.args[0]).clipped(low, high)


def limit(name: str) -> Callable[[Reader, Any], Sums]:
    """Return the rule of the larger or the smaller of a tensor and a constant, the ``low`` or ``high`` bound."""

    def rule(reader: Reader, call: Any) -> Sums:
        bound = constants.array(call.args[1])
        if bound is None or bound.size != 1:
            raise Unsupported("it compares two tensors")
        return reader.sums(call.args[0]).clipped(**{name: float(bound.reshape(-1)[0])})

    return rule


def multiply(reader: Reader, call: Any) -> Sums:
    """Multiply with constant powers of two."""
    found = reader.sums(call.args[0])
    factors = constants.per_channel(call.args[1], found.extents, found.channels)
    if factors is None:
        raise Unsupported("it multiplies two tensors")
    return _scaled(call, found, constants.exponents(factors))


def left_shift(reader: Reader, call: Any) -> Sums:
    """Multiply with two to the power of constants."""
    found = reader.sums(call.args[0])
    return _scaled(call, found, _bits(call, found))


def _scaled(call: Any, found: Sums, exponent: Any) -> Sums:
    if found.floored or (isinstance(found.made, Pair) and np.ptp(exponent)):
        raise Unsupported("it scales what was rounded")
    made = found.times(exponent)
    if str(call.ty.dtype) == "int32" and (made.largest >= _INT32).any():
        raise Unsupported("its results may not fit 32 bits, and what does not fit is lost")
    return made


def right_shift(reader: Reader, call: Any) -> Sums:
    """Divide by two to the power of constants, and round down."""
    found = reader.sums(call.args[0])
    if found.floored:
        raise Unsupported("it shifts right twice")
    return found.shifted(_bits(call, found))


def _bits(call: Any, found: Sums) -> Any:
    bits = constants.per_channel(call.args[1], found.extents, found.channels)
    if bits is None:
        raise Unsupported("it shifts by another tensor")
    return bits
