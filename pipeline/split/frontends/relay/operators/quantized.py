"""The qnn operators, in whole numbers as TVM computes them: fixed point, halves rounded upward by default."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.split.frontends.relay.attributes import Attributes
from pipeline.split.frontends.relay.builder import (
    BindingBuilder,
    axis,
    check_dtype,
    constant_values,
    dtype,
    fields,
    shape,
)
from pipeline.split.frontends.relay.operators.common import Converter, align_with_axis, cast
from pipeline.split.frontends.relay.operators.convolution import convolve, transpose_convolve
from pipeline.split.frontends.relay.operators.elementwise import clip, round_away_from_zero
from pipeline.split.frontends.relay.operators.products import product, transpose_matrix

op = relax.op

_FRACTION_BITS = 31


def multiplier_and_shift(factor: float) -> tuple[int, int]:
    """Return a factor as a whole number of 31 bits and the power of two that belongs to it."""
    fraction, exponent = math.frexp(factor)
    # C rounds halves away from zero; the factor is positive.
    multiplier = math.floor(fraction * 2**_FRACTION_BITS + 0.5)
    return (multiplier // 2, exponent + 1) if multiplier == 2**_FRACTION_BITS else (multiplier, exponent)


def fixed_point(  # noqa: PLR0913, PLR0917 - what belongs to the factor stays together
    builder: BindingBuilder, x: Any, multiplier: Any, shift: Any, rounding: str = "UPWARD", number: int = 0
) -> Any:
    """Return ``x * multiplier * 2**(shift - 31)`` as int32.

    Parameters
    ----------
    multiplier, shift : int or numpy.ndarray
        One for all, or one for each position along the axis `number`.
    rounding : str
        ``"UPWARD"`` rounds halves up, ``"TONEAREST"`` away from zero.
    """
    multiplier, shift = np.array(multiplier, np.int64), np.array(shift, np.int64)
    if np.any(np.abs(multiplier) >= 2**32) or np.any(np.abs(shift) > _FRACTION_BITS):
        raise ModelError(f"the multiplier {multiplier} with the shift {shift} is not supported")

    def constant(values: np.ndarray) -> Any:
        return align_with_axis(builder, builder.constant(values, "int64"), x, number)

    shift_right = _FRACTION_BITS + np.maximum(-shift, 0)
    scaled = cast(builder, x, "int64")
    if np.any(shift > 0):
        scaled = builder.emit(op.left_shift(scaled, constant(np.maximum(shift, 0))))
    scaled = builder.emit(op.multiply(scaled, constant(multiplier)))
    half = constant(np.left_shift(1, shift_right - 1))
    if rounding == "TONEAREST":
        half_of_negatives = constant(np.left_shift(1, shift_right - 1) - 1)
        negative = builder.emit(op.less(scaled, builder.constant(0, "int64")))
        half = builder.emit(op.where(negative, half_of_negatives, half))
    scaled = builder.emit(op.right_shift(builder.emit(op.add(scaled, half)), constant(shift_right)))
    return cast(builder, scaled, "int32")


def _scales(builder: BindingBuilder, x: Any, values: Any, number: int, kind: str) -> Any:
    """Return scales or zero points, one or one per channel, so that they combine with `x`."""
    if len(shape(values)) > 1:
        raise ModelError(f"expected one value, or one per channel, found the shape {shape(values)}")
    single = math.prod(shape(values)) == 1
    values = cast(builder, values, kind)
    if single:
        return builder.emit(op.reshape(values, ())) if shape(values) else values
    return align_with_axis(builder, values, x, number)


def _is_zero(zero_point: Any) -> bool:
    return not constant_values(zero_point, "a zero point").any()


def subtract_zero_point(builder: BindingBuilder, x: Any, zero_point: Any, number: int = 0) -> Any:
    """Return `x` less its zero point, as int32 unless there is nothing to subtract."""
    if _is_zero(zero_point):
        return x
    value = cast(builder, x, "int32")
    return builder.emit(op.subtract(value, _scales(builder, x, zero_point, number, "int32")))


def saturate(builder: BindingBuilder, x: Any, target: str) -> Any:
    """Return `x` in a smaller dtype; what does not fit becomes its bound."""
    if dtype(x) == target:
        return x
    limits = np.iinfo(check_dtype(target))
    return cast(builder, clip(builder, x, limits.min, limits.max), target)


def _quantize(builder: BindingBuilder, attrs: Attributes, x: Any, scale: Any, zero_point: Any) -> Any:
    number, target = axis(x, attrs.integer("axis", -1)), attrs.dtype("out_dtype", "int8")
    limits = np.iinfo(target)
    value = builder.emit(op.divide(x, _scales(builder, x, scale, number, dtype(x))))
    value = builder.emit(op.add(value, _scales(builder, x, zero_point, number, dtype(x))))
    return cast(
        builder, round_away_from_zero(builder, clip(builder, value, float(limits.min), float(limits.max))), target
    )


def _dequantize(builder: BindingBuilder, attrs: Attributes, x: Any, scale: Any, zero_point: Any) -> Any:
    number = axis(x, attrs.integer("axis", -1)) if shape(x) else 0
    target = attrs.dtype("out_dtype", "float32")
    value = cast(builder, subtract_zero_point(builder, x, zero_point, number), target)
    return builder.emit(op.multiply(value, _scales(builder, x, scale, number, target)))


def requantize(  # noqa: PLR0913, PLR0917 - two pairs of scale and zero point, as everywhere in qnn
    builder: BindingBuilder,
    x: Any,
    scale: Any,
    zero_point: Any,
    out_scale: Any,
    out_zero_point: Any,
    target: str,
    number: int = 0,
    rounding: str = "UPWARD",
    compute: str = "int64",
) -> Any:
    """Return whole numbers in another scale, computed in whole numbers or in those of the dtype `compute`."""
    factors = constant_values(scale, "a scale").astype(np.float64) / float(_single_scale(out_scale))
    x = subtract_zero_point(builder, x, zero_point, number)
    if compute.startswith("float"):
        x = _rescale_by_float(builder, x, factors.astype(compute), out_zero_point, number, rounding)
    else:
        x = _rescale_by_fixed_point(builder, x, factors, out_zero_point, number, rounding)
    return saturate(builder, x, target)


def _rescale_by_fixed_point(  # noqa: PLR0913, PLR0917 - all of a scale
    builder: BindingBuilder, x: Any, factors: np.ndarray, zero_point: Any, number: int, rounding: str
) -> Any:
    """Multiply in 64 bits, as TVM does by default, so that results agree to the last bit."""
    if np.any(factors <= 0) or not np.all(np.isfinite(factors)):
        raise ModelError("scales must be positive")
    x = cast(builder, x, "int32")
    if np.any(factors != 1):
        pairs = np.array([multiplier_and_shift(float(each)) for each in factors.reshape(-1)], np.int64)
        multiplier, shift = pairs[0] if len(pairs) == 1 else pairs.T
        x = fixed_point(builder, x, multiplier, shift, rounding, number)
    return _add_zero_point(builder, x, zero_point, number)


def _rescale_by_float(  # noqa: PLR0913, PLR0917 - all of a scale
    builder: BindingBuilder, x: Any, factors: np.ndarray, zero_point: Any, number: int, rounding: str
) -> Any:
    """Multiply in the dtype of the factors; the zero point is added before the only rounding, as TVM does."""
    compute = str(factors.dtype)
    value = cast(builder, x, compute)
    value = builder.emit(op.multiply(value, _scales(builder, x, builder.constant(factors), number, compute)))
    value = _add_zero_point(builder, value, zero_point, number)
    if rounding == "UPWARD":
        value = builder.emit(op.floor(builder.emit(op.add(value, builder.constant(0.5, compute)))))
    else:
        value = round_away_from_zero(builder, value)
    return cast(builder, value, "int32")


def _add_zero_point(builder: BindingBuilder, x: Any, zero_point: Any, number: int) -> Any:
    if _is_zero(zero_point):
        return x
    return builder.emit(op.add(x, _scales(builder, x, zero_point, number, dtype(x))))


def _single_scale(constant: Any) -> Any:
    values = constant_values(constant, "a scale").reshape(-1)
    if len(values) != 1:
        raise ModelError(f"expected one scale, found {len(values)}")
    return values[0]


def _rounding(attrs: Attributes) -> str:
    kind = attrs.choice("rounding", "None", "UPWARD", "TONEAREST")
    return "UPWARD" if kind == "None" else kind


def _compute_dtype(attrs: Attributes) -> str:
    return attrs.choice("compute_dtype", "None", "int64", "float32", "float64")


def _requantize(builder: BindingBuilder, attrs: Attributes, x: Any, *scales: Any) -> Any:
    if len(scales) != 4:
        raise ModelError(f"expected 2 scales and 2 zero points, found {len(scales)} operands")
    number, target = axis(x, attrs.integer("axis", -1)), attrs.dtype("out_dtype", "int8")
    return requantize(builder, x, *scales, target, number, _rounding(attrs), _compute_dtype(attrs))


def _convert_product(compute: Callable[..., Any]) -> Converter:
    """Convert a product of two quantized tensors; the scales only matter to what follows."""

    def convert(  # noqa: PLR0913, PLR0917 - Relay's operands
        builder: BindingBuilder, attrs: Attributes, x: Any, weight: Any, zero: Any, weight_zero: Any, *scales: Any
    ) -> Any:
        if len(scales) != 2:
            raise ModelError(f"expected 2 scales, found {len(scales)}")
        attrs.dtype("out_dtype", "int32")
        x, weight = (
            subtract_zero_point(builder, x, zero),
            _subtract_weight_zero_point(builder, attrs, weight, weight_zero),
        )
        if dtype(x) != dtype(weight):
            x, weight = cast(builder, x, "int32"), cast(builder, weight, "int32")
        return compute(builder, attrs, x, weight)

    return convert


def _subtract_weight_zero_point(builder: BindingBuilder, attrs: Attributes, weight: Any, zero: Any) -> Any:
    return subtract_zero_point(builder, weight, zero, output_channel_axis(attrs))


def output_channel_axis(attrs: Attributes) -> int:
    """Return the axis of a product's weights along which the channels of its results lie."""
    layout = attrs.get("kernel_layout")
    return layout.index("O") if isinstance(layout, str) and "O" in layout else 0


