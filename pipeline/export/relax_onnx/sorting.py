"""Sorting, and running sums along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.operands import axes, dtype, shape
from pipeline.export.relax_onnx.tensors import Tensor, constant


def _top(graph: GraphWriter, call: Any) -> Any:
    source, attrs = graph.tensor(call.args[0]), call.attrs
    axis = axes(attrs.axis, len(source.shape))[0]
    fields = call.ty.fields if hasattr(call.ty, "fields") else [call.ty]
    extents = tuple(int(extent) for extent in fields[0].shape)
    values, indices = top(graph, source, axis, extents[axis], largest=bool(attrs.largest))
    kind = str(attrs.ret_type)
    if kind == "values":
        return values
    indices = graph.cast(indices, str(fields[-1].dtype))
    return indices if kind == "indices" else [values, indices]


def top(graph: GraphWriter, source: Tensor, axis: int, count: int, *, largest: bool) -> list[Tensor]:
    """Write the largest or smallest values along an axis, and their indices."""
    extents = [count if number == axis else extent for number, extent in enumerate(source.shape)]
    return graph.several(
        "TopK", [source, constant([count], np.int64)], [(extents, source.dtype), (extents, "int64")], axis=axis,
        largest=int(largest),
    )  # fmt: skip


def _sort(graph: GraphWriter, call: Any) -> Tensor:
    return _sorted(graph, call)[0]


def _argsort(graph: GraphWriter, call: Any) -> Tensor:
    return graph.cast(_sorted(graph, call)[1], dtype(call))


def _sorted(graph: GraphWriter, call: Any) -> list[Tensor]:
    source = graph.tensor(call.args[0])
    axis = axes(call.attrs.axis, len(source.shape))[0]
    return top(graph, source, axis, source.shape[axis], largest=bool(call.attrs.descending))


def _running(graph: GraphWriter, call: Any) -> tuple[Tensor, int]:
    source = graph.cast(graph.tensor(call.args[0]), dtype(call))
    if call.attrs.axis is None:
        source = graph.reshape(source, shape(call))
    return source, axes(call.attrs.axis, len(source.shape))[0]


def _running_sum(graph: GraphWriter, call: Any) -> Tensor:
    source, axis = _running(graph, call)
    return graph.node("CumSum", [source, constant(axis, np.int64)], exclusive=int(bool(call.attrs.exclusive)))


def _running_product(graph: GraphWriter, call: Any) -> Tensor:
    """Write running products in doubling steps; ONNX has only sums."""
    source, axis = _running(graph, call)
    extent, distance = source.shape[axis], 1
    if call.attrs.exclusive:
        source = _delay(graph, source, axis, 1)
    while distance < extent:
        source = graph.node("Mul", [source, _delay(graph, source, axis, distance)])
        distance *= 2
    return source


def _delay(graph: GraphWriter, source: Tensor, axis: int, distance: int) -> Tensor:
    ones = constant(np.ones([distance if n == axis else e for n, e in enumerate(source.shape)]), source.dtype)
    head = [extent - distance if n == axis else extent for n, extent in enumerate(source.shape)]
    return graph.concat([ones, graph.slice(source, {axis: (0, head[axis], 1)}, head)], axis)


WRITERS = {
    "topk": _top,
    "sort": _sort,
    "argsort": _argsort,
    "cumsum": _running_sum,
    "cumprod": _running_product,
}
