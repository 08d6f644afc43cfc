"""The qnn operators, in whole numbers as TVM computes them: fixed point, halves rounded upward by default."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.split.frontends.relay.attributes import Attributes
from pipeline.split.frontends.relay.builder import Builder, axis, check_dtype, dtype, fields, known, shape
from pipeline.split.frontends.relay.operators.common import Converter, along, cast
from pipeline.split.frontends.relay.operators.convolution import convolve, transpose_convolve
from pipeline.split.frontends.relay.operators.elementwise import clipped, rounded
from pipeline.split.frontends.relay.operators.products import product, turned

op = relax.op

_FRACTION_BITS = 31


def multiplier_and_shift(factor: float) -> tuple[int, int]:
    """Return a factor as a whole number of 31 bits and the power of two that belongs to it."""
    fraction, exponent = math.frexp(factor)
    # C rounds halves away from zero; the factor is positive.
    multiplier = math.floor(fraction * 2**_FRACTION_BITS + 0.5)
    return (multiplier // 2, exponent + 1) if multiplier == 2**_FRACTION_BITS else (multiplier, exponent)


def fixed_point(  # noqa: PLR0913, PLR0917 - what belongs to the factor stays together
    builder: Builder, x: Any, multiplier: Any, shift: Any, rounding: str = "UPWARD", number: int = 0
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
        return along(builder, builder.constant(values, "int64"), x, number)

    right = _FRACTION_BITS + np.maximum(-shift, 0)
    wide = cast(builder, x, "int64")
    if np.any(shift > 0):
        wide = builder.emit(op.left_shift(wide, constant(np.maximum(shift, 0))))
    wide = builder.emit(op.multiply(wide, constant(multiplier)))
    half = constant(np.left_shift(1, right - 1))
    if rounding == "TONEAREST":
        below = constant(np.left_shift(1, right - 1) - 1)
        negative = builder.emit(op.less(wide, builder.constant(0, "int64")))
        half = builder.emit(op.where(negative, below, half))
    wide = builder.emit(op.right_shift(builder.emit(op.add(wide, half)), constant(right)))
    return cast(builder, wide, "int32")


def _scales(builder: Builder, x: Any, values: Any, number: int, kind: str) -> Any:
    """Return scales or zero points, one or one per channel, so that they combine with `x`."""
    if len(shape(values)) > 1:
        raise ModelError(f"expected one value, or one per channel, found the shape {shape(values)}")
    single = math.prod(shape(values)) == 1
    values = cast(builder, values, kind)
    if single:
        return builder.emit(op.reshape(values, ())) if shape(values) else values
    return along(builder, values, x, number)


def _is_zero(zero_point: Any) -> bool:
    return not known(zero_point, "a zero point").any()


def centred(builder: Builder, x: Any, zero_point: Any, number: int = 0) -> Any:
    """Return `x` less its zero point, as int32 unless there is nothing to subtract."""
    if _is_zero(zero_point):
        return x
    wide = cast(builder, x, "int32")
    return builder.emit(op.subtract(wide, _scales(builder, x, zero_point, number, "int32")))


def narrowed(builder: Builder, x: Any, target: str) -> Any:
    """Return `x` in a smaller dtype; what does not fit becomes its bound."""
    if dtype(x) == target:
        return x
    limits = np.iinfo(check_dtype(target))
    return cast(builder, clipped(builder, x, limits.min, limits.max), target)


def _quantize(builder: Builder, attrs: Attributes, x: Any, scale: Any, zero_point: Any) -> Any:
    number, target = axis(x, attrs.integer("axis", -1)), attrs.dtype("out_dtype", "int8")
    limits = np.iinfo(target)
    value = builder.emit(op.divide(x, _scales(builder, x, scale, number, dtype(x))))
    value = builder.emit(op.add(value, _scales(builder, x, zero_point, number, dtype(x))))
    return cast(builder, rounded(builder, clipped(builder, value, float(limits.min), float(limits.max))), target)


def _dequantize(builder: Builder, attrs: Attributes, x: Any, scale: Any, zero_point: Any) -> Any:
    number = axis(x, attrs.integer("axis", -1)) if shape(x) else 0
    target = attrs.dtype("out_dtype", "float32")
    value = cast(builder, centred(builder, x, zero_point, number), target)
    return builder.emit(op.multiply(value, _scales(builder, x, scale, number, target)))


def requantized(  # noqa: PLR0913, PLR0917 - two pairs of scale and zero point, as everywhere in qnn
    builder: Builder,
    x: Any,
    scale: Any,
    zero_point: Any,
    out_scale: Any,
    out_zero_point: Any,
    target: str,
    number: int = 0,
    rounding: str = "UPWARD",
) -> Any:
    """Return whole numbers in another scale."""
    x = cast(builder, centred(builder, x, zero_point, number), "int32")
    factors = known(scale, "a scale").astype(np.float64) / float(_one(out_scale))
    if np.any(factors <= 0) or not np.all(np.isfinite(factors)):
        raise ModelError("scales must be positive")
    if np.any(factors != 1):
        pairs = np.array([multiplier_and_shift(float(each)) for each in factors.reshape(-1)], np.int64)
        multiplier, shift = pairs[0] if len(pairs) == 1 else pairs.T
        x = fixed_point(builder, x, multiplier, shift, rounding, number)
    if not _is_zero(out_zero_point):
        x = builder.emit(op.add(x, _scales(builder, x, out_zero_point, number, "int32")))
    return narrowed(builder, x, target)


def _one(constant: Any) -> Any:
    values = known(constant, "a scale").reshape(-1)
    if len(values) != 1:
        raise ModelError(f"expected one scale, found {len(values)}")
    return values[0]


def _rounding(attrs: Attributes) -> str:
    kind = attrs.choice("rounding", "None", "UPWARD", "TONEAREST")
    if attrs.choice("compute_dtype", "None", "int64", "float32", "float64").startswith("float"):
        raise ModelError("requantization in floating point is not supported; leave compute_dtype out")
    return "UPWARD" if kind == "None" else kind


def _requantize(builder: Builder, attrs: Attributes, x: Any, *scales: Any) -> Any:
    if len(scales) != 4:
        raise ModelError(f"expected 2 scales and 2 zero points, found {len(scales)} operands")
    number, target = axis(x, attrs.integer("axis", -1)), attrs.dtype("out_dtype", "int8")
    return requantized(builder, x, *scales, target, number, _rounding(attrs))


def _weighted(compute: Callable[..., Any]) -> Converter:
    """Convert a product of two quantized tensors; the scales only matter to what follows."""

    def convert(  # noqa: PLR0913, PLR0917 - Relay's operands
        builder: Builder, attrs: Attributes, x: Any, weight: Any, zero: Any, weight_zero: Any, *scales: Any
    ) -> Any:
        if len(scales) != 2:
            raise ModelError(f"expected 2 scales, found {len(scales)}")
        attrs.dtype("out_dtype", "int32")
        x, weight = centred(builder, x, zero), _centred_weight(builder, attrs, weight, weight_zero)
        if dtype(x) != dtype(weight):
            x, weight = cast(builder, x, "int32"), cast(builder, weight, "int32")
        return compute(builder, attrs, x, weight)

    return convert


def _centred_weight(builder: Builder, attrs: Attributes, weight: Any, zero: Any) -> Any:
    return centred(builder, weight, zero, made_by(attrs))


def made_by(attrs: Attributes) -> int:
    """Return the axis of a product's weights along which the channels of its results lie."""
    layout = attrs.get("kernel_layout")
    return layout.index("O") if isinstance(layout, str) and "O" in layout else 0