def _dense(builder: BindingBuilder, attrs: Attributes, x: Any, weight: Any) -> Any:
    return product(builder, attrs, x, transpose_matrix(builder, weight), "int32")


def _batch_matmul(builder: BindingBuilder, attrs: Attributes, x: Any, y: Any) -> Any:
    if attrs.flag("transpose_a") or not attrs.flag("transpose_b", True):
        raise ModelError("only a product with the second operand turned is supported")
    return product(builder, attrs, x, transpose_matrix(builder, y), "int32")


def _conv2d(builder: BindingBuilder, attrs: Attributes, x: Any, weight: Any) -> Any:
    return convolve(builder, attrs, x, weight, 2, "int32")


def _conv2d_transpose(builder: BindingBuilder, attrs: Attributes, x: Any, weight: Any) -> Any:
    return transpose_convolve(builder, attrs, x, weight, 2, "int32")


def _convert_sum(operator: Callable[..., Any], back: Callable[..., Any]) -> Converter:
    """Convert a sum or a difference: both operands in the scale of the result, which has one zero point too many."""

    def convert(builder: BindingBuilder, attrs: Attributes, x: Any, y: Any, *scales: Any) -> Any:
        if len(scales) != 6:
            raise ModelError(f"expected 3 scales and 3 zero points, found {len(scales)} operands")
        out = scales[4:]
        terms = [
            requantize(
                builder,
                operand,
                *quantization,
                *out,
                "int32",
                axis(operand, attrs.integer(name, -1)) if shape(operand) else 0,
            )
            for operand, quantization, name in ((x, scales[:2], "lhs_axis"), (y, scales[2:4], "rhs_axis"))
        ]
        total = builder.emit(operator(*terms))
        if not _is_zero(out[1]):
            total = builder.emit(back(total, _scales(builder, total, out[1], 0, "int32")))
        return saturate(builder, total, dtype(x))

    return convert


