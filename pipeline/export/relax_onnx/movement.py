"""Operators that only move values, or pad them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.export.relax_onnx.axis_orders import find_order, inverse, undo
from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.operands import axes, integers, shape
from pipeline.export.relax_onnx.tensors import Tensor, Unwritable, constant


def _reshape(graph: GraphWriter, call: Any) -> Tensor:
    return graph.reshape(graph.tensor(call.args[0]), shape(call))


def _permute(graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    return graph.transpose(source, axes(call.attrs.axes, len(source.shape), backwards=True))


def _concat(graph: GraphWriter, call: Any) -> Tensor:
    return graph.concat(graph.results(call.args[0]), axes(call.attrs.axis, len(shape(call)))[0])


def _stack(graph: GraphWriter, call: Any) -> Tensor:
    axis = axes(call.attrs.axis, len(shape(call)))[0]
    sources = graph.results(call.args[0])
    return graph.concat(
        [graph.reshape(source, (*source.shape[:axis], 1, *source.shape[axis:])) for source in sources], axis
    )


def _split(graph: GraphWriter, call: Any) -> list[Tensor]:
    source = graph.tensor(call.args[0])
    axis = int(call.attrs.axis) % len(source.shape)
    results = [
        (tuple(int(extent) for extent in field.shape), source.dtype) for field in getattr(call.ty, "fields", [call.ty])
    ]
    sizes = constant([extents[axis] for extents, _ in results], np.int64)
    return graph.several("Split", [source, sizes], results, axis=axis)


def _broadcast(graph: GraphWriter, call: Any) -> Tensor:
    return graph.expand(graph.tensor(call.args[0]), shape(call))


def _strided_slice(graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    listed, starts, ends, *strides = (integers(operand) for operand in call.args[1:])
    steps = strides[0] if strides else [1] * len(starts)
    ranges = zip(starts, ends, steps, strict=True)
    return graph.slice(source, dict(zip(axes(listed, len(source.shape)), ranges, strict=True)), shape(call))


def _flip(graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    return graph.flip(source, axes(call.attrs.axis, len(source.shape))[0])


def _tile(graph: GraphWriter, call: Any) -> Tensor:
    source, repeats = graph.tensor(call.args[0]), integers(call.attrs.repeats)
    rank = max(len(source.shape), len(repeats))
    source = graph.reshape(source, (*[1] * (rank - len(source.shape)), *source.shape))
    repeats = [1] * (rank - len(repeats)) + repeats
    return graph.node("Tile", [source, constant(repeats, np.int64)], shape(call))


def _repeat(graph: GraphWriter, call: Any) -> Tensor:
    source, count = graph.tensor(call.args[0]), int(call.attrs.repeats)
    if call.attrs.axis is None:
        source = graph.reshape(source, (math.prod(source.shape),))
    axis = axes(call.attrs.axis, len(source.shape))[0]
    head, tail = source.shape[: axis + 1], source.shape[axis + 1 :]
    copies = graph.expand(graph.reshape(source, (*head, 1, *tail)), (*head, count, *tail))
    return graph.reshape(copies, shape(call))


def _meshgrid(graph: GraphWriter, call: Any) -> list[Tensor]:
    sources = graph.results(call.args[0])
    positions = list(range(len(sources)))
    # The first two change places where the second is counted along rows.
    if str(call.attrs.indexing) == "xy" and len(positions) > 1:
        positions[:2] = 1, 0
    rank = len(sources)
    extents = tuple(int(extent) for extent in call.ty.fields[0].shape)
    columns = [
        graph.reshape(source, [math.prod(source.shape) if axis == position else 1 for axis in range(rank)])
        for source, position in zip(sources, positions, strict=True)
    ]
    return [graph.expand(column, extents) for column in columns]


def _triangle(upper: int, graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    offset = integers([call.args[1]])[0]
    return graph.node("Trilu", [source, constant(offset, np.int64)], upper=upper)


def _depth_to_space(graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    return graph.node("DepthToSpace", [source], shape(call), blocksize=int(call.attrs.upscale_factor), mode="CRD")


def _dropout(graph: GraphWriter, call: Any) -> list[Tensor]:
    # Nothing is dropped outside of training.
    source = graph.tensor(call.args[0])
    return [source, graph.expand(constant(1, source.dtype), source.shape)]


def _fill(values: float, graph: GraphWriter, call: Any) -> Tensor:
    return graph.expand(constant(values, str(call.ty.dtype)), shape(call))


def _size(_graph: GraphWriter, call: Any) -> Tensor:
    return constant(math.prod(shape(call.args[0])), np.int64)


def _full(graph: GraphWriter, call: Any) -> Tensor:
    return graph.expand(graph.cast(graph.tensor(call.args[1]), str(call.ty.dtype)), shape(call))


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "edge": "edge"}
_NUMPY_MODES = {"circular": "wrap"}
"""NumPy's name of a mode that came late to ONNX: a gather writes it instead."""


def _pad(graph: GraphWriter, call: Any) -> Tensor:
    source, widths = graph.tensor(call.args[0]), integers(call.attrs.pad_width)
    mode = str(call.attrs.pad_mode)
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if not any(widths):
        return source
    if mode in _NUMPY_MODES:
        return _pad_by_gather(graph, source, pairs, _NUMPY_MODES[mode])
    if mode not in _MODES:
        raise Unwritable(f"its mode is {mode}")
    order = find_order([source], len(source.shape), graph.makers)
    originals = undo([source], order, graph.transposed) if order is not None else None
    if order is not None and originals is not None and originals[0] is not None:
        pairs = [pairs[axis] for axis in inverse(order)]
        return graph.transpose(_write(graph, originals[0], pairs, call), order)
    return _write(graph, source, pairs, call)


def _write(graph: GraphWriter, source: Tensor, pairs: Sequence[tuple[int, int]], call: Any) -> Tensor:
    mode, widths = str(call.attrs.pad_mode), [width for side in (0, 1) for width in (pair[side] for pair in pairs)]
    operands = [source, constant(widths, np.int64)]
    if mode == "constant":
        operands.append(graph.scalar(float(call.attrs.pad_value), source))
    extents = [extent + sum(pair) for extent, pair in zip(source.shape, pairs, strict=True)]
    return graph.node("Pad", operands, extents, mode=_MODES[mode])


def _pad_by_gather(graph: GraphWriter, source: Tensor, pairs: Sequence[tuple[int, int]], mode: Any) -> Tensor:
    for axis, width in enumerate(pairs):
        if any(width):
            indices = np.pad(np.arange(source.shape[axis]), width, mode)
            source = graph.gather(source, constant(indices), axis)
    return source


WRITERS = {
    **dict.fromkeys(("reshape", "expand_dims", "squeeze", "flatten", "nn.batch_flatten"), _reshape),
    "permute_dims": _permute,
    "concat": _concat,
    "stack": _stack,
    "split": _split,
    "broadcast_to": _broadcast,
    "strided_slice": _strided_slice,
    "flip": _flip,
    "tile": _tile,
    "repeat": _repeat,
    "meshgrid": _meshgrid,
    "tril": functools.partial(_triangle, 0),
    "triu": functools.partial(_triangle, 1),
    "nn.pad": _pad,
    "nn.pixel_shuffle": _depth_to_space,
    "nn.dropout": _dropout,
    "zeros": functools.partial(_fill, 0),
    "zeros_like": functools.partial(_fill, 0),
    "ones": functools.partial(_fill, 1),
    "ones_like": functools.partial(_fill, 1),
    "size": _size,
    "full": _full,
    "full_like": _full,
}
