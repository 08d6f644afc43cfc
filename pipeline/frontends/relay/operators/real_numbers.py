"""The qnn operators in reals between bytes, for changed scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, axis, constant_values, dtype
from pipeline.frontends.relay.operators.common import Converter, align_with_axis, cast
from pipeline.frontends.relay.operators.elementwise import clip
from pipeline.frontends.relay.operators.qnn_operands import (
    PRODUCTS,
    check_product_scales,
    output_channel_axis,
    pair_scales,
    quantization_axis,
    split_parts,
    split_terms,
)
from pipeline.model.passes.bindings import array, calls, replace

op = relax.op

_BYTES = ("int8", "uint8")
_BESIDES = ("nn.relu", "clip", "nn.max_pool2d", "reshape", "permute_dims", "squeeze", "expand_dims")
"""Operators allowed between bytes or sums and the operator with their scale."""


def to_real(builder: BindingBuilder, x: Any, scale: Any, zero: Any, number: int = 0) -> Any:
    """Return the real numbers of integers.

    Sums of products were real numbers already, and what lies between becomes real as well, so that nothing is rounded.
    """
    scales, zeros = _float(scale, "a scale"), _float(zero, "a zero point")
    # From the end: the operand of an operator is nearly always among the last bindings.
    value: Any = next((binding.value for binding in reversed(builder.bindings) if binding.var == x), None)
    # Scales per channel do not commute with a pooling or a reshape along that channel; with a rectifier they do.
    if calls(value, *_BESIDES) and (scales.size == zeros.size == 1 or _rectifies(value, zeros)):
        source = to_real(builder, value.args[0], scale, zero, number)
        real_value = _apply_in_reals(builder, value, source, scales, zeros)
        if dtype(x) not in _BYTES:
            return real_value
        return _dequantize_bytes(builder, _quantize_real(builder, real_value, scale, zero, dtype(x)), scale, zero)
    factor = _align(builder, scales, x, number)
    # A bias in units of the sums; multiplied by the scale it is the bias that training knew.
    if calls(value, "add") and (bias := array(value.args[1])) is not None and not zeros.any():
        source = to_real(builder, value.args[0], scale, zero, number)
        real_bias = builder.emit(op.multiply(builder.constant(bias, "float32"), factor))
        return builder.emit(op.add(source, real_bias))
    # A sum that a product above was told to leave as whole numbers.
    if calls(value, "astype") and dtype(value.args[0]) == "float32" and not zeros.any():
        return _sums(builder, value.args[0], factor)
    # A constant needs no operator: its real values fold.
    if dtype(x) in _BYTES and array(x) is None:
        return _dequantize_bytes(builder, x, scale, zero, number)
    difference = builder.emit(op.subtract(cast(builder, x, "float32"), _align(builder, zeros, x, number)))
    return builder.emit(op.multiply(difference, factor))


def _sums(builder: BindingBuilder, sums: Any, factor: Any) -> Any:
    """Return sums times their unit, after division by it."""
    value = next(binding.value for binding in builder.bindings if binding.var == sums)
    unit, expected_unit = array(value.args[1]) if calls(value, "divide") else None, np.asarray(array(factor))
    # Multiplying by what was divided by would leave two roundings between equal numbers.
    if unit is not None and np.allclose(unit.reshape(-1), expected_unit.reshape(-1), 1e-5, 0):
        return value.args[0]
    return builder.emit(op.multiply(sums, factor))


def _rectifies(value: Any, zeros: np.ndarray) -> bool:
    return calls(value, "nn.relu") and not zeros.any()


def _apply_in_reals(builder: BindingBuilder, value: Any, source: Any, scales: np.ndarray, zeros: np.ndarray) -> Any:
    if _rectifies(value, zeros):
        return builder.emit(op.nn.relu(source))
    if calls(value, "nn.relu"):
        # Zero as a whole number is less than the zero point, and so another real number.
        return builder.emit(op.maximum(source, builder.constant(-zeros.item() * scales.item(), "float32")))
    if calls(value, "clip"):
        # Bounds of a clip are values of TIR inside of Relax's primitive values.
        ends = [float(getattr(operand.value, "value", operand.value)) for operand in value.args[1:]]
        low, high = ((operand - zeros.item()) * scales.item() for operand in ends)
        return clip(builder, source, low, high)
    return builder.emit(replace(value, lambda operand: source if operand.same_as(value.args[0]) else operand))


def _float(constant: Any, description: str) -> np.ndarray:
    return constant_values(constant, description).astype(np.float32)


def _align(builder: BindingBuilder, values: np.ndarray, x: Any, number: int) -> Any:
    if values.size == 1:
        return builder.constant(values.reshape(()))
    return align_with_axis(builder, builder.constant(values), x, number)


def _operands(builder: BindingBuilder, scale: Any, zero: Any, kind: str) -> tuple[Any, Any]:
    """Return scales and as many zero points."""
    scales, zeros = _float(scale, "a scale"), constant_values(zero, "a zero point").astype(kind)
    extents = () if scales.size == 1 else scales.shape
    return builder.constant(scales.reshape(extents)), builder.constant(np.resize(zeros, extents))


def _quantize_real(  # noqa: PLR0913, PLR0917 - all of a quantised tensor
    builder: BindingBuilder, x: Any, scale: Any, zero: Any, kind: str, number: int = 0
) -> Any:
    if kind not in _BYTES:
        scales = _align(builder, _float(scale, "a scale"), x, number)
        quotient = op.add(builder.emit(op.divide(x, scales)), _align(builder, _float(zero, "a zero point"), x, number))
        return cast(builder, builder.emit(quotient), kind)
    # Relax's own operators, in which later passes find the scales.
    return builder.emit(op.quantize(x, *_operands(builder, scale, zero, kind), axis=number, out_dtype=kind))


def _dequantize_bytes(builder: BindingBuilder, x: Any, scale: Any, zero: Any, number: int = 0) -> Any:
    if dtype(x) not in _BYTES:
        return to_real(builder, x, scale, zero, number)
    return builder.emit(op.dequantize(x, *_operands(builder, scale, zero, dtype(x)), axis=number, out_dtype="float32"))


def _quantize(builder: BindingBuilder, attrs: Attributes, x: Any, scale: Any, zero: Any) -> Any:
    number = axis(x, attrs.integer("axis", -1))
    return _quantize_real(builder, x, scale, zero, attrs.dtype("out_dtype", "int8"), number)


def _dequantize(builder: BindingBuilder, attrs: Attributes, x: Any, scale: Any, zero: Any) -> Any:
    value = to_real(builder, x, scale, zero, quantization_axis(attrs, x))
    return cast(builder, value, attrs.dtype("out_dtype", "float32"))


def _requantize(builder: BindingBuilder, attrs: Attributes, x: Any, *scales: Any) -> Any:
    (scale, zero), (out_scale, out_zero) = pair_scales(scales, 2)
    number, kind = axis(x, attrs.integer("axis", -1)), attrs.dtype("out_dtype", "int8")
    # Read and ignored: they choose between ways of rounding that only whole numbers have.
    attrs.get("rounding"), attrs.get("compute_dtype")
    return _quantize_real(builder, to_real(builder, x, scale, zero, number), out_scale, out_zero, kind)


def _convert_product(compute: Callable[..., Any]) -> Converter:
    """Convert a product to real sums, divided by their unit. Readers of integers expect the division."""

    def convert(  # noqa: PLR0913, PLR0917 - Relay's operands
        builder: BindingBuilder, attrs: Attributes, x: Any, weight: Any, zero: Any, weight_zero: Any, *scales: Any
    ) -> Any:
        check_product_scales(scales)
        real_weight = to_real(builder, weight, scales[1], weight_zero, output_channel_axis(attrs))
        products = compute(
            builder, attrs.replace_values(out_dtype="float32"), to_real(builder, x, scales[0], zero), real_weight
        )
        unit = _float(scales[0], "a scale") * _float(scales[1], "a scale")
        layout = str(attrs.get("data_layout") or "NC")
        return cast(
            builder, builder.emit(op.divide(products, _align(builder, unit, products, layout.find("C")))), "int32"
        )

    return convert


def _convert_pair(operator: Callable[..., Any]) -> Converter:
    def convert(builder: BindingBuilder, attrs: Attributes, x: Any, y: Any, *scales: Any) -> Any:
        terms = [to_real(builder, *term) for term in split_terms(attrs, x, y, scales)]
        *_, (out_scale, out_zero) = pair_scales(scales, 3)
        return _quantize_real(builder, builder.emit(operator(*terms)), out_scale, out_zero, dtype(x))

    return convert


def _concatenate(  # noqa: PLR0913, PLR0917 - Relay's operands
    builder: BindingBuilder, attrs: Attributes, data: Any, scales: Any, zeros: Any, out_scale: Any, out_zero: Any
) -> Any:
    parts = split_parts(data, scales, zeros)
    first_part = parts[0][0]
    real_parts = [to_real(builder, *part) for part in parts]
    concatenation = builder.emit(op.concat(real_parts, axis=axis(first_part, attrs.integer("axis", 0))))
    return _quantize_real(builder, concatenation, out_scale, out_zero, dtype(first_part))


TABLE: dict[str, Converter] = {
    "qnn.quantize": _quantize,
    "qnn.dequantize": _dequantize,
    "qnn.requantize": _requantize,
    **{name: _convert_product(compute) for name, compute in PRODUCTS.items()},
    "qnn.add": _convert_pair(op.add),
    "qnn.subtract": _convert_pair(op.subtract),
    "qnn.mul": _convert_pair(op.multiply),
    "qnn.concatenate": _concatenate,
}
"""Converters in real numbers; missing ones keep their integer form."""
