"""Conversions between real numbers and quantised integers."""

from __future__ import annotations

from typing import Any

from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.tensors import Tensor


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
