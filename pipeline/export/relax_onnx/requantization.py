"""Quantization, dequantization, and requantization as integer nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.integer_arithmetic import shift_left, shift_right
from pipeline.export.relax_onnx.tensors import Tensor, constant
from pipeline.model.requantization import Requantization, spread


def write_requantization(graph: GraphWriter, requantization: Requantization, operand: Any) -> Tensor:
    """Write a kernel's arithmetic, equal to the bit."""
    source = _Number(graph, graph.tensor(operand))
    number: _Number = requantization.compute(_Nodes(graph, requantization.axis), source)
    return number.tensor


class _Number:
    """Tensor with Python's operators."""

    def __init__(self, graph: GraphWriter, tensor: Tensor) -> None:
        self.graph, self.tensor = graph, tensor

    def astype(self, dtype: str) -> _Number:
        return _Number(self.graph, self.graph.cast(self.tensor, dtype))

    def write(self, kind: str, *others: Any, dtype: str | None = None) -> _Number:
        """Write an operator on this number, others maybe plain."""
        return _Number(self.graph, self.graph.elementwise(kind, self.tensor, *map(self._tensor, others), dtype=dtype))

    def _tensor(self, other: Any) -> Tensor:
        return other.tensor if isinstance(other, _Number) else self.graph.scalar(other, self.tensor)

    def __add__(self, other: Any) -> _Number:
        return self.write("Add", other)

    def __sub__(self, other: Any) -> _Number:
        return self.write("Sub", other)

    def __mul__(self, other: Any) -> _Number:
        return self.write("Mul", other)

    def __lt__(self, other: Any) -> _Number:
        return self.write("Less", other, dtype="bool")

    def __lshift__(self, other: Any) -> _Number:
        return _Number(self.graph, shift_left(self.graph, self.tensor, self._tensor(other)))

    def __rshift__(self, other: Any) -> _Number:
        return _Number(self.graph, shift_right(self.graph, self.tensor, self._tensor(other)))


class _Nodes:
    """Arithmetic of ONNX: a language of `Requantization.compute`."""

    def __init__(self, graph: GraphWriter, axis: int) -> None:
        self._graph, self._axis = graph, axis

    def step(self, x: _Number, function: Callable[..., Any], *values: np.ndarray) -> Any:
        rank = len(x.tensor.shape)
        return function(
            x, *(_Number(self._graph, constant(spread(channel_values, rank, self._axis))) for channel_values in values)
        )

    def choose(self, condition: _Number, first: _Number, second: _Number) -> _Number:
        return condition.write("Where", first, second, dtype=second.tensor.dtype)

    def floor(self, x: _Number) -> _Number:
        return x.write("Floor")

    def ceil(self, x: _Number) -> _Number:
        return x.write("Ceil")

    def least(self, x: _Number, bound: _Number) -> _Number:
        return x.write("Min", bound)

    def largest(self, x: _Number, bound: _Number) -> _Number:
        return x.write("Max", bound)


def _dequantize(graph: GraphWriter, call: Any) -> Tensor:
    data, scale, zero = (graph.tensor(operand) for operand in call.args)
    return graph.node(
        "DequantizeLinear",
        [data, scale, graph.cast(zero, data.dtype)],
        dtype=scale.dtype,
        axis=_axis(call, scale, data),
    )


def _quantize(graph: GraphWriter, call: Any) -> Tensor:
    data, scale, zero = (graph.tensor(operand) for operand in call.args)
    target = str(call.attrs.out_dtype)
    operands = [data, scale, graph.cast(zero, target)]
    return graph.node("QuantizeLinear", operands, dtype=target, axis=_axis(call, scale, data))


def _axis(call: Any, scale: Tensor, data: Tensor) -> int | None:
    return int(call.attrs.axis) % len(data.shape) if scale.shape else None


WRITERS = {"quantize": _quantize, "dequantize": _dequantize}
