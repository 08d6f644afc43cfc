"""Exponential function in arithmetic that vectors have; the C library's takes one value at a time."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from pipeline.executor.schedules.language import tir

LARGEST, SMALLEST = 88.3762626647950, -87.3365447504
"""Beyond them the result, or a part of it, leaves float32."""

_LOG2_E = 1.44269504088896341
# The logarithm of two, in a part with few bits and the rest, so that multiples of the first are exact.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
# Minimax for (exp(r) - 1 - r) / r**2 where |r| <= ln(2) / 2; relative error 2e-7 (Cephes, expf).
_TERMS = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_WHOLE = 1.5 * 2**23
"""A float32 so large that it has no binary places: what is added to it is rounded, and stands in its lowest bits."""
_MANTISSA_BITS = 23


def exponential(value: Any, lanes: int = 1, *, largest: float = LARGEST) -> Any:
    """Return e to the power of a float32, or of a vector of them, of which none is above `largest`.

    Above `LARGEST` it is that one's; below `SMALLEST` too.
    """
    real, kind = ("float32", "int32") if lanes == 1 else (f"float32x{lanes}", f"int32x{lanes}")

    def wide(number: float) -> Any:
        return tir.constant(number, lanes)

    # A comparison with NaN is false, so that NaN stays what it is.
    def inside(value: Any) -> Any:
        value = tirx.Select(value > wide(LARGEST), wide(LARGEST), value) if largest >= LARGEST else value
        return tirx.Select(value < wide(SMALLEST), wide(SMALLEST), value)

    def twos(value: Any) -> Any:
        return tirx.reinterpret(kind, value * wide(_LOG2_E) + wide(_WHOLE))

    def rest(value: Any, moved: Any) -> Any:
        # Taken as a float32 again, since TVM would cancel the two numbers.
        whole = tirx.reinterpret(real, moved) - wide(_WHOLE)
        return value - whole * wide(_LN2_HIGH) - whole * wide(_LN2_LOW)

    def scaled(rest: Any, moved: Any) -> Any:
        total = wide(_TERMS[0])
        for term in _TERMS[1:]:
            total = total * rest + wide(term)
        # The power of two is added to where a float32 has its exponent.
        shift = tirx.IntImm("int32", _MANTISSA_BITS)
        power = tirx.shift_left(moved, shift if lanes == 1 else tir.vector(shift, lanes))
        bits = tirx.reinterpret(kind, total * (rest * rest) + (rest + wide(1.0)))
        return tirx.reinterpret(real, bits + power)

    return tir.let(
        real,
        value,
        lambda value: tir.let(
            real,
            inside(value),
            lambda value: tir.let(
                kind,
                twos(value),
                lambda moved: tir.let(real, rest(value, moved), lambda rest: scaled(rest, moved)),
            ),
        ),
    )
