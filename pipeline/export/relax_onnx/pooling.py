"""Poolings over windows, and adaptive ones."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.export.relax_onnx import layouts
from pipeline.export.relax_onnx.axis_orders import inverse
from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.operands import integers, shape
from pipeline.export.relax_onnx.tensors import Tensor, constant


def _pool(kind: str, graph: GraphWriter, call: Any) -> Tensor:
    attrs = call.attrs
    layout = str(attrs.layout)
    out_layout = str(attrs.out_layout) or layout
    data = layouts.channels_first(graph, graph.tensor(call.args[0]), layout)
    extents = [shape(call)[axis] for axis in layouts.order(out_layout, "NC")]
    window, strides, dilations = (integers(values) for values in (attrs.pool_size, attrs.strides, attrs.dilation))
    padding = integers(attrs.padding)
    attributes: dict[str, Any] = {}
    wide_padding = _padding_to(extents[2:], data.shape[2:], (window, strides, dilations), padding)
    if kind == "AveragePool" and attrs.count_include_pad and wide_padding != padding:
        # What lies beyond the padding does not count, which only this says.
        attributes["ceil_mode"] = 1
    else:
        padding = wide_padding
    if kind == "AveragePool":
        attributes["count_include_pad"] = int(attrs.count_include_pad)
    # Of averages they came later; nobody needs them there.
    if kind == "MaxPool" or set(dilations) != {1}:
        attributes["dilations"] = dilations
    pooled = graph.node(kind, [data], extents, kernel_shape=window, strides=strides, pads=padding, **attributes)
    return layouts.channels_as(graph, pooled, out_layout)


def _padding_to(
    extents: Sequence[int], sources: Sequence[int], windows: tuple[list[int], ...], padding: list[int]
) -> list[int]:
    """Return a padding with room for the last windows. ONNX drops some of these windows when it rounds up."""
    rank = len(extents)
    ends = [
        (extent - 1) * stride + (size - 1) * step + 1 - source - start
        for extent, source, size, stride, step, start in zip(extents, sources, *windows, padding, strict=False)
    ]
    return [*padding[:rank], *(max(end, limit) for end, limit in zip(ends, padding[rank:], strict=True))]


def _adaptive_average(graph: GraphWriter, call: Any) -> Tensor:
    layout = str(call.attrs.layout)
    data = layouts.channels_first(graph, graph.tensor(call.args[0]), layout)
    extents = [shape(call)[axis] for axis in layouts.order(layout, "NC")]
    if all(extent == 1 for extent in extents[2:]):
        pooled = graph.node("GlobalAveragePool", [data], extents)
    elif not any(size % count for size, count in zip(data.shape[2:], extents[2:], strict=True)):
        window = [size // count for size, count in zip(data.shape[2:], extents[2:], strict=True)]
        pooled = graph.node("AveragePool", [data], extents, kernel_shape=window, strides=window)
    else:
        pooled = data
        for axis in range(2, len(extents)):
            pooled = _average_along(graph, pooled, axis, extents[axis])
    return layouts.channels_as(graph, pooled, layout)


def _average_along(graph: GraphWriter, source: Tensor, axis: int, count: int) -> Tensor:
    """Write averages over unequal windows as a product with their shares."""
    size = source.shape[axis]
    if size == count:
        return source
    shares = np.zeros((size, count), source.dtype)
    for window in range(count):
        begin, end = window * size // count, -(-(window + 1) * size // count)
        shares[begin:end, window] = 1 / (end - begin)
    order = [*(number for number in range(len(source.shape)) if number != axis), axis]
    rows = graph.transpose(source, order)
    return graph.transpose(graph.node("MatMul", [rows, constant(shares)], (*rows.shape[:-1], count)), inverse(order))


WRITERS = {
    **{f"nn.max_pool{rank}d": functools.partial(_pool, "MaxPool") for rank in (1, 2, 3)},
    **{f"nn.avg_pool{rank}d": functools.partial(_pool, "AveragePool") for rank in (1, 2, 3)},
    **{f"nn.adaptive_avg_pool{rank}d": _adaptive_average for rank in (1, 2, 3)},
}
