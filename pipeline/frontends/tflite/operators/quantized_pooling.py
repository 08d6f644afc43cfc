"""Pooling and reductions of quantised tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.tflite.flatbuffer import TfliteOperator, TfliteTensor
from pipeline.frontends.tflite.operators.converter import Converter
from pipeline.frontends.tflite.operators.quantized_products import same_padding
from pipeline.frontends.tflite.operators.quantized_values import (
    BYTES,
    activation_of,
    limits,
    object_to,
    scale_of,
    store,
    zero_of,
)
from pipeline.model.passes.bindings import constant
from pipeline.model.requantization import TWICE, Multiplier, Requantization

op = relax.op

_VALID = 1
"""VALID in the schema's enumeration Padding."""


def _padding(operator: TfliteOperator) -> tuple[int, int, int, int]:
    options, data = operator.options, operator.operands[0]
    if options.Padding() == _VALID:
        return (0, 0, 0, 0)
    return same_padding(data.shape[1:3], _window(operator), _strides(operator), (1, 1))


def _window(operator: TfliteOperator) -> tuple[int, int]:
    return operator.options.FilterHeight(), operator.options.FilterWidth()


def _strides(operator: TfliteOperator) -> tuple[int, int]:
    return operator.options.StrideH(), operator.options.StrideW()


def average_pool(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``AVERAGE_POOL_2D``: sums by ones over the counted elements."""
    data, output = operator.operands[0], operator.outputs[0]
    channels = data.shape[3]
    ones = np.ones((*_window(operator), 1, channels), np.int16)
    sums = op.nn.conv2d(
        op.astype(importer.value(data), "int16"), constant(ones), strides=_strides(operator),
        padding=_padding(operator), groups=channels, data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32",
    )  # fmt: skip
    averages = _divide(importer.bb.emit(sums), _counts(operator))
    low, high = limits(output, activation_of(operator))
    return Requantization(low=low, high=high, dtype=output.dtype, operator="AveragePool").call(importer.bb, averages)


def _counts(operator: TfliteOperator) -> np.ndarray:
    """Return the elements of each window inside the data."""
    data, output = operator.operands[0], operator.outputs[0]
    counts = []
    for extent, results, size, stride, start in zip(
        data.shape[1:3], output.shape[1:3], _window(operator), _strides(operator), _padding(operator)[:2], strict=True
    ):
        first = np.arange(results) * stride - start
        counts.append(np.minimum(first + size, extent) - np.maximum(first, 0))
    product: np.ndarray = (counts[0][:, None] * counts[1][None, :])[None, :, :, None]
    # By one number it is divided faster than by many.
    return product[:1, :1, :1].reshape(()) if np.all(product == product[0, 0, 0, 0]) else product


def _divide(sums: Any, counts: np.ndarray) -> Any:
    """Return int32 sums divided by numbers, halves away from zero."""
    half, divisor, zero = (
        constant((counts // 2).astype(np.int32)),
        constant(counts.astype(np.int32)),
        constant(np.int32(0)),
    )
    is_positive = op.greater(sums, zero)
    # Of positive numbers alone, so that it does not matter how a division rounds negative ones.
    size = op.floor_divide(op.add(op.abs(sums), half), divisor)
    return op.where(is_positive, size, op.subtract(zero, size))


def max_pool(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``MAX_POOL_2D``."""
    data, output = operator.operands[0], operator.outputs[0]
    pooled = op.nn.max_pool2d(
        importer.value(data), pool_size=_window(operator), strides=_strides(operator), padding=_padding(operator),
        layout="NHWC",
    )  # fmt: skip
    low, high = limits(output, activation_of(operator))
    bounds = np.iinfo(output.dtype)
    if (low, high) == (bounds.min, bounds.max):
        return pooled
    return Requantization(low=low, high=high, dtype=output.dtype).call(importer.bb, op.astype(pooled, "int32"))


def total(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``MEAN`` or ``SUM``; a mean's factor includes the count."""
    data, axes = operator.operands
    output = operator.outputs[0]
    reduced_axes = _axes(data, axes)
    count = math.prod(data.shape[axis] for axis in reduced_axes)
    # The zero point is taken off the sum, since a kernel may then sum bytes.
    sums = op.sum(op.astype(importer.value(data), "int32"), reduced_axes, keepdims=False)
    if zero := zero_of(data) * count:
        sums = op.subtract(sums, constant(np.int32(zero)))
    multiplier = Multiplier.of(np.float64(scale_of(data)) / np.float64(scale_of(output)))
    if operator.kind == "MEAN":
        multiplier = _share(multiplier, count)
    return op.reshape(store(importer.bb, sums, output, scale=multiplier.scale(TWICE)), output.shape)


def _axes(data: TfliteTensor, axes: TfliteTensor) -> list[int]:
    return sorted({int(axis) % len(data.shape) for axis in np.asarray(axes.values).reshape(-1)})


def _share(multiplier: Multiplier, count: int) -> Multiplier:
    """Return a multiplier divided by a count, in as many bits."""
    mantissa, shift = int(multiplier.mantissa), int(multiplier.shift)
    bits = min(count.bit_length() - 1, 32, 31 + shift)
    return Multiplier(np.array((mantissa << bits) // count, np.int64), np.array(shift - bits, np.int64))


def extreme_element(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``REDUCE_MAX`` or ``REDUCE_MIN``."""
    data, axes = operator.operands
    reduce = op.max if operator.kind == "REDUCE_MAX" else op.min
    widest = op.astype(importer.value(data), "int32")
    result = op.astype(reduce(widest, _axes(data, axes), keepdims=False), data.dtype)
    return op.reshape(result, operator.outputs[0].shape)


def _pooled(_importer: Any, operator: TfliteOperator) -> str:
    # LiteRT keeps the integers, also where the file states another scale for the result.
    return object_to(operator)


def _averaged(importer: Any, operator: TfliteOperator) -> str:
    if reason := _pooled(importer, operator):
        return reason
    # A kernel for depthwise sums of bytes has float32, which is exact up to here; else they are of 32 bits.
    largest = 255 / (1 << 24) if operator.operands[0].dtype in BYTES else 1 / (1 << 15)
    return "" if math.prod(_window(operator)) * largest < 1 else "its window is too large"


def _reduced(_importer: Any, operator: TfliteOperator) -> str:
    if len(operator.operands) != 2 or operator.operands[1].values is None:
        return "its axes are no constants"
    return object_to(operator)


def _reduced_as_is(importer: Any, operator: TfliteOperator) -> str:
    return _reduced(importer, operator) or _pooled(importer, operator)


CONVERTERS: dict[str, Converter] = {
    "AVERAGE_POOL_2D": Converter(average_pool, _averaged),
    "MAX_POOL_2D": Converter(max_pool, _pooled),
    "MEAN": Converter(total, _reduced),
    "REDUCE_MAX": Converter(extreme_element, _reduced_as_is),
    "REDUCE_MIN": Converter(extreme_element, _reduced_as_is),
    "SUM": Converter(total, _reduced),
}
