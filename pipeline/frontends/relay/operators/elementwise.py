"""Element-wise operators, activations and comparisons."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, axis, constant_values, dtype, shape
from pipeline.frontends.relay.operators.common import Converter, align_with_axis, binary, cast, unary

op = relax.op

_SAME = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "cos", "cosh", "erf",
    "exp", "floor", "isfinite", "isinf", "isnan", "log", "logical_not", "negative", "rsqrt", "sigmoid",
    "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
_BINARY = (
    "add", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "logical_and",
    "logical_or", "logical_xor", "maximum", "minimum", "multiply", "right_shift", "subtract",
)  # fmt: skip
_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def round_away_from_zero(builder: BindingBuilder, x: Any) -> Any:
    """Round halves away from zero as Relay, not to even."""
    # trunc(x + trunc(2 * frac(x))): x + 0.5 would round up 0.49999997 in 32 bits.
    integral = builder.emit(op.trunc(x))
    fraction = builder.emit(op.subtract(x, integral))
    return builder.emit(op.add(integral, builder.emit(op.trunc(builder.emit(op.add(fraction, fraction))))))


def clip(builder: BindingBuilder, x: Any, low: float, high: float) -> Any:
    """Return `x` between two bounds, cast to its dtype as in C."""
    if dtype(x).startswith(("int", "uint")):
        # Relay's bounds are doubles, and 1e9 or infinity cast to int8 is undefined in C.
        limits = np.iinfo(dtype(x))
        low, high = (int(max(min(bound, limits.max), limits.min)) for bound in (low, high))
    return builder.emit(op.clip(x, relax.prim_value(low), relax.prim_value(high)))


def _round(builder: BindingBuilder, _: Attributes, x: Any) -> Any:
    return round_away_from_zero(builder, x) if dtype(x).startswith("float") else x


def _logarithm(base: float, builder: BindingBuilder, _: Attributes, x: Any) -> Any:
    # Relax has the natural logarithm only.
    scale = builder.constant(1 / math.log(base), dtype(x))
    return builder.emit(op.multiply(builder.emit(op.log(x)), scale))


def _divide(builder: BindingBuilder, _: Attributes, x: Any, y: Any) -> Any:
    if not dtype(y).startswith("float"):
        _refuse_zeros(y)
    return builder.emit(op.divide(x, y))


def _truncated_division(builder: BindingBuilder, attrs: Attributes, x: Any, y: Any) -> Any:
    quotient = _divide(builder, attrs, x, y)
    # Division of whole numbers truncates already, as in C.
    return builder.emit(op.trunc(quotient)) if dtype(x).startswith("float") else quotient


def _remainder(operator: Callable[..., Any], builder: BindingBuilder, _: Attributes, x: Any, y: Any) -> Any:
    if not dtype(y).startswith("float"):
        _refuse_zeros(y)
    return builder.emit(operator(x, y))


def _refuse_zeros(divisor: Any) -> None:
    """Refuse a constant zero divisor: folding would end the process."""
    try:
        # A divisor that is computed is the model's own matter; only folding happens in this process.
        values = constant_values(divisor, "")
    except ModelError:
        return
    if not values.all():
        raise ModelError("whole numbers are divided by zero")


def _compare(operator: Callable[..., Any], builder: BindingBuilder, _: Attributes, x: Any, y: Any) -> Any:
    """Convert by small integers: TVM has no code to compare booleans."""
    x, y = (cast(builder, operand, "int8") if dtype(operand) == "bool" else operand for operand in (x, y))
    return builder.emit(operator(x, y))


def _power(builder: BindingBuilder, _: Attributes, x: Any, y: Any) -> Any:
    if not dtype(x).startswith("float"):
        raise ModelError("powers of whole numbers are not supported; cast them to float32 before")
    return builder.emit(op.power(x, y))


def _clip(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    return clip(builder, x, attrs.number("a_min"), attrs.number("a_max"))


def _cast(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    shape(x)
    return cast(builder, x, attrs.dtype())


def _cast_like(builder: BindingBuilder, _: Attributes, x: Any, like: Any) -> Any:
    return cast(builder, x, dtype(like))


def _where(builder: BindingBuilder, _: Attributes, condition: Any, x: Any, y: Any) -> Any:
    shape(condition), shape(x), shape(y)
    # Relay takes any dtype for a condition, Relax bool only.
    return builder.emit(op.where(cast(builder, condition, "bool"), x, y))


def _leaky_relu(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    return builder.emit(op.nn.leakyrelu(x, attrs.number("alpha", 0.25)))


def _prelu(builder: BindingBuilder, attrs: Attributes, x: Any, slopes: Any) -> Any:
    number = axis(x, attrs.integer("axis", 1))
    if shape(slopes) != (shape(x)[number],):
        raise ModelError(f"expected {shape(x)[number]} slopes, found the shape {shape(slopes)}")
    # As an operator, for which there is a kernel.
    return builder.emit(op.nn.prelu(x, slopes, axis=number))


def _bias_add(builder: BindingBuilder, attrs: Attributes, x: Any, bias: Any) -> Any:
    return builder.emit(op.add(x, align_with_axis(builder, bias, x, attrs.integer("axis", 1))))


def _identity(_: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    # Read so that they are not refused: they only matter to passes of the compiler.
    for name in ("scope", "compiler"):
        attrs.get(name)
    return x


def _dropout(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    """Return the input and a mask of ones: only training drops."""
    attrs.number("rate", 0.5)
    return x, builder.emit(op.ones(shape(x), dtype(x)))


TABLE: dict[str, Converter] = {
    **{name: functools.partial(unary, getattr(op, name)) for name in _SAME},
    **{name: functools.partial(binary, getattr(op, name)) for name in _BINARY},
    **{name: functools.partial(_compare, getattr(op, name)) for name in _COMPARISONS},
    "divide": _divide,
    "trunc_divide": _truncated_division,
    "floor_divide": functools.partial(_remainder, op.floor_divide),
    "mod": functools.partial(_remainder, op.mod),
    "trunc_mod": functools.partial(_remainder, op.mod),
    "floor_mod": functools.partial(_remainder, op.floor_mod),
    "power": _power,
    "fast_exp": functools.partial(unary, op.exp),
    "fast_erf": functools.partial(unary, op.erf),
    "fast_tanh": functools.partial(unary, op.tanh),
    "log2": functools.partial(_logarithm, 2),
    "log10": functools.partial(_logarithm, 10),
    "round": _round,
    "clip": _clip,
    "cast": _cast,
    "cast_like": _cast_like,
    "where": _where,
    "nn.relu": functools.partial(unary, op.nn.relu),
    "nn.leaky_relu": _leaky_relu,
    "nn.prelu": _prelu,
    "nn.bias_add": _bias_add,
    "nn.dropout": _dropout,
    "copy": _identity,
    "annotation.stop_fusion": _identity,
    "annotation.cast_hint": _identity,
    "annotation.checkpoint": _identity,
    "annotation.compiler_begin": _identity,
    "annotation.compiler_end": _identity,
}
