"""Integer layers as DequantizeLinear, a real layer, and QuantizeLinear.

Vendors' compilers want this form.

The scale of all activations is 1, and weights have the ratios of the model's scales.  Halves are rounded to even here,
and away from zero there, and sums are real numbers of 32 bits: a result may differ by one step.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pipeline.export.relax_onnx import convolutions, layouts
from pipeline.export.relax_onnx.elementwise import clip
from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.operands import Definitions, axes, dtype, integers, shape
from pipeline.export.relax_onnx.reductions import reduce
from pipeline.export.relax_onnx.tensors import Tensor, constant
from pipeline.model.passes.bindings import array, calls
from pipeline.model.requantization import NONE, Requantization

_BYTES = ("int8", "uint8")


class Mean(NamedTuple):
    """Sum of a tensor of bytes over axes, less zero points."""

    data: Any
    zero: int
    axes: tuple[int, ...]
    elements: int
    """Number of elements in each sum."""


def find_mean(definitions: Definitions, expression: Any) -> Mean | None:
    """Return the sum over axes inside a mean, or None."""
    less = definitions.with_constant(expression, "subtract")
    total = definitions.call(expression if less is None else less[0], "sum")
    cast = None if total is None else definitions.call(total.args[0], "astype")
    if total is None or cast is None or dtype(cast.args[0]) not in _BYTES or (less is not None and less[1].ndim):
        return None
    extents = shape(cast.args[0])
    over = axes(total.attrs.axis, len(extents))
    count = math.prod(extents[axis] for axis in over)
    zero, remainder = divmod(0 if less is None else int(less[1]), count)
    return None if remainder else Mean(cast.args[0], zero, over, count)


_ONE = np.float32(1)
_KINDS = {"add": "Add", "subtract": "Sub", "multiply": "Mul"}
_PRODUCTS = ("nn.conv2d", "nn.conv2d_transpose", "matmul")


def write_layer(graph: GraphWriter, requantization: Requantization, source: Any) -> Tensor | None:
    """Write the layer before a requantization to bytes, or return None."""
    if requantization.dtype not in _BYTES:
        return None
    if requantization.operator == "Softmax":
        return _write_softmax(graph, requantization, source)
    numbers = _RealNumbers(graph)
    if requantization.operator == "AveragePool":
        return _quantize(graph, numbers.average(source), requantization)
    if requantization.rounding != NONE:
        return _quantize(graph, numbers.scale(source, requantization.factor), requantization)
    # An activation with two slopes.
    choice = graph.definitions.call(source, "where")
    if choice is None or any(graph.definitions.requantized(branch) is None for branch in choice.args[1:]):
        return None
    return _quantize(graph, numbers.write(source), requantization)


def _write_softmax(graph: GraphWriter, requantization: Requantization, source: Any) -> Tensor:
    data = graph.tensor(graph.definitions.nearest(source, lambda operand: dtype(operand) in _BYTES))
    operands = [data, constant(requantization.operand_scale, np.float32), constant(0, data.dtype)]
    real = graph.node("DequantizeLinear", operands, dtype="float32")
    shares = graph.node("Softmax", [real], axis=len(data.shape) - 1)
    # As LiteRT has it for all: one is 256 steps.
    zero = constant(requantization.zero, requantization.dtype)
    return graph.node("QuantizeLinear", [shares, constant(np.float32(1 / 256)), zero], dtype=requantization.dtype)


def _quantize(graph: GraphWriter, real: Tensor, form: Requantization) -> Tensor:
    limits = np.iinfo(form.dtype)
    low, high = form.low - form.zero, form.high - form.zero
    if low == 0 and form.high == limits.max:
        real = graph.node("Relu", [real])
    elif (form.low, form.high) != (limits.min, limits.max):
        real = clip(graph, real, low, high)
    return graph.node("QuantizeLinear", [real, constant(_ONE), constant(form.zero, form.dtype)], dtype=form.dtype)


class _RealNumbers:
    """Writer of integer expressions as their real numbers."""

    def __init__(self, graph: GraphWriter) -> None:
        self._graph, self._definitions = graph, graph.definitions

    def write(self, expression: Any) -> Tensor:
        """Return a float32 tensor."""
        if (values := array(expression)) is not None:
            return constant(values, np.float32)
        if (requantized := self._definitions.requantized(expression)) is not None:
            requantization, source = requantized
            return self.scale(source, requantization.factor)
        for write in (self._bytes, self._moved, self._combined):
            if (real := write(expression)) is not None:
                return real
        return self._graph.cast(self._graph.tensor(expression), "float32")

    def average(self, expression: Any) -> Tensor:
        """Write an average over windows: sums of a convolution by ones."""
        sums = self._definitions.nearest(
            expression, lambda operand: self._definitions.call(operand, "nn.conv2d") is not None
        )
        call = self._definitions.value(sums)
        data = layouts.channels_first(self._graph, self.write(call.args[0]), "NHWC")
        pooled = self._graph.node(
            "AveragePool", [data], [shape(call)[axis] for axis in (0, 3, 1, 2)],
            kernel_shape=list(shape(call.args[1])[:2]), strides=integers(call.attrs.strides),
            pads=integers(call.attrs.padding), count_include_pad=0,
        )  # fmt: skip
        return layouts.channels_as(self._graph, pooled, "NHWC")

    def _moved(self, expression: Any) -> Tensor | None:
        """Write a move or a widening of integers."""
        call = self._definitions.call(expression, "reshape", "permute_dims", "astype")
        if call is None or not dtype(call.args[0]).startswith("int"):
            return None
        real = self.write(call.args[0])
        if calls(call, "permute_dims"):
            return self._graph.transpose(real, axes(call.attrs.axes, len(real.shape), backwards=True))
        return self._graph.reshape(real, shape(call))

    def _combined(self, expression: Any) -> Tensor | None:
        """Write a sum, difference, product or choice of integers."""
        call = self._definitions.call(expression, *_KINDS, *_PRODUCTS, "where")
        if call is None or not dtype(call).startswith("int"):
            return None
        if calls(call, "where"):
            branches = [self.write(branch) for branch in call.args[1:]]
            return self._graph.elementwise("Where", self._graph.tensor(call.args[0]), *branches, dtype="float32")
        if calls(call, *_KINDS):
            kind = _KINDS[str(call.op.name).removeprefix("relax.")]
            return self._graph.elementwise(kind, *(self.write(operand) for operand in call.args))
        return self._product(call, np.ones(()), None) if array(call.args[1]) is not None else None

    def _bytes(self, expression: Any) -> Tensor | None:
        """Write bytes less their zero point."""
        centered = self._definitions.with_constant(expression, "subtract")
        source, zero = centered if centered is not None else (expression, np.zeros((), np.int32))
        cast = self._definitions.call(source, "astype")
        if cast is None or dtype(cast.args[0]) not in _BYTES or zero.ndim:
            return None
        data = self._graph.tensor(cast.args[0])
        limits = np.iinfo(data.dtype)
        if not limits.min <= int(zero) <= limits.max:
            return None
        return self._graph.node("DequantizeLinear", [data, constant(_ONE), constant(zero, data.dtype)], dtype="float32")

    def scale(self, source: Any, factor: np.ndarray) -> Tensor:
        """Write a product with a factor, the weights' own if any."""
        graph = self._graph
        mean = find_mean(self._definitions, source)
        if mean is not None and not factor.ndim:
            data = graph.tensor(mean.data)
            operands = [data, constant(_ONE), constant(mean.zero, data.dtype)]
            real = graph.node("DequantizeLinear", operands, dtype="float32")
            average = reduce(graph, "ReduceMean", real, mean.axes, keep=len(shape(source)) == len(data.shape))
            return graph.elementwise("Mul", average, constant(factor * mean.elements, np.float32))
        biased = self._definitions.with_constant(source, "add")
        product, bias = biased if biased is not None and biased[1].ndim <= 1 else (source, None)
        call = self._definitions.call(product, *_PRODUCTS)
        if call is not None and array(call.args[1]) is not None:
            return self._product(call, factor, bias)
        # Bytes have a scale of their own.
        real = self.write(source)
        return graph.elementwise("Mul", real, constant(factor, np.float32))

    def _product(self, call: Any, factor: np.ndarray, bias: np.ndarray | None) -> Tensor:
        """Write a product with constant weights. Each result has its factor, and its bias before that."""
        graph = self._graph
        weights, axis = _constant_weights(call)
        channels = shape(call)[-1]
        has_channels_last = axis == weights.ndim - 1 or str(call.attrs.data_layout).endswith("C")
        fits = has_channels_last and weights.shape[axis] == channels
        if not fits and factor.ndim:
            return graph.elementwise("Mul", self._product(call, np.ones(()), bias), constant(factor, np.float32))
        data, real_weights = self.write(call.args[0]), _dequantize_weights(graph, weights, factor, axis)
        if bias is not None and fits and not calls(call, "matmul"):
            biases, scales = np.broadcast_to(bias, channels), constant(factor, np.float32)
            real_bias = graph.node(
                "DequantizeLinear",
                [constant(biases, np.int32), scales],
                dtype="float32",
                axis=0 if factor.ndim else None,
            )
            return convolutions.convolve(graph, call, data, real_weights, real_bias)
        if calls(call, "matmul"):
            result = graph.node("MatMul", [data, real_weights], shape(call))
        else:
            result = convolutions.convolve(graph, call, data, real_weights)
        return result if bias is None else graph.elementwise("Add", result, constant(bias * factor, np.float32))


def _constant_weights(call: Any) -> tuple[np.ndarray, int]:
    """Return weights in ONNX's order, with the axis of results."""
    values = array(call.args[1])
    assert values is not None  # noqa: S101 - asked before
    if calls(call, "matmul"):
        return values, values.ndim - 1
    return values.transpose(convolutions.weights_order(call)), 1 if calls(call, "nn.conv2d_transpose") else 0


def _dequantize_weights(graph: GraphWriter, values: np.ndarray, factor: np.ndarray, axis: int) -> Tensor:
    """Write weights as bytes with their scales, where they fit."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    if high - low > np.iinfo(np.uint8).max:
        column = (
            factor.reshape([-1 if number == axis else 1 for number in range(values.ndim)]) if factor.ndim else factor
        )
        return constant(values * column, np.float32)
    kind, zero = ("int8", 0) if low >= -128 and high <= 127 else ("uint8", -low)
    zeros = np.full(factor.shape, zero, kind)
    quantized = constant((values.astype(np.int64) + zero).astype(kind))
    return graph.node(
        "DequantizeLinear", [quantized, constant(factor, np.float32), constant(zeros)], dtype="float32",
        axis=axis if factor.ndim else None,
    )  # fmt: skip
