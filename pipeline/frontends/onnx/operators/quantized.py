"""Quantised operators as real numbers, for the clean-up to make integer.

ONNX Runtime's quantiser writes the operators of ``com.microsoft`` in its QOperator format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.onnx.operators.convolutions import convolve
from pipeline.frontends.onnx.operators.node_call import Converter, NodeCall
from pipeline.model.passes.bindings import array, constant


def _real(call: NodeCall, position: int, axis: int = 0) -> Any:
    """Return a tensor's real numbers; scale and zero point follow it."""
    data, scale = call.inputs[position], _scale(call, position + 1)
    zero = call.input(position + 2)
    zero = relax.const(0, call.dtype(position)) if zero is None else _scalar_or_row(zero)
    return call.normal(relax.op.dequantize(data, scale, zero, axis=axis, out_dtype="float32"))


def _quantized(call: NodeCall, value: Any, position: int) -> Any:
    """Return a result quantised with two of the operands."""
    zero = call.input(position + 1)
    zero = relax.const(0, call.dtype()) if zero is None else _scalar_or_row(zero)
    zero = call.normal(zero)
    dtype = str(zero.ty.dtype)
    return relax.op.quantize(call.normal(value), _scale(call, position), zero, axis=0, out_dtype=dtype)


def _scale(call: NodeCall, position: int) -> Any:
    scale = call.inputs[position]
    if call.dtype(position) != "float32":
        values = array(scale)
        scale = relax.op.astype(scale, "float32") if values is None else constant(values.astype(np.float32))
    return call.normal(_scalar_or_row(call.normal(scale)))


def _scalar_or_row(value: Any) -> Any:
    """Return one number without axes, several along one."""
    values = array(value)
    if values is not None:
        return constant(np.array(values.reshape(()) if values.size == 1 else values.reshape(-1)))
    shape = [int(extent) for extent in value.ty.shape]
    count = int(np.prod(shape))
    return relax.op.reshape(value, [] if count == 1 else [count])


def _convolution(call: NodeCall) -> Any:
    """Return ``QLinearConv``; its bias has the product of both scales."""
    data, weights = _real(call, 0, 1), _real(call, 3)
    bias = call.input(8)
    if bias is not None:
        scales = [call.values(1), call.values(4)]
        if any(scale is None for scale in scales):
            scale = relax.op.multiply(_scale(call, 1), _scale(call, 4))
            bias = relax.op.multiply(relax.op.astype(bias, "float32"), scale)
        else:
            product = np.asarray(np.float32(scales[0]) * np.float32(scales[1]))
            zero = relax.const(0, "int32")
            bias = relax.op.dequantize(bias, _scalar_or_row(constant(product)), zero, axis=0, out_dtype="float32")
        bias = call.normal(bias)
    return _quantized(call, convolve(call, data, weights, bias), 6)


def _product(call: NodeCall) -> Any:
    """Return ``QLinearMatMul``, also with scales per row or column."""
    last = len(call.shape(3)) - 1
    if any(np.prod(call.shape(position)) != 1 for position in (1, 2)):
        raise ValueError("with scales for each row")
    return _quantized(call, relax.op.matmul(_real(call, 0), _real(call, 3, last)), 6)


def _of_two(operator: Callable[[Any, Any], Any]) -> Converter:
    return lambda call: _quantized(call, operator(_real(call, 0), _real(call, 3)), 6)


def _of_one(function: Callable[[NodeCall, Any], Any]) -> Converter:
    return lambda call: _quantized(call, function(call, _real(call, 0)), 3)


def _concatenation(call: NodeCall) -> Any:
    parts = [_real(call, position) for position in range(2, len(call.inputs), 3)]
    return _quantized(call, relax.op.concat(parts, int(call.attributes["axis"])), 0)


def _global_average(call: NodeCall, data: Any) -> Any:
    rank = len(call.shape())
    axes = list(range(1, rank - 1) if int(call.attributes.get("channels_last", 0)) else range(2, rank))
    return relax.op.mean(data, axes, keepdims=True)


