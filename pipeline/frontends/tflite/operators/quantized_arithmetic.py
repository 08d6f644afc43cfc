"""Element-wise quantised operators, rounded as LiteRT's reference kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.tflite.flatbuffer import TfliteOperator, TfliteTensor
from pipeline.frontends.tflite.operators.converter import Converter
from pipeline.frontends.tflite.operators.quantized_values import (
    INTEGERS,
    activation_of,
    center,
    object_to,
    round_from_zero,
    rounded_product,
    scale_of,
    store,
    zero_of,
)
from pipeline.model.passes.bindings import constant
from pipeline.model.requantization import OUTWARD, TWICE, Multiplier, Requantization

op = relax.op

# Bits by which the terms of a sum are shifted first, so that little is lost when each is rescaled.
_EXTRA_BITS = {"int8": 20, "uint8": 20, "int16": 15}


def add(importer: Any, operator: TfliteOperator, combine: Callable[[Any, Any], Any]) -> Any:
    """Return ``ADD`` or ``SUB`` in twice the larger scale."""
    bb, output = importer.bb, operator.outputs[0]
    if output.dtype == "int16" and _has_power_scales(operator):
        return _add_powers(importer, operator, combine)
    bits = _EXTRA_BITS[output.dtype]
    scales = [np.float64(scale_of(tensor)) for tensor in operator.operands]
    common = 2 * max(scales)
    terms = [
        bb.emit(_twice(scale / common).call(bb, op.multiply(center(importer, tensor), constant(np.int32(1 << bits)))))
        for tensor, scale in zip(operator.operands, scales, strict=True)
    ]
    factor = common / np.float64(np.float32(1 << bits) * scale_of(output))
    return store(bb, combine(*terms), output, activation_of(operator), _twice(factor))


def _twice(factor: Any) -> Requantization:
    return Multiplier.of(factor).scale(TWICE)


def _has_power_scales(operator: TfliteOperator) -> bool:
    """Check if LiteRT shifts instead: power-of-two scales, allowed by options."""
    if operator.options is not None and not operator.options.PotScaleInt16():
        return False
    return all(math.frexp(float(scale_of(tensor)))[0] == 0.5 for tensor in (*operator.operands, operator.outputs[0]))


def _add_powers(importer: Any, operator: TfliteOperator, combine: Callable[[Any, Any], Any]) -> Any:
    bb, output = importer.bb, operator.outputs[0]
    exponents = [_exponent(output) - _exponent(tensor) for tensor in operator.operands]
    terms = [center(importer, tensor) for tensor in operator.operands]
    divided = [
        Requantization(right=(exponent,), rounding=OUTWARD).call(bb, term) if exponent else term
        for term, exponent in zip(terms, exponents, strict=True)
    ]
    return store(bb, combine(*divided), output, activation_of(operator))


def _exponent(tensor: TfliteTensor) -> int:
    return math.frexp(float(scale_of(tensor)))[1]


def multiply(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``MUL``."""
    scales = [scale_of(tensor) for tensor in operator.operands]
    # In float32, as LiteRT computes the factor.
    factor = scales[0] * scales[1] / scale_of(operator.outputs[0])
    product = op.multiply(*(center(importer, tensor) for tensor in operator.operands))
    return store(importer.bb, product, operator.outputs[0], activation_of(operator), _twice(factor))


