"""Quantised convolutions and products: integer sums rescaled as in LiteRT.

The operands are 16-bit numbers without their zero points, as which the kernels find the bytes again; see
`pipeline.executor.kernels.quantized.integer_operators`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.tflite.flatbuffer import TfliteOperator, TfliteTensor
from pipeline.frontends.tflite.operators.converter import Converter
from pipeline.frontends.tflite.operators.quantized_values import (
    activation_of,
    center,
    centered_values,
    object_to,
    scale_of,
    scales_of,
    store,
)
from pipeline.frontends.tflite.operators.spatial import transposed_padding
from pipeline.model.passes.bindings import constant
from pipeline.model.requantization import REAL, TWICE, UPWARD, Multiplier, Requantization

op = relax.op

_VALID = 1
"""VALID in the schema's enumeration Padding; 0 is SAME."""

_LARGEST_SHORT = 0x7FFF

_INT32 = 2
"""INT32 in the schema's enumeration TensorType."""


def convolution(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``CONV_2D``, also a grouped one, or ``DEPTHWISE_CONV_2D``."""
    data, weights = operator.operands[:2]
    integers = center(importer, data, "int16")
    sums = convolve(operator, integers, _kernel_values(data, weights), _sum_dtype(operator))
    return _finish(importer, operator, sums, _factors(operator))


def convolve(operator: TfliteOperator, data: Any, weights: np.ndarray, dtype: str) -> Any:
    """Return the sums of an operator's convolution of 16-bit numbers."""
    channels = operator.operands[0].shape[3]
    if operator.kind == "DEPTHWISE_CONV_2D":
        # (1, height, width, outputs) in the file.
        kernel, groups = weights.reshape(*weights.shape[1:3], 1, weights.shape[3]), channels
    else:
        # (outputs, height, width, inputs) in the file.
        kernel, groups = weights.transpose(1, 2, 3, 0), channels // weights.shape[3]
    options = operator.options
    strides = options.StrideH(), options.StrideW()
    # 0 stands in files that were written before the option existed.
    dilation = max(options.DilationHFactor(), 1), max(options.DilationWFactor(), 1)
    padding = (0, 0, 0, 0)
    if options.Padding() != _VALID:
        padding = same_padding(operator.operands[0].shape[1:3], kernel.shape[:2], strides, dilation)
    return op.nn.conv2d(
        data, constant(kernel.astype(np.int16)), strides=strides, padding=padding,
        dilation=dilation, groups=groups, data_layout="NHWC", kernel_layout="HWIO", out_dtype=dtype,
    )  # fmt: skip


def same_padding(
    extents: Sequence[int], window: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> tuple[int, int, int, int]:
    """Return SAME padding as top, left, bottom, right.

    Where the sum is odd, the end has one more.
    """
    totals = [
        max((math.ceil(extent / stride) - 1) * stride + (size - 1) * step + 1 - extent, 0)
        for extent, size, stride, step in zip(extents, window, strides, dilation, strict=True)
    ]
    return totals[0] // 2, totals[1] // 2, (totals[0] + 1) // 2, (totals[1] + 1) // 2


def _kernel_values(data: TfliteTensor, weights: TfliteTensor) -> np.ndarray:
    # LiteRT takes the zero points of signed weights for 0, whatever the file says.
    return centered_values(weights) if data.dtype == "uint8" else np.asarray(weights.values).astype(np.int64)


def _sum_dtype(operator: TfliteOperator) -> str:
    """Return LiteRT's sum dtype: 64 bits for 16-bit activations by default."""
    options = operator.options
    narrow = options is not None and getattr(options, "QuantizedBiasType", lambda: 0)() == _INT32
    return "int64" if operator.outputs[0].dtype == "int16" and not narrow else "int32"


def _factors(operator: TfliteOperator, data: int = 0, weights: int = 1) -> Any:
    """Return the factors of sums in LiteRT's float64."""
    source, kernel, output = operator.operands[data], operator.operands[weights], operator.outputs[0]
    scales = scales_of(kernel)
    if source.dtype == "uint8":
        return (scale_of(source) * scales[:1]).astype(np.float64)[0] / np.float64(scale_of(output))
    factors = np.float64(scale_of(source)) * scales.astype(np.float64) / np.float64(scale_of(output))
    return factors if len(scales) > 1 else factors[0]


def _finish(importer: Any, operator: TfliteOperator, sums: Any, factors: Any, bias: int = 2) -> Any:
    """Return sums with their bias, rescaled and stored."""
    sums = _add_bias(operator, sums, bias)
    multiplier = Multiplier.of(factors)
    scale = _short(multiplier) if _sum_dtype(operator) == "int64" else multiplier.scale(TWICE)
    return store(importer.bb, sums, operator.outputs[0], activation_of(operator), scale)


def _short(multiplier: Multiplier) -> Requantization:
    """Return the scale of 64-bit sums, with a 15-bit mantissa. Products then fit into 64 bits."""
    mantissa = np.minimum((multiplier.mantissa + (1 << 15)) >> 16, _LARGEST_SHORT)
    shifts = (15 - multiplier.shift).reshape(-1).tolist()
    return Requantization(tuple(mantissa.reshape(-1).tolist()), (0,), tuple(shifts), UPWARD)


def _add_bias(operator: TfliteOperator, sums: Any, position: int) -> Any:
    tensor = operator.inputs[position] if position < len(operator.inputs) else None
    if tensor is None:
        return sums
    return op.add(sums, constant(np.asarray(tensor.values).reshape(-1).astype(_sum_dtype(operator))))


def transpose_convolution(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``TRANSPOSE_CONV`` with channels first, TVM's only layout."""
    _, weights, data = operator.operands[:3]
    output, options = operator.outputs[0], operator.options
    strides = options.StrideH(), options.StrideW()
    sizes = zip(data.shape[1:3], weights.shape[1:3], output.shape[1:3], strides, strict=True)
    starts, ends, beyond = zip(*(transposed_padding(*size) for size in sizes), strict=True)
    kernel = _kernel_values(data, weights).transpose(3, 0, 1, 2).astype(np.int16)
    sums = op.nn.conv2d_transpose(
        op.permute_dims(center(importer, data, "int16"), (0, 3, 1, 2)), constant(kernel), strides=strides,
        padding=(*starts, *ends), output_padding=beyond, out_dtype=_sum_dtype(operator),
    )  # fmt: skip
    return _finish(importer, operator, op.permute_dims(sums, (0, 2, 3, 1)), _factors(operator, data=2), bias=3)


def dense(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``FULLY_CONNECTED``: a 64-bit real factor, one rounding."""
    data, weights = operator.operands[:2]
    depth, output = weights.shape[-1], operator.outputs[0]
    matrix = constant(centered_values(weights).reshape(-1, depth).T.astype(np.int16))
    rows = center(importer, data, "int16", (math.prod(data.shape) // depth, depth))
    sums = _add_bias(operator, op.matmul(rows, matrix, out_dtype=_sum_dtype(operator)), 2)
    factors = np.float64(scale_of(data)) * scales_of(weights).astype(np.float64) / np.float64(scale_of(output))
    scale = Requantization(tuple(factors.tolist()), rounding=REAL)
    return op.reshape(store(importer.bb, sums, output, activation_of(operator), scale), output.shape)


def _object_to_product(data: int = 0, weights: int = 1, bias: int = 2) -> Any:
    def why_not(_importer: Any, operator: TfliteOperator) -> str:
        if reason := object_to(operator, positions=(data,)):
            return reason
        if any(tensor.values is None for tensor in (operator.operands[weights], *operator.operands[bias:])):
            return "its weights are no constants"
        return _object_to_weights(operator.outputs[0].dtype, operator.operands[weights])

    return why_not


def _object_to_weights(dtype: str, weights: TfliteTensor) -> str:
    if weights.scale is None or weights.dtype != ("uint8" if dtype == "uint8" else "int8"):
        return f"its weights are {weights.dtype}"
    if dtype == "uint8" and weights.scale.per_channel:
        return "its unsigned weights have several scales"
    return ""


CONVERTERS: dict[str, Converter] = {
    "CONV_2D": Converter(convolution, _object_to_product()),
    "DEPTHWISE_CONV_2D": Converter(convolution, _object_to_product()),
    "FULLY_CONNECTED": Converter(dense, _object_to_product()),
    "TRANSPOSE_CONV": Converter(transpose_convolution, _object_to_product(data=2, bias=3)),
}
