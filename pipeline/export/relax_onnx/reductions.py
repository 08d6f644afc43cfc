"""Reductions over axes."""

from __future__ import annotations

import functools
from typing import Any

from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.operands import axes, dtype, shape
from pipeline.export.relax_onnx.tensors import Tensor


def _reduction(kind: str, graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    return reduce(graph, kind, source, axes(call.attrs.axis, len(source.shape)), keep=bool(call.attrs.keepdims))


def reduce(graph: GraphWriter, kind: str, source: Tensor, over: Any, *, keep: bool = True) -> Tensor:
    """Write a reduction over some axes."""
    extents = [1 if axis in over else extent for axis, extent in enumerate(source.shape)]
    result_shape = extents if keep else [extent for axis, extent in enumerate(source.shape) if axis not in over]
    return graph.node(kind, [source], result_shape, axes=tuple(over), keepdims=int(keep))


def _index(kind: str, graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    keep = bool(call.attrs.keepdims)
    if call.attrs.axis is None:
        source = graph.reshape(source, [-1])
        keep = False
    axis = axes(call.attrs.axis, len(source.shape))[0]
    indices = graph.node(
        kind, [source], [e for n, e in enumerate(source.shape) if n != axis] if not keep else shape(call), "int64",
        axis=axis, keepdims=int(keep),
    )  # fmt: skip
    return graph.cast(graph.reshape(indices, shape(call)), dtype(call))


def _variance(graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    return variance(graph, source, axes(call.attrs.axis, len(source.shape)), keep=bool(call.attrs.keepdims))


def variance(graph: GraphWriter, source: Tensor, over: Any, *, keep: bool = True) -> Tensor:
    """Write the variance: the mean squared distance from the mean."""
    distance = graph.elementwise("Sub", source, reduce(graph, "ReduceMean", source, over))
    return reduce(graph, "ReduceMean", graph.node("Mul", [distance, distance]), over, keep=keep)


def _deviation(graph: GraphWriter, call: Any) -> Tensor:
    return graph.node("Sqrt", [_variance(graph, call)])


WRITERS = {
    "max": functools.partial(_reduction, "ReduceMax"),
    "min": functools.partial(_reduction, "ReduceMin"),
    "sum": functools.partial(_reduction, "ReduceSum"),
    "mean": functools.partial(_reduction, "ReduceMean"),
    "prod": functools.partial(_reduction, "ReduceProd"),
    "argmax": functools.partial(_index, "ArgMax"),
    "argmin": functools.partial(_index, "ArgMin"),
    "variance": _variance,
    "std": _deviation,
}