def _dense(builder: Builder, attrs: Attributes, x: Any, weight: Any) -> Any:
    return product(builder, attrs, x, turned(builder, weight), "int32")


def _batch_matmul(builder: Builder, attrs: Attributes, x: Any, y: Any) -> Any:
    if attrs.flag("transpose_a") or not attrs.flag("transpose_b", True):
        raise ModelError("only a product with the second operand turned is supported")
    return product(builder, attrs, x, turned(builder, y), "int32")


def _conv2d(builder: Builder, attrs: Attributes, x: Any, weight: Any) -> Any:
    return convolve(builder, attrs, x, weight, 2, "int32")


def _conv2d_transpose(builder: Builder, attrs: Attributes, x: Any, weight: Any) -> Any:
    return transpose_convolve(builder, attrs, x, weight, 2, "int32")


def _sum(operator: Callable[..., Any], back: Callable[..., Any]) -> Converter:
    """Convert a sum or a difference: both operands in the scale of the result, which has one zero point too many."""

    def convert(builder: Builder, attrs: Attributes, x: Any, y: Any, *scales: Any) -> Any:
        if len(scales) != 6:
            raise ModelError(f"expected 3 scales and 3 zero points, found {len(scales)} operands")
        out = scales[4:]
        sides = [
            requantized(builder, side, *own, *out, "int32", axis(side, attrs.integer(name, -1)) if shape(side) else 0)
            for side, own, name in ((x, scales[:2], "lhs_axis"), (y, scales[2:4], "rhs_axis"))
        ]
        total = builder.emit(operator(*sides))
        if not _is_zero(out[1]):
            total = builder.emit(back(total, _scales(builder, total, out[1], 0, "int32")))
        return narrowed(builder, total, dtype(x))

    return convert


def _multiply(builder: Builder, attrs: Attributes, x: Any, y: Any, *scales: Any) -> Any:
    if len(scales) != 6:
        raise ModelError(f"expected 3 scales and 3 zero points, found {len(scales)} operands")
    attrs.get("lhs_axis"), attrs.get("rhs_axis")
    wide = [cast(builder, centred(builder, side, zero), "int32") for side, zero in ((x, scales[1]), (y, scales[3]))]
    scale = builder.constant(np.float32(_one(scales[0])) * np.float32(_one(scales[2])))
    zero = builder.constant(0, "int32")
    return requantized(builder, builder.emit(op.multiply(*wide)), scale, zero, *scales[4:], dtype(x))


def _concatenate(  # noqa: PLR0913, PLR0917 - Relay's operands
    builder: Builder, attrs: Attributes, data: Any, scales: Any, zeros: Any, out_scale: Any, out_zero: Any
) -> Any:
    parts = fields(data)
    number = axis(parts[0], attrs.integer("axis", 0))
    joined = [
        requantized(builder, part, scale, zero, out_scale, out_zero, dtype(part))
        for part, scale, zero in zip(parts, fields(scales), fields(zeros), strict=True)
    ]
    return builder.emit(op.concat(joined, axis=number))


TABLE: dict[str, Converter] = {
    "qnn.quantize": _quantize,
    "qnn.dequantize": _dequantize,
    "qnn.requantize": _requantize,
    "qnn.conv2d": _weighted(_conv2d),
    "qnn.conv2d_transpose": _weighted(_conv2d_transpose),
    "qnn.dense": _weighted(_dense),
    "qnn.batch_matmul": _weighted(_batch_matmul),
    "qnn.add": _sum(op.add, op.subtract),
    "qnn.subtract": _sum(op.subtract, op.add),
    "qnn.mul": _multiply,
    "qnn.concatenate": _concatenate,
}