def _average(call: NodeCall, data: Any) -> Any:
    if int(call.attributes.get("channels_last", 0)) or call.text("auto_pad", "NOTSET") != "NOTSET":
        raise ValueError("with its channels last, or padding by auto_pad")
    size = [int(extent) for extent in call.attributes["kernel_shape"]]
    if len(size) != 2:
        raise ValueError("of other than images")
    return relax.op.nn.avg_pool2d(
        data, size, list(call.attributes.get("strides") or [1, 1]), list(call.attributes.get("pads") or [0] * 4),
        ceil_mode=bool(call.attributes.get("ceil_mode", 0)),
        count_include_pad=bool(call.attributes.get("count_include_pad", 0)),
    )  # fmt: skip


def _softmax(call: NodeCall, data: Any) -> Any:
    axis, shape = int(call.attributes.get("axis", -1)), call.shape()
    if int(call.attributes.get("opset", 13)) >= 13:
        return relax.op.nn.softmax(data, axis)
    # Until opset 12 all axes from this one on were one.
    front = int(np.prod(shape[: axis % len(shape)]))
    return relax.op.reshape(relax.op.nn.softmax(relax.op.reshape(data, [front, -1]), 1), shape)


def _dequantize_blocks(call: NodeCall) -> Any:
    """Return ``DequantizeLinear`` by blocks of an axis; weights fold at once."""
    block = int(call.attributes.get("block_size", 0))
    if not block:
        return None
    axis, dtype = int(call.attributes.get("axis", 1)), call.dtype(1)
    values, scale, zero = (call.values(position) for position in range(3))
    if values is not None and scale is not None and (zero is not None or call.input(2) is None):
        centred = values.astype(np.int32) - (0 if zero is None else _spread(zero.astype(np.int32), block, axis, values))
        return constant(centred.astype(dtype) * _spread(scale, block, axis, values))
    data = relax.op.astype(call.inputs[0], dtype)
    if call.input(2) is not None:
        data = relax.op.subtract(data, relax.op.astype(_repeat(call, 2, block, axis), dtype))
    return relax.op.multiply(data, _repeat(call, 1, block, axis))


def _quantize_blocks(call: NodeCall) -> Any:
    """Return ``QuantizeLinear`` by blocks of an axis."""
    block = int(call.attributes.get("block_size", 0))
    dtype = (call.results[0] or (None, None))[1]
    if not block or dtype not in ("int8", "uint8", "int16", "uint16"):
        return None
    axis, limits = int(call.attributes.get("axis", 1)), np.iinfo(dtype)
    values = relax.op.round(relax.op.divide(call.inputs[0], _repeat(call, 1, block, axis)))
    if call.input(2) is not None:
        values = relax.op.add(values, relax.op.astype(_repeat(call, 2, block, axis), call.dtype()))
    return relax.op.astype(relax.op.clip(values, int(limits.min), int(limits.max)), dtype)


def _repeat(call: NodeCall, position: int, block: int, axis: int) -> Any:
    repeated = call.normal(relax.op.repeat(call.inputs[position], block, axis))
    # The last block may be shorter.
    return relax.op.strided_slice(repeated, [axis], [0], [call.shape()[axis]])


def _spread(values: np.ndarray, block: int, axis: int, like: np.ndarray) -> np.ndarray:
    return np.take(np.repeat(values, block, axis), range(like.shape[axis]), axis)


CONVERTERS: dict[str, Converter] = {
    "DequantizeLinear": _dequantize_blocks,
    "QLinearConv": _convolution,
    "QLinearMatMul": _product,
    "QuantizeLinear": _quantize_blocks,
    "com.microsoft.QLinearAdd": _of_two(relax.op.add),
    "com.microsoft.QLinearAveragePool": _of_one(_average),
    "com.microsoft.QLinearConcat": _concatenation,
    "com.microsoft.QLinearConv": _convolution,
    "com.microsoft.QLinearGlobalAveragePool": _of_one(_global_average),
    "com.microsoft.QLinearLeakyRelu": _of_one(
        lambda call, data: relax.op.nn.leakyrelu(data, float(call.attributes.get("alpha", 0.01)))
    ),
    "com.microsoft.QLinearMul": _of_two(relax.op.multiply),
    "com.microsoft.QLinearSigmoid": _of_one(lambda _, data: relax.op.sigmoid(data)),
    "com.microsoft.QLinearSoftmax": _of_one(_softmax),
}
