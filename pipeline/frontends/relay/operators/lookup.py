"""8-bit functions as tables, and quantised activations and poolings."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, axis, constant_values, dtype
from pipeline.frontends.relay.operators import elementwise, pooling
from pipeline.frontends.relay.operators.common import Converter, cast, reshape
from pipeline.frontends.relay.operators.rescaling import (
    fixed_point,
    multiplier_of,
    requantize,
    saturate,
    subtract_zero_point,
)

op = relax.op

_BYTES = ("int8", "uint8")

_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "abs": np.abs,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "exp": np.exp,
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "log": np.log,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}


def _single(value: Any, description: str) -> float:
    values = constant_values(value, description).reshape(-1)
    if len(values) != 1:
        raise ModelError(f"expected one value for {description}, found {len(values)}")
    return float(values[0])


def _table(function: Callable[[np.ndarray], np.ndarray]) -> Converter:
    """Convert to a table of a function's 256 values, as TVM."""

    def convert(  # noqa: PLR0913, PLR0917 - Relay's operands
        builder: BindingBuilder, attrs: Attributes, x: Any, scale: Any, zero: Any, out_scale: Any, out_zero: Any
    ) -> Any:
        # Read and ignored: scales of these operators are single numbers.
        attrs.get("axis")
        if dtype(x) not in _BYTES:
            raise ModelError(f"expected int8 or uint8, found {dtype(x)}")
        limits = np.iinfo(dtype(x))
        # 256 values at most, so that the function itself runs here and no device needs it.
        values = np.arange(limits.min, limits.max + 1)
        with np.errstate(all="ignore"):  # What the function is not defined for is not looked up either.
            outputs = function((values - _single(zero, "a zero point")) * _single(scale, "a scale"))
            outputs = outputs / _single(out_scale, "a scale") + _single(out_zero, "a zero point")
            outputs = np.clip(np.nan_to_num(outputs, nan=limits.min), limits.min, limits.max)
        # Halves away from zero, as where a program quantizes.
        table = builder.constant(np.trunc(outputs + np.copysign(0.5, outputs)), dtype(x))
        index = builder.emit(op.subtract(cast(builder, x, "int32"), builder.constant(limits.min, "int32")))
        return builder.emit(op.take(table, index, 0))

    return convert


def _leaky_relu(  # noqa: PLR0913, PLR0917 - Relay's operands
    builder: BindingBuilder, attrs: Attributes, x: Any, scale: Any, zero: Any, out_scale: Any, out_zero: Any
) -> Any:
    """Convert to integers in the result's scale, negative ones multiplied."""
    alpha = attrs.number("alpha", 0.25)
    # Both alpha and 1 - alpha become factors in fixed point, which are positive.
    if not 0 <= alpha <= 1:
        raise ModelError(f"alpha={alpha} is not supported; it must be between 0 and 1")
    zero_point = constant_values(zero, "a zero point")
    scaled_value = requantize(builder, x, scale, zero, out_scale, out_zero, "int32")
    scaled_negatives = fixed_point(builder, scaled_value, multiplier_of(np.array(alpha)))
    centre = reshape(builder, cast(builder, out_zero, "int32"), (1,))
    centre_share = fixed_point(builder, centre, multiplier_of(np.array(1 - alpha)))
    negative = builder.emit(op.less(cast(builder, x, "int32"), builder.constant(zero_point.reshape(()), "int32")))
    result = builder.emit(op.where(negative, builder.emit(op.add(scaled_negatives, centre_share)), scaled_value))
    return saturate(builder, result, dtype(x))


def _avg_pool2d(  # noqa: PLR0913, PLR0917 - Relay's operands
    builder: BindingBuilder, attrs: Attributes, x: Any, scale: Any, zero: Any, out_scale: Any, out_zero: Any
) -> Any:
    """Convert to an integer average less the zero point. Padding counts as the zero point."""
    differences = cast(builder, subtract_zero_point(builder, x, zero), "int32")
    average = pooling.TABLE["nn.avg_pool2d"](builder, attrs, differences)
    # TVM computes an average of 32 bits in 64, whatever its type says.
    average = builder.emit(op.astype(average, "int64"))
    # Zero points were subtracted before, so that padding with zeros is padding with them.
    zero_of_sums = builder.constant(0, "int32")
    return requantize(builder, average, scale, zero_of_sums, out_scale, out_zero, dtype(x))


def _softmax(  # noqa: PLR0913, PLR0917 - Relay's operands
    builder: BindingBuilder, attrs: Attributes, x: Any, scale: Any, zero: Any, out_scale: Any, out_zero: Any
) -> Any:
    """Convert by real numbers. TVM's whole ones approximate these to a step of the result."""
    number = axis(x, attrs.integer("axis", -1))
    value = cast(builder, subtract_zero_point(builder, x, zero), "float32")
    value = builder.emit(op.multiply(value, builder.constant(_single(scale, "a scale"), "float32")))
    value = builder.emit(op.nn.softmax(value, number))
    value = builder.emit(op.divide(value, builder.constant(_single(out_scale, "a scale"), "float32")))
    value = builder.emit(op.add(value, builder.constant(_single(out_zero, "a zero point"), "float32")))
    limits = np.iinfo(dtype(x))
    value = elementwise.clip(builder, value, float(limits.min), float(limits.max))
    return cast(builder, elementwise.round_away_from_zero(builder, value), dtype(x))


TABLE: dict[str, Converter] = {
    **{f"qnn.{name}": _table(function) for name, function in _FUNCTIONS.items()},
    "qnn.avg_pool2d": _avg_pool2d,
    "qnn.leaky_relu": _leaky_relu,
    "qnn.softmax": _softmax,
}
