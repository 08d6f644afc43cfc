"""Gathers and scatters by computed indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.operands import axes, dtype, integers, is_given, number, shape
from pipeline.export.relax_onnx.tensors import Tensor, Unwritable, constant


def _take(graph: GraphWriter, call: Any) -> Tensor:
    source, indices = graph.tensor(call.args[0]), _indices(graph, call.args[1])
    if call.attrs.axis is None:
        source = graph.reshape(source, (int(np.prod(source.shape)),))
    axis = axes(call.attrs.axis, len(source.shape))[0]
    extent, mode = source.shape[axis], str(call.attrs.mode)
    if mode == "clip":
        low, high = graph.scalar(0, indices), graph.scalar(extent - 1, indices)
        indices = _bounded(indices, 0, extent) or graph.node("Clip", [indices, low, high])
    elif mode == "wrap":
        indices = _bounded(indices, 0, extent) or graph.elementwise("Mod", indices, graph.scalar(extent, indices))
    return graph.gather(source, indices, axis)


def _bounded(indices: Tensor, low: int, high: int) -> Tensor | None:
    """Return indices with known bounds."""
    values = indices.values
    return indices if values is not None and bool(((low <= values) & (values < high)).all()) else None


def _indices(graph: GraphWriter, operand: Any) -> Tensor:
    if not hasattr(operand.ty, "shape"):
        return constant(number(operand), np.int64)
    indices = graph.tensor(operand)
    return indices if indices.dtype in ("int32", "int64") else graph.cast(indices, "int64")


def _gather_elements(graph: GraphWriter, call: Any) -> Tensor:
    source, indices = graph.tensor(call.args[0]), _indices(graph, call.args[1])
    axis = axes(call.attrs.axis, len(source.shape))[0]
    return graph.node("GatherElements", [source, indices], shape(call), axis=axis)


def _gather_nd(graph: GraphWriter, call: Any) -> Tensor:
    source, indices = (graph.tensor(operand) for operand in call.args)
    batch = int(call.attrs.batch_dims)
    return graph.node("GatherND", [source, graph.cast(indices, "int64")], shape(call), batch_dims=batch or None)


_REDUCTIONS = {"update": None, "none": None, "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _reduction(call: Any) -> str | None:
    name = str(call.attrs.reduction)
    if name not in _REDUCTIONS:
        raise Unwritable(f"its reduction is {name}")
    return _REDUCTIONS[name]


def _scatter_elements(graph: GraphWriter, call: Any) -> Tensor:
    source, indices, updates = graph.tensor(call.args[0]), _indices(graph, call.args[1]), graph.tensor(call.args[2])
    axis = axes(call.attrs.axis, len(source.shape))[0]
    return graph.node("ScatterElements", [source, indices, updates], axis=axis, reduction=_reduction(call))


def _scatter_nd(graph: GraphWriter, call: Any) -> Tensor:
    source, indices, updates = (graph.tensor(operand) for operand in call.args)
    return graph.node("ScatterND", [source, graph.cast(indices, "int64"), updates], reduction=_reduction(call))


def _index_tensor(graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    return graph.node("GatherND", [source, _coordinates(graph, graph.results(call.args[1]))], shape(call))


def _index_put(graph: GraphWriter, call: Any) -> Tensor:
    source, values = graph.tensor(call.args[0]), graph.tensor(call.args[2])
    coordinates = _coordinates(graph, graph.results(call.args[1]))
    extents = (*coordinates.shape[:-1], *source.shape[coordinates.shape[-1] :])
    updates = graph.expand(values, extents)
    return graph.node("ScatterND", [source, coordinates, updates], reduction="add" if call.attrs.accumulate else None)


def _coordinates(graph: GraphWriter, indices: Sequence[Tensor]) -> Tensor:
    """Write indices of the first axes as one tensor of coordinates."""
    extents = np.broadcast_shapes(*(column.shape for column in indices))
    columns = [graph.expand(graph.cast(column, "int64"), extents) for column in indices]
    return graph.concat([graph.reshape(column, (*extents, 1)) for column in columns], len(extents))


def _slice_scatter(graph: GraphWriter, call: Any) -> Tensor:
    source, updates = graph.tensor(call.args[0]), graph.tensor(call.args[1])
    start, end, step = integers(call.args[2:5])
    axis = axes(call.attrs.axis, len(source.shape))[0]
    row_indices = np.arange(source.shape[axis])[slice(start, end, step)].reshape(-1, 1)
    order = (axis, *(dimension for dimension in range(len(source.shape)) if dimension != axis))
    rows, new_rows = (graph.transpose(tensor, order) for tensor in (source, updates))
    return graph.transpose(graph.node("ScatterND", [rows, constant(row_indices), new_rows]), np.argsort(order).tolist())


def _one_hot(graph: GraphWriter, call: Any) -> Tensor:
    indices = graph.tensor(call.args[0])
    on, off = (number(operand) for operand in call.args[1:3])
    rank = len(indices.shape)
    axis, depth = int(call.attrs.axis) % (rank + 1), int(call.attrs.depth)
    # Compared with all places: the operator of ONNX counts negative ones from the end.
    column = graph.reshape(indices, (*indices.shape[:axis], 1, *indices.shape[axis:]))
    line = constant(np.arange(depth).reshape([-1] + [1] * (rank - axis)), indices.dtype)
    is_place = graph.elementwise("Equal", column, line, dtype="bool")
    target = dtype(call)
    return graph.elementwise("Where", is_place, constant(on, target), constant(off, target), dtype=target)


def _bucketize(graph: GraphWriter, call: Any) -> Tensor:
    source, borders = (graph.tensor(operand) for operand in call.args)
    column = graph.reshape(source, (*source.shape, 1))
    is_behind = graph.elementwise(
        "GreaterOrEqual" if call.attrs.right else "Greater", column, graph.cast(borders, source.dtype), dtype="bool"
    )
    target = dtype(call) if is_given(dtype(call)) else "int64"
    counts = graph.node(
        "ReduceSum", [graph.cast(is_behind, target)], source.shape, axes=(len(source.shape),), keepdims=0
    )
    return graph.reshape(counts, shape(call))


WRITERS = {
    "take": _take,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "index_tensor": _index_tensor,
    "index_put": _index_put,
    "slice_scatter": _slice_scatter,
    "one_hot": _one_hot,
    "bucketize": _bucketize,
}
