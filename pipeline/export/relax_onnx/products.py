"""Matrix products, and attention in parts: ONNX's own operator is in its latest versions only."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.operands import dtype, is_given, shape
from pipeline.export.relax_onnx.tensors import Tensor, Unwritable, constant


def _product(graph: GraphWriter, call: Any) -> Tensor:
    first, second = (graph.cast(graph.tensor(operand), dtype(call)) for operand in call.args)
    return graph.node("MatMul", [first, second], shape(call))


def _einsum(graph: GraphWriter, call: Any) -> Tensor:
    equation = str(call.attrs.subscripts)
    return graph.node("Einsum", graph.results(call.args[0]), shape(call), dtype(call), equation=equation)


def _attention(graph: GraphWriter, call: Any) -> Tensor:
    attrs = call.attrs
    # Of (batch, positions, heads, depth).
    query, key, value = (graph.transpose(graph.tensor(operand), (0, 2, 1, 3)) for operand in call.args[:3])
    if attrs.window_size is not None or query.shape[1] != key.shape[1]:
        raise Unwritable("its heads differ in number, or see a window only")
    factor = 1 / math.sqrt(query.shape[-1]) if attrs.scale is None else float(attrs.scale)
    query = graph.elementwise("Mul", query, graph.scalar(factor, query))
    turned_key = graph.transpose(key, (0, 1, 3, 2))
    scores = graph.node("MatMul", [query, turned_key], (*query.shape[:-1], turned_key.shape[-1]))
    if len(call.args) > 3:
        scores = graph.elementwise("Add", scores, graph.cast(graph.tensor(call.args[3]), scores.dtype))
    if is_given(attrs.causal_mask):
        scores = graph.elementwise(
            "Add", scores, _mask(str(attrs.causal_mask), scores.shape[-2], scores.shape[-1], scores.dtype)
        )
    shares = graph.node("Softmax", [scores], axis=len(scores.shape) - 1)
    result = graph.node("MatMul", [shares, value], (*shares.shape[:-1], value.shape[-1]))
    return graph.transpose(result, (0, 2, 1, 3))


def _mask(kind: str, queries: int, keys: int, dtype: str) -> Tensor:
    """Return the mask of later keys, counted from either end."""
    offset = 0 if kind == "TopLeft" else keys - queries
    visible = np.tri(queries, keys, offset, dtype=bool)
    return constant(np.where(visible, 0, -np.inf), dtype)


WRITERS = {
    "matmul": _product,
    "einsum": _einsum,
    "nn.attention": _attention,
    "nn.attention_bias": _attention,
}
