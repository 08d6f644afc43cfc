"""The qnn operators in integers, exactly as TVM's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, axis, dtype
from pipeline.frontends.relay.operators.common import Converter, cast
from pipeline.frontends.relay.operators.elementwise import clip, round_away_from_zero
from pipeline.frontends.relay.operators.products import product, transpose_matrix
from pipeline.frontends.relay.operators.qnn_operands import (
    PRODUCTS,
    check_product_scales,
    output_channel_axis,
    pair_scales,
    quantization_axis,
    split_parts,
    split_terms,
)
from pipeline.frontends.relay.operators.rescaling import (
    align_scales,
    fixed_point,
    is_zero,
    requantize,
    saturate,
    single_scale,
    subtract_zero_point,
)
from pipeline.model.requantization import Multiplier

op = relax.op


def _quantize(builder: BindingBuilder, attrs: Attributes, x: Any, scale: Any, zero_point: Any) -> Any:
    number, target = axis(x, attrs.integer("axis", -1)), attrs.dtype("out_dtype", "int8")
    limits = np.iinfo(target)
    value = builder.emit(op.divide(x, align_scales(builder, x, scale, number, dtype(x))))
    value = builder.emit(op.add(value, align_scales(builder, x, zero_point, number, dtype(x))))
    return cast(
        builder, round_away_from_zero(builder, clip(builder, value, float(limits.min), float(limits.max))), target
    )


def _dequantize(builder: BindingBuilder, attrs: Attributes, x: Any, scale: Any, zero_point: Any) -> Any:
    number = quantization_axis(attrs, x)
    target = attrs.dtype("out_dtype", "float32")
    value = cast(builder, subtract_zero_point(builder, x, zero_point, number), target)
    return builder.emit(op.multiply(value, align_scales(builder, x, scale, number, target)))


def _rounding(attrs: Attributes) -> str:
    kind = attrs.choice("rounding", "None", "UPWARD", "TONEAREST")
    # TVM's requantize configuration has UPWARD as its default.
    return "UPWARD" if kind == "None" else kind


def _requantize(builder: BindingBuilder, attrs: Attributes, x: Any, *scales: Any) -> Any:
    (scale, zero), (out_scale, out_zero) = pair_scales(scales, 2)
    number, target = axis(x, attrs.integer("axis", -1)), attrs.dtype("out_dtype", "int8")
    rounding, compute = _rounding(attrs), attrs.choice("compute_dtype", "None", "int64", "float32", "float64")
    return requantize(builder, x, scale, zero, out_scale, out_zero, target, number, rounding, compute)


def _convert_product(compute: Callable[..., Any]) -> Converter:
    """Convert a quantised product; scales matter only afterwards."""

    def convert(  # noqa: PLR0913, PLR0917 - Relay's operands
        builder: BindingBuilder, attrs: Attributes, x: Any, weight: Any, zero: Any, weight_zero: Any, *scales: Any
    ) -> Any:
        check_product_scales(scales)
        attrs.dtype("out_dtype", "int32")
        x = subtract_zero_point(builder, x, zero)
        weight = subtract_zero_point(builder, weight, weight_zero, output_channel_axis(attrs))
        # A zero point of one operand widens it; Relax multiplies equal dtypes only.
        if dtype(x) != dtype(weight):
            x, weight = cast(builder, x, "int32"), cast(builder, weight, "int32")
        return compute(builder, attrs, x, weight)

    return convert


def _batch_matmul(builder: BindingBuilder, attrs: Attributes, x: Any, y: Any) -> Any:
    # TVM's qnn.batch_matmul multiplies by the transposed second operand, and knows nothing else.
    if attrs.flag("transpose_a") or not attrs.flag("transpose_b", True):
        raise ModelError("only a product with the second operand turned is supported")
    return product(builder, attrs, x, transpose_matrix(builder, y), "int32")


def _convert_sum(operator: Callable[..., Any], back: Callable[..., Any]) -> Converter:
    """Convert a sum or difference in the result's scale. The sum has one zero point too many."""

    def convert(builder: BindingBuilder, attrs: Attributes, x: Any, y: Any, *scales: Any) -> Any:
        *_, (out_scale, out_zero) = pair_scales(scales, 3)
        terms = [
            requantize(builder, term, scale, zero, out_scale, out_zero, "int32", number)
            for term, scale, zero, number in split_terms(attrs, x, y, scales)
        ]
        # Both terms hold the zero point of the result: a sum has it twice, a difference not at all.
        total = builder.emit(operator(*terms))
        if not is_zero(out_zero):
            total = builder.emit(back(total, align_scales(builder, total, out_zero, 0, "int32")))
        return saturate(builder, total, dtype(x))

    return convert


def _multiply(builder: BindingBuilder, attrs: Attributes, x: Any, y: Any, *scales: Any) -> Any:
    (x_scale, x_zero), (y_scale, y_zero), (out_scale, out_zero) = pair_scales(scales, 3)
    # Read and ignored: the product of two scales is one number.
    attrs.get("lhs_axis"), attrs.get("rhs_axis")
    factors = [
        cast(builder, subtract_zero_point(builder, operand, zero), "int32")
        for operand, zero in ((x, x_zero), (y, y_zero))
    ]
    # In 32 bits as in TVM, which multiplies the constants themselves.
    scale = builder.constant(np.float32(single_scale(x_scale)) * np.float32(single_scale(y_scale)))
    zero = builder.constant(0, "int32")
    return requantize(builder, builder.emit(op.multiply(*factors)), scale, zero, out_scale, out_zero, dtype(x))


def _concatenate(  # noqa: PLR0913, PLR0917 - Relay's operands
    builder: BindingBuilder, attrs: Attributes, data: Any, scales: Any, zeros: Any, out_scale: Any, out_zero: Any
) -> Any:
    parts = split_parts(data, scales, zeros)
    number = axis(parts[0][0], attrs.integer("axis", 0))
    rescaled_parts = [
        requantize(builder, part, scale, zero, out_scale, out_zero, dtype(part)) for part, scale, zero in parts
    ]
    return builder.emit(op.concat(rescaled_parts, axis=number))


def _fixed_point_multiply(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    numbers = (np.array([attrs.integer(name)], np.int64) for name in ("multiplier", "shift"))
    return fixed_point(builder, x, Multiplier(*numbers))


TABLE: dict[str, Converter] = {
    "fixed_point_multiply": _fixed_point_multiply,
    "qnn.quantize": _quantize,
    "qnn.dequantize": _dequantize,
    "qnn.requantize": _requantize,
    **{name: _convert_product(compute) for name, compute in PRODUCTS.items()},
    "qnn.batch_matmul": _convert_product(_batch_matmul),
    "qnn.add": _convert_sum(op.add, op.subtract),
    "qnn.subtract": _convert_sum(op.subtract, op.add),
    "qnn.mul": _multiply,
    "qnn.concatenate": _concatenate,
}
