"""Exponential in vectorisable arithmetic, instead of the scalar C library."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from pipeline.tvm import statements as tir

LARGEST, SMALLEST = 88.3762626647950, -87.3365447504
"""Beyond them the result, or a part of it, leaves float32."""

_LOG2_E = 1.44269504088896341
# The logarithm of two, in a part with few bits and the rest, so that multiples of the first are exact.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
# Minimax for (exp(r) - 1 - r) / r**2 where |r| <= ln(2) / 2; relative error 2e-7 (Cephes, expf).
_TERMS = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_WHOLE = 1.5 * 2**23
"""Rounding constant: a float32 so large that it has no binary places. A number added to it is rounded, and stands in
its lowest bits."""
_MANTISSA_BITS = 23


def exponential(value: Any, lanes: int, bindings: tir.Bindings, *, largest: float = LARGEST) -> Any:
    """Exponentiate a float32 or vector, none above `largest`.

    Arguments are clamped to `SMALLEST` and `LARGEST`.  Values that are needed more than once are among the `bindings`.
    """
    float_type, int_type = tir.lanewise("float32", lanes), tir.lanewise("int32", lanes)

    def wide(number: float) -> Any:
        return tir.constant(number, lanes)

    value = bindings.bind(float_type, value)
    # A comparison with NaN is false, so that NaN stays what it is.
    if largest >= LARGEST:
        value = bindings.bind(float_type, tirx.Select(value > wide(LARGEST), wide(LARGEST), value))
    value = bindings.bind(float_type, tirx.Select(value < wide(SMALLEST), wide(SMALLEST), value))
    # Cody and Waite: x = k ln(2) + r, with ln(2) in two parts, the first of which k multiplies without an error.
    exponent_bits = bindings.bind(int_type, tirx.reinterpret(int_type, value * wide(_LOG2_E) + wide(_WHOLE)))
    # Taken as a float32 again, since TVM would cancel the two numbers.
    exponent = tirx.reinterpret(float_type, exponent_bits) - wide(_WHOLE)
    remainder = bindings.bind(float_type, value - exponent * wide(_LN2_HIGH) - exponent * wide(_LN2_LOW))
    total = wide(_TERMS[0])
    for term in _TERMS[1:]:
        total = total * remainder + wide(term)
    # The power of two is added to where a float32 has its exponent.
    power = tirx.shift_left(exponent_bits, tir.wide(tirx.IntImm("int32", _MANTISSA_BITS), lanes))
    # e**r is 1 + r + r**2 times the polynomial.
    bits = tirx.reinterpret(int_type, total * (remainder * remainder) + (remainder + wide(1.0)))
    return tirx.reinterpret(float_type, bits + power)