def _multiply(builder: BindingBuilder, attrs: Attributes, x: Any, y: Any, *scales: Any) -> Any:
    if len(scales) != 6:
        raise ModelError(f"expected 3 scales and 3 zero points, found {len(scales)} operands")
    attrs.get("lhs_axis"), attrs.get("rhs_axis")
    factors = [
        cast(builder, subtract_zero_point(builder, operand, zero), "int32")
        for operand, zero in ((x, scales[1]), (y, scales[3]))
    ]
    scale = builder.constant(np.float32(_single_scale(scales[0])) * np.float32(_single_scale(scales[2])))
    zero = builder.constant(0, "int32")
    return requantize(builder, builder.emit(op.multiply(*factors)), scale, zero, *scales[4:], dtype(x))


def _concatenate(  # noqa: PLR0913, PLR0917 - Relay's operands
    builder: BindingBuilder, attrs: Attributes, data: Any, scales: Any, zeros: Any, out_scale: Any, out_zero: Any
) -> Any:
    parts = fields(data)
    number = axis(parts[0], attrs.integer("axis", 0))
    rescaled_parts = [
        requantize(builder, part, scale, zero, out_scale, out_zero, dtype(part))
        for part, scale, zero in zip(parts, fields(scales), fields(zeros), strict=True)
    ]
    return builder.emit(op.concat(rescaled_parts, axis=number))


def _fixed_point_multiply(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    return fixed_point(builder, x, attrs.integer("multiplier"), attrs.integer("shift"))


TABLE: dict[str, Converter] = {
    "fixed_point_multiply": _fixed_point_multiply,
    "qnn.quantize": _quantize,
    "qnn.dequantize": _dequantize,
    "qnn.requantize": _requantize,
    "qnn.conv2d": _convert_product(_conv2d),
    "qnn.conv2d_transpose": _convert_product(_conv2d_transpose),
    "qnn.dense": _convert_product(_dense),
    "qnn.batch_matmul": _convert_product(_batch_matmul),
    "qnn.add": _convert_sum(op.add, op.subtract),
    "qnn.subtract": _convert_sum(op.subtract, op.add),
    "qnn.mul": _multiply,
    "qnn.concatenate": _concatenate,
}