def quantize(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``QUANTIZE``, also of quantised tensors."""
    source, output = operator.operands[0], operator.outputs[0]
    if source.dtype == "float32":
        return _round(importer, source, output)
    factor = np.float64(scale_of(source)) / np.float64(scale_of(output))
    return store(importer.bb, center(importer, source), output, scale=_twice(factor))


def _round(importer: Any, source: TfliteTensor, output: TfliteTensor) -> Any:
    """Return real numbers as integers, halves away from zero."""
    zero, limits = zero_of(output), np.iinfo(output.dtype)
    quotient = op.divide(importer.value(source), relax.const(scale_of(output)))
    # Within bounds first: a conversion beyond int32's is not defined.
    bounded = op.minimum(
        op.maximum(quotient, relax.const(float(limits.min - zero), "float32")),
        relax.const(float(limits.max - zero), "float32"),
    )
    return store(importer.bb, op.astype(round_from_zero(importer.bb, bounded), "int32"), output)


def dequantize(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``DEQUANTIZE``."""
    source = operator.operands[0]
    return op.multiply(op.astype(center(importer, source), "float32"), relax.const(scale_of(source)))


def rectify(importer: Any, operator: TfliteOperator, activation: int) -> Any:
    """Return a bounding activation in another scale."""
    source, output = operator.operands[0], operator.outputs[0]
    # In float32, as LiteRT computes the factor.
    factor = scale_of(source) / scale_of(output)
    return store(importer.bb, center(importer, source), output, activation, _twice(factor))


def leaky_relu(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``LEAKY_RELU``."""
    bb, source, output = importer.bb, operator.operands[0], operator.outputs[0]
    alpha = np.float32(operator.options.Alpha())
    x = bb.emit(center(importer, source))
    factors = scale_of(source) / scale_of(output), scale_of(source) * np.abs(alpha) / scale_of(output)
    positive, negative = (_twice(factor).call(bb, x) for factor in factors)
    if alpha < 0:
        negative = op.subtract(constant(np.int32(0)), negative)
    return store(bb, op.where(op.less(x, constant(np.int32(0))), negative, positive), output)


def prelu(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``PRELU``."""
    bb, output = importer.bb, operator.outputs[0]
    source, alpha = operator.operands
    x = bb.emit(center(importer, source))
    factors = scale_of(source) / scale_of(output), scale_of(source) * scale_of(alpha) / scale_of(output)
    positive = _twice(factors[0]).call(bb, x)
    negative = _twice(factors[1]).call(bb, op.multiply(x, center(importer, alpha)))
    return store(bb, op.where(op.less(x, constant(np.int32(0))), negative, positive), output)


def extreme(importer: Any, operator: TfliteOperator, choose: Callable[[Any, Any], Any]) -> Any:
    """Return ``MAXIMUM`` or ``MINIMUM`` of tensors in one scale."""
    return choose(*(importer.value(tensor) for tensor in operator.operands))


def concatenation(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``CONCATENATION``; foreign unsigned scales pass real numbers."""
    output = operator.outputs[0]
    parts = [_in_scale(importer, tensor, output) for tensor in operator.operands]
    return op.concat(parts, operator.options.Axis() % len(output.shape)) if len(parts) > 1 else parts[0]


def _in_scale(importer: Any, tensor: TfliteTensor, output: TfliteTensor) -> Any:
    value = importer.value(tensor)
    if same_scale(tensor, output):
        return value
    factor = scale_of(tensor) * (np.float32(1) / scale_of(output))
    offset = np.float32(-zero_of(tensor)) * factor
    product = rounded_product(op.multiply(op.astype(value, "float32"), relax.const(factor)))
    number = op.add(product, relax.const(offset))
    return store(importer.bb, op.astype(round_from_zero(importer.bb, number), "int32"), output)


def same_scale(first: TfliteTensor, second: TfliteTensor) -> bool:
    """Compare two tensors' scales and zero points."""
    if first.scale is None or second.scale is None:
        return first.scale is second.scale
    return np.array_equal(first.scale.scales, second.scale.scales) and np.array_equal(
        first.scale.zero_points, second.scale.zero_points
    )


def _two(_importer: Any, operator: TfliteOperator) -> str:
    return object_to(operator, positions=(0, 1))


def _object_to_unary(_importer: Any, operator: TfliteOperator) -> str:
    return object_to(operator)


def _in_one_scale(_importer: Any, operator: TfliteOperator) -> str:
    reason = object_to(operator, positions=(0, 1))
    is_same = all(same_scale(tensor, operator.outputs[0]) for tensor in operator.operands)
    return reason or ("" if is_same else "its tensors have several scales")


def _concatenated(_importer: Any, operator: TfliteOperator) -> str:
    if reason := object_to(operator, positions=tuple(range(len(operator.inputs)))):
        return reason
    output = operator.outputs[0]
    is_same = output.dtype == "uint8" or all(same_scale(tensor, output) for tensor in operator.operands)
    return "" if is_same else "its signed tensors have several scales"


def _to_integers(_importer: Any, operator: TfliteOperator) -> str:
    source, output = operator.operands[0], operator.outputs[0]
    if source.dtype != "float32":
        return object_to(operator, (*INTEGERS, "int32"), same=False)
    if output.scale is None or output.dtype not in _EXTRA_BITS:
        return f"{source.dtype} and {output.dtype} are no real numbers and integers"
    return f"{output.name!r} has several scales" if output.scale.per_channel else ""


def _to_real(_importer: Any, operator: TfliteOperator) -> str:
    source, output = operator.operands[0], operator.outputs[0]
    if output.dtype != "float32" or source.scale is None or source.dtype not in _EXTRA_BITS:
        return f"{source.dtype} and {output.dtype} are no integers and real numbers"
    return f"{source.name!r} has several scales" if source.scale.per_channel else ""


CONVERTERS: dict[str, Converter] = {
    "ADD": Converter(functools.partial(add, combine=op.add), _two),
    "SUB": Converter(functools.partial(add, combine=op.subtract), _two),
    "MUL": Converter(multiply, _two),
    "RELU": Converter(functools.partial(rectify, activation=1), _object_to_unary),
    "RELU_N1_TO_1": Converter(functools.partial(rectify, activation=2), _object_to_unary),
    "RELU6": Converter(functools.partial(rectify, activation=3), _object_to_unary),
    "LEAKY_RELU": Converter(leaky_relu, _object_to_unary),
    "PRELU": Converter(prelu, _two),
    "MAXIMUM": Converter(functools.partial(extreme, choose=op.maximum), _in_one_scale),
    "MINIMUM": Converter(functools.partial(extreme, choose=op.minimum), _in_one_scale),
    "CONCATENATION": Converter(concatenation, _concatenated),
    "DEQUANTIZE": Converter(dequantize, _to_real),
    "QUANTIZE": Converter(quantize, _to_integers),
}
