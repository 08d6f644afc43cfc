"""The qnn operators in real numbers between bytes: what a program means, for whoever changes its scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.split.frontends.relay.attributes import Attributes
from pipeline.split.frontends.relay.builder import Builder, axis, dtype, fields, known, shape
from pipeline.split.frontends.relay.operators.common import Converter, along, cast
from pipeline.split.frontends.relay.operators.convolution import convolve, transpose_convolve
from pipeline.split.frontends.relay.operators.elementwise import clipped
from pipeline.split.frontends.relay.operators.products import product, turned
from pipeline.split.frontends.relay.operators.quantized import made_by
from pipeline.split.lines import array, calls, replace

op = relax.op

_BYTES = ("int8", "uint8")
_BESIDES = ("nn.relu", "clip", "nn.max_pool2d", "reshape", "permute_dims", "squeeze", "expand_dims")
"""What may stand between bytes, or sums, and the operator that knows their scale."""


def real(builder: Builder, x: Any, scale: Any, zero: Any, number: int = 0) -> Any:
    """Return the real numbers that whole ones stand for.

    Sums of products were real numbers already, and what lies between becomes real as well, so that nothing is rounded.
    """
    scales, zeros = _float(scale, "a scale"), _float(zero, "a zero point")
    value: Any = next((each.value for each in reversed(builder.bindings) if each.var == x), None)
    if calls(value, *_BESIDES) and (scales.size == zeros.size == 1 or _rectifies(value, zeros)):
        source = real(builder, value.args[0], scale, zero, number)
        found = _besides(builder, value, source, scales, zeros)
        if dtype(x) not in _BYTES:
            return found
        return _dequantized(builder, _quantized(builder, found, scale, zero, dtype(x)), scale, zero)
    factor = _along(builder, scales, x, number)
    if calls(value, "add") and (bias := array(value.args[1])) is not None and not zeros.any():
        source = real(builder, value.args[0], scale, zero, number)
        added = builder.emit(op.multiply(builder.constant(bias, "float32"), factor))
        return builder.emit(op.add(source, added))
    if calls(value, "astype") and dtype(value.args[0]) == "float32" and not zeros.any():
        return _sums(builder, value.args[0], factor)
    if dtype(x) in _BYTES and array(x) is None:
        return _dequantized(builder, x, scale, zero, number)
    centred = builder.emit(op.subtract(cast(builder, x, "float32"), _along(builder, zeros, x, number)))
    return builder.emit(op.multiply(centred, factor))


def _sums(builder: Builder, whole: Any, factor: Any) -> Any:
    """Return sums times their unit, which they were divided by."""
    value = next(each.value for each in builder.bindings if each.var == whole)
    unit, wanted = array(value.args[1]) if calls(value, "divide") else None, np.asarray(array(factor))
    if unit is not None and np.allclose(unit.reshape(-1), wanted.reshape(-1), 1e-5, 0):
        return value.args[0]
    return builder.emit(op.multiply(whole, factor))


def _rectifies(value: Any, zeros: np.ndarray) -> bool:
    return calls(value, "nn.relu") and not zeros.any()


def _besides(builder: Builder, value: Any, source: Any, scales: np.ndarray, zeros: np.ndarray) -> Any:
    if _rectifies(value, zeros):
        return builder.emit(op.nn.relu(source))
    if calls(value, "nn.relu"):
        return builder.emit(op.maximum(source, builder.constant(-zeros.item() * scales.item(), "float32")))
    if calls(value, "clip"):
        ends = [float(getattr(each.value, "value", each.value)) for each in value.args[1:]]
        low, high = ((each - zeros.item()) * scales.item() for each in ends)
        return clipped(builder, source, low, high)
    return builder.emit(replace(value, lambda each: source if each.same_as(value.args[0]) else each))


def _float(constant: Any, what: str) -> np.ndarray:
    return known(constant, what).astype(np.float32)


def _along(builder: Builder, values: np.ndarray, x: Any, number: int) -> Any:
    if values.size == 1:
        return builder.constant(values.reshape(()))
    return along(builder, builder.constant(values), x, number)


def _operands(builder: Builder, scale: Any, zero: Any, kind: str) -> tuple[Any, Any]:
    """Return scales and as many zero points."""
    scales, zeros = _float(scale, "a scale"), known(zero, "a zero point").astype(kind)
    extents = () if scales.size == 1 else scales.shape
    return builder.constant(scales.reshape(extents)), builder.constant(np.resize(zeros, extents))


def _quantized(  # noqa: PLR0913, PLR0917 - all of a quantised tensor
    builder: Builder, x: Any, scale: Any, zero: Any, kind: str, number: int = 0
) -> Any:
    if kind not in _BYTES:
        scales = _along(builder, _float(scale, "a scale"), x, number)
        shifted = op.add(builder.emit(op.divide(x, scales)), _along(builder, _float(zero, "a zero point"), x, number))
        return cast(builder, builder.emit(shifted), kind)
    return builder.emit(op.quantize(x, *_operands(builder, scale, zero, kind), axis=number, out_dtype=kind))


def _dequantized(builder: Builder, x: Any, scale: Any, zero: Any, number: int = 0) -> Any:
    if dtype(x) not in _BYTES:
        return real(builder, x, scale, zero, number)
    return builder.emit(op.dequantize(x, *_operands(builder, scale, zero, dtype(x)), axis=number, out_dtype="float32"))


def _quantize(builder: Builder, attrs: Attributes, x: Any, scale: Any, zero: Any) -> Any:
    number = axis(x, attrs.integer("axis", -1))
    return _quantized(builder, x, scale, zero, attrs.dtype("out_dtype", "int8"), number)


def _dequantize(builder: Builder, attrs: Attributes, x: Any, scale: Any, zero: Any) -> Any:
    number = axis(x, attrs.integer("axis", -1)) if shape(x) else 0
    return cast(builder, real(builder, x, scale, zero, number), attrs.dtype("out_dtype", "float32"))


def _requantize(builder: Builder, attrs: Attributes, x: Any, *scales: Any) -> Any:
    if len(scales) != 4:
        raise ModelError(f"expected 2 scales and 2 zero points, found {len(scales)} operands")
    number, kind = axis(x, attrs.integer("axis", -1)), attrs.dtype("out_dtype", "int8")
    attrs.get("rounding"), attrs.get("compute_dtype")
    return _quantized(builder, real(builder, x, *scales[:2], number), *scales[2:], kind)


def _weighted(compute: Callable[..., Any]) -> Converter:
    """Convert a product; its sums are real numbers, and divided by their unit for those who read whole ones."""

    def convert(  # noqa: PLR0913, PLR0917 - Relay's operands
        builder: Builder, attrs: Attributes, x: Any, weight: Any, zero: Any, weight_zero: Any, *scales: Any
    ) -> Any:
        if len(scales) != 2:
            raise ModelError(f"expected 2 scales, found {len(scales)}")
        own = real(builder, weight, scales[1], weight_zero, made_by(attrs))
        made = compute(builder, attrs.replaced(out_dtype="float32"), real(builder, x, scales[0], zero), own)
        unit = _float(scales[0], "a scale") * _float(scales[1], "a scale")
        layout = str(attrs.get("data_layout") or "NC")
        return cast(builder, builder.emit(op.divide(made, _along(builder, unit, made, layout.find("C")))), "int32")

    return convert


def _dense(builder: Builder, attrs: Attributes, x: Any, weight: Any) -> Any:
    return product(builder, attrs, x, turned(builder, weight))


def _conv2d(builder: Builder, attrs: Attributes, x: Any, weight: Any) -> Any:
    return convolve(builder, attrs, x, weight, 2)


def _conv2d_transpose(builder: Builder, attrs: Attributes, x: Any, weight: Any) -> Any:
    return transpose_convolve(builder, attrs, x, weight, 2)


def _pair(operator: Callable[..., Any]) -> Converter:
    def convert(builder: Builder, attrs: Attributes, x: Any, y: Any, *scales: Any) -> Any:
        if len(scales) != 6:
            raise ModelError(f"expected 3 scales and 3 zero points, found {len(scales)} operands")
        sides = [
            real(builder, side, *own, axis(side, attrs.integer(name, -1)) if shape(side) else 0)
            for side, own, name in ((x, scales[:2], "lhs_axis"), (y, scales[2:4], "rhs_axis"))
        ]
        return _quantized(builder, builder.emit(operator(*sides)), *scales[4:], dtype(x))

    return convert


def _concatenate(  # noqa: PLR0913, PLR0917 - Relay's operands
    builder: Builder, attrs: Attributes, data: Any, scales: Any, zeros: Any, out_scale: Any, out_zero: Any
) -> Any:
    parts = fields(data)
    joined = [real(builder, part, *own) for part, *own in zip(parts, fields(scales), fields(zeros), strict=True)]
    found = builder.emit(op.concat(joined, axis=axis(parts[0], attrs.integer("axis", 0))))
    return _quantized(builder, found, out_scale, out_zero, dtype(parts[0]))


TABLE: dict[str, Converter] = {
    "qnn.quantize": _quantize,
    "qnn.dequantize": _dequantize,
    "qnn.requantize": _requantize,
    "qnn.conv2d": _weighted(_conv2d),
    "qnn.conv2d_transpose": _weighted(_conv2d_transpose),
    "qnn.dense": _weighted(_dense),
    "qnn.add": _pair(op.add),
    "qnn.subtract": _pair(op.subtract),
    "qnn.mul": _pair(op.multiply),
    "qnn.concatenate": _concatenate,
}
"""Instead of those that compute in whole numbers; what has none here keeps its own."""
