"""Operators that take values to other places."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.split.export.relax_onnx.graph_writer import GraphWriter
from pipeline.split.export.relax_onnx.operands import axes, integers, shape
from pipeline.split.export.relax_onnx.tensors import Tensor, constant


def _reshape(graph: GraphWriter, call: Any) -> Tensor:
    return graph.reshape(graph.tensor(call.args[0]), shape(call))


def _permute(graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    order = axes(call.attrs.axes, len(source.shape))
    return graph.transpose(source, order if call.attrs.axes is not None else order[::-1])


def _concat(graph: GraphWriter, call: Any) -> Tensor:
    sources = graph.results(call.args[0])
    return graph.node("Concat", sources, shape(call), axis=axes(call.attrs.axis, len(shape(call)))[0])


def _split(graph: GraphWriter, call: Any) -> list[Tensor]:
    source = graph.tensor(call.args[0])
    axis = int(call.attrs.axis) % len(source.shape)
    results = [(shape_of(field), source.dtype) for field in call.ty.fields]
    sizes = constant([extents[axis] for extents, _ in results], np.int64)
    return graph.several("Split", [source, sizes], results, axis=axis)


def shape_of(ty: Any) -> tuple[int, ...]:
    """Return the extents of a tensor's type."""
    return tuple(int(extent) for extent in ty.shape)


def _broadcast(graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    return source if source.shape == shape(call) else expand(graph, source, shape(call))


def expand(graph: GraphWriter, source: Tensor, extents: Any) -> Tensor:
    """Write what repeats a tensor up to these extents."""
    return graph.node("Expand", [source, constant(list(extents), np.int64)], extents)


def _strided_slice(graph: GraphWriter, call: Any) -> Tensor:
    numbers = [constant(integers(operand), np.int64) for operand in call.args[2:]]
    source, listed = graph.tensor(call.args[0]), constant(integers(call.args[1]), np.int64)
    starts, ends, *strides = numbers
    return graph.node("Slice", [source, starts, ends, listed, *strides], shape(call))


WRITERS = {
    **dict.fromkeys(("reshape", "expand_dims", "squeeze", "flatten", "nn.batch_flatten"), _reshape),
    "permute_dims": _permute,
    "concat": _concat,
    "split": _split,
    "broadcast_to": _broadcast,
    "strided_slice": _strided_slice,
}
