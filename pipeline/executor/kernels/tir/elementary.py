"""Elementary functions in vectorisable arithmetic, instead of the scalar C library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx

from pipeline.tvm import statements as tir
from pipeline.tvm.objects import mutate

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


_NESTED = 1
"""Functions of functions of functions are left to the library: the time to compile them grows with a power."""

_PREFIX = "soc."
_BRANCH = "prim.if_then_else"

_OVERFLOW = 88.7228394
"""Least argument with an infinite exponential in float32."""

# Rational approximations in x * x, from the highest power down, and beyond which x they do not change (Eigen,
# generic_fast_tanh_float and generic_fast_erf_float).
_TANH = (
    (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05,
     6.37261928875436e-04, 4.89352455891786e-03),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
    7.90531110763549805,
)  # fmt: skip
_ERF = (
    (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
     -2.95459980854025e-03, -1.60960333262415e-02),
    (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02),
    4.0,
)  # fmt: skip


def without_library(function: Any) -> Any:
    """Replace a function's float32 C library calls by our operators.

    Code generation writes them out, so that no pass before it has to go through as many copies as a kernel is unrolled.
    """

    def call(node: Any, mutator: Any) -> Any:
        # Calls of global functions have no name there.
        name = str(getattr(node.op, "name", ""))
        result = mutator.default_mutate(node)
        if name not in LOWERED or not str(node.ty.dtype).startswith("float32") or not _can_hold(result.args[0]):
            return result
        return tirx.call_intrin(str(node.ty.dtype), tvm.ir.Op.get(_own_name(name)), *result.args)

    return function.with_body(mutate(function.body, [(tvm.ir.Call, call)]))


def _can_hold(value: Any) -> bool:
    """Test if our functions can take an argument: unnested, unconditional.

    A branch may read memory that exists only if the branch is taken.
    """
    depth = calls = lazy = 0

    def look(call: Any, mutator: Any) -> Any:
        nonlocal depth, calls, lazy
        name = str(getattr(call.op, "name", ""))
        calls += name.startswith(_PREFIX)
        lazy += name.startswith(_PREFIX) and depth > 0
        depth += name == _BRANCH
        result = mutator.default_mutate(call)
        depth -= name == _BRANCH
        return result

    mutate(value, [(tvm.ir.Call, look)])
    return calls <= _NESTED and not lazy


def _own_name(name: str) -> str:
    return name.replace("tirx.", _PREFIX)


def _exp(value: Any, lanes: int, bindings: tir.Bindings) -> Any:
    infinity = tir.wide(tirx.infinity("float32"), lanes)
    return tirx.Select(value > tir.constant(_OVERFLOW, lanes), infinity, exponential(value, lanes, bindings))


def _sigmoid(value: Any, lanes: int, bindings: tir.Bindings) -> Any:
    unit = tir.constant(1.0, lanes)
    return unit / (unit + exponential(tir.constant(0.0, lanes) - value, lanes, bindings))


def _rational(value: Any, lanes: int, parts: tuple[Sequence[float], Sequence[float], float]) -> Any:
    above, below, limit = parts
    upper_limit, lower_limit = (tir.constant(bound, lanes) for bound in (limit, -limit))
    # A comparison with NaN is false, so that NaN stays what it is.
    value = tirx.Select(value > upper_limit, upper_limit, value)
    value = tirx.Select(value < lower_limit, lower_limit, value)
    square = value * value
    return value * _polynomial(above, square, lanes) / _polynomial(below, square, lanes)


def _polynomial(terms: Sequence[float], value: Any, lanes: int) -> Any:
    total = tir.constant(terms[0], lanes)
    for term in terms[1:]:
        total = total * value + tir.constant(term, lanes)
    return total


LOWERED: dict[str, Callable[[Any, int, tir.Bindings], Any]] = {
    "tirx.exp": _exp,
    "tirx.sigmoid": _sigmoid,
    "tirx.tanh": lambda value, lanes, _: _rational(value, lanes, _TANH),
    "tirx.erf": lambda value, lanes, _: _rational(value, lanes, _ERF),
}
"""Functions with arithmetic of their own, by TVM's name."""

_WRITERS = {_own_name(name): write for name, write in LOWERED.items()}


def _lower(call: Any) -> Any:
    bindings = tir.Bindings()
    return bindings.around(_write_call(call, bindings))


def _write_call(call: Any, bindings: tir.Bindings) -> Any:
    """Return a call's value, with its argument's functions bound first."""

    def inner(node: Any, mutator: Any) -> Any:
        ours = str(getattr(node.op, "name", "")) in _WRITERS
        return _write_call(node, bindings) if ours else mutator.default_mutate(node)

    dtype = str(call.ty.dtype)
    lanes = int(dtype.partition("x")[2] or 1)
    argument = mutate(call.args[0], [(tvm.ir.Call, inner)])
    # Only an argument that holds functions of ours.
    if not argument.same_as(call.args[0]):
        # TVM puts the value of a variable for it where it can, and would simplify what is in it over and over.
        argument = tirx.call_llvm_intrin(dtype, "llvm.arithmetic.fence", argument)
    value = bindings.bind(dtype, argument)
    return _WRITERS[call.op.name](value, lanes, bindings)


for _name in LOWERED:
    # Without an effect TVM takes a call for one that may do anything, and neither moves nor vectorizes it.
    _like = tvm.ir.Op.get(_name)
    tvm.ir.register_op_attr(_own_name(_name), "TCallEffectKind", _like.get_attr("TCallEffectKind"))
    tvm.ir.register_op_attr(_own_name(_name), "TVectorizable", True)
    tvm.ir.register_op_attr(_own_name(_name), "llvm.FLowerIntrinsic", _lower)


def _write_cosh(call: Any) -> Any:
    """Return the hyperbolic cosine, scalar in TVM's lowering."""
    (value,) = call.args
    half = tirx.const(math.log(2), str(value.ty.dtype))
    # Halves within the exponents: the cosine is finite for a little longer than the exponential.
    return tirx.exp(value - half) + tirx.exp(tirx.const(0, str(value.ty.dtype)) - value - half)


def _write_sinh(call: Any) -> Any:
    # Exponentials would cancel out near zero.
    return tirx.tanh(call.args[0]) * _write_cosh(call)


tvm.ir.register_op_attr("tirx.cosh", "llvm.FLowerIntrinsic", _write_cosh)
tvm.ir.register_op_attr("tirx.sinh", "llvm.FLowerIntrinsic", _write_sinh)
