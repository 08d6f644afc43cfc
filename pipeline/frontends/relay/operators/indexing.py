"""Operators that pick or place elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, axis, constant_values, dtype, shape
from pipeline.frontends.relay.operators.common import Converter, cast, transpose
from pipeline.model.passes.bindings import array

op = relax.op


def slice_axis(builder: BindingBuilder, x: Any, number: int, start: int, end: int) -> Any:
    """Return a slice along one axis, within its bounds."""
    # A slice of everything would cost a copy.
    if (start, end) == (0, shape(x)[number]):
        return x
    return builder.emit(op.strided_slice(x, [number], [start], [end]))


def _strided_slice(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    """Slice all axes in one operator, backward ones after a flip."""
    begin, end = attrs.integers("begin"), attrs.integers("end")
    axes = [axis(x, number) for number in attrs.integers("axes")] if attrs.has("axes") else list(range(len(begin)))
    strides = attrs.integers("strides", [1])
    # One stride stands for all, and missing ones are 1, as Relay fills them.
    strides += (strides if len(strides) == 1 else [1]) * (len(begin) - len(strides))
    sizes = attrs.choice("slice_mode", "end", "size") == "size"
    if not len(axes) == len(begin) == len(end) == len(strides) or len(begin) > len(shape(x)) or 0 in strides:
        raise ModelError(f"begin={begin}, end={end}, strides={strides} do not fit the shape {shape(x)}")
    bounds = []
    for number, first, last, step in zip(axes, begin, end, strides, strict=True):
        extent = shape(x)[number]
        if sizes:
            step = 1  # noqa: PLW2901 - the size of a slice counts neighbours
            last = extent if last < 0 else first + last  # noqa: PLW2901
        # Python's rule for negative and for large bounds is Relay's as well.
        first, last, step = slice(first, last, step).indices(extent)  # noqa: PLW2901
        if step < 0:
            x = builder.emit(op.flip(x, number))
            first, last, step = extent - 1 - first, extent - 1 - last, -step  # noqa: PLW2901
        bounds.append((first, last, step))
    starts, ends, steps = (list(column) for column in zip(*bounds, strict=True)) if bounds else ([], [], [])
    return builder.emit(op.strided_slice(x, axes, starts, ends, steps)) if bounds else x


def _slice_like(builder: BindingBuilder, attrs: Attributes, x: Any, like: Any) -> Any:
    axes_attribute = attrs.integers("axes", []) if attrs.has("axes") else []
    axes = [axis(x, number) for number in axes_attribute] or list(range(len(shape(x))))
    if any(number >= len(shape(like)) or shape(like)[number] > shape(x)[number] for number in axes):
        raise ModelError(f"the shape {shape(x)} cannot be cut to {shape(like)} at the axes {axes}")
    for number in axes:
        x = slice_axis(builder, x, number, 0, shape(like)[number])
    return x


def _take(builder: BindingBuilder, attrs: Attributes, x: Any, indices: Any) -> Any:
    number = axis(x, attrs.integer("axis")) if attrs.has("axis") else None
    mode = attrs.choice("mode", "clip", "wrap", "fast")
    # Relax's take has no batches.
    if attrs.integer("batch_dims", 0):
        raise ModelError("batch_dims is not supported")
    shape(indices)
    if number is None:
        x = builder.emit(op.reshape(x, (-1,)))
    # 'fast' promises that the indices are inside; where one is not, it would read foreign memory.
    return builder.emit(
        op.take(x, cast(builder, indices, "int64"), number or 0, mode="clip" if mode == "fast" else mode)
    )


def _check_indices(indices: Any, extents: tuple[int, ...]) -> None:
    """Check constant indices, which are used at once, against `extents`."""
    values = array(indices)
    if values is None:
        return
    rows = values.reshape(len(extents), -1) if len(extents) > 1 else values.reshape(1, -1)
    for row, extent in zip(rows, extents, strict=True):
        # Constant indices are folded in this process, where one outside would read foreign memory.
        if row.min(initial=0) < -extent or row.max(initial=0) >= extent:
            raise ModelError(f"an index is outside of the extent {extent}")


def _gather(builder: BindingBuilder, attrs: Attributes, x: Any, indices: Any) -> Any:
    number = axis(x, attrs.integer("axis"))
    _check_elementwise(x, indices, number)
    return builder.emit(op.gather_elements(x, cast(builder, indices, "int64"), number))


def _check_elementwise(x: Any, indices: Any, number: int) -> None:
    """Check indices on the axis, and shapes off it."""
    pairs = list(zip(shape(x), shape(indices), strict=False))
    fits = all(
        data_extent <= index_extent
        for axis_number, (index_extent, data_extent) in enumerate(pairs)
        if axis_number != number
    )
    if len(shape(x)) != len(shape(indices)) or not fits:
        raise ModelError(f"indices of the shape {shape(indices)} do not fit the shape {shape(x)}")
    _check_indices(indices, (shape(x)[number],))


def _rows_last(builder: BindingBuilder, x: Any, indices: Any, batch_rank: int = 0) -> Any:
    """Return indices with Relay's first axis at Relax's place, the end."""
    count = shape(indices)[0] if shape(indices) else 0
    if not 1 <= count <= len(shape(x)) - batch_rank:
        raise ModelError(f"indices of the shape {shape(indices)} do not fit the shape {shape(x)}")
    _check_indices(indices, shape(x)[batch_rank : batch_rank + count])
    order = [*range(1, len(shape(indices))), 0]
    return transpose(builder, cast(builder, indices, "int64"), order)


def _gather_nd(builder: BindingBuilder, attrs: Attributes, x: Any, indices: Any) -> Any:
    attrs.get("index_rank")
    batch_rank = attrs.integer("batch_dims", 0)
    if not 0 <= batch_rank < len(shape(x)):
        raise ModelError(f"batch_dims={batch_rank} does not fit the shape {shape(x)}")
    return builder.emit(op.gather_nd(x, _rows_last(builder, x, indices, batch_rank), batch_rank))


def _scatter_elements(builder: BindingBuilder, attrs: Attributes, x: Any, indices: Any, updates: Any) -> Any:
    number = axis(x, attrs.integer("axis", 0))
    _check_elementwise(x, indices, number)
    if shape(updates) != shape(indices):
        raise ModelError(f"updates of the shape {shape(updates)} do not fit indices of the shape {shape(indices)}")
    kind = attrs.choice("reduction", "update", "add", "mul", "min", "max")
    return builder.emit(op.scatter_elements(x, cast(builder, indices, "int64"), updates, number, kind))


def _scatter_nd(builder: BindingBuilder, attrs: Attributes, x: Any, indices: Any, updates: Any) -> Any:
    kind = attrs.choice("mode", "update", "add", "mul", "min", "max")
    return builder.emit(op.scatter_nd(x, _rows_last(builder, x, indices), updates, kind))


def _one_hot(builder: BindingBuilder, attrs: Attributes, indices: Any, on_value: Any, off_value: Any) -> Any:
    """Compare with 0, 1, 2, ...; foreign indices are off everywhere."""
    depth, rank = attrs.integer("depth"), len(shape(indices))
    number, target = attrs.integer("axis", -1), attrs.dtype(default="float32")
    # 2**20 classes: a vocabulary has some hundred thousand, and the comparison holds all of them.
    if not -rank - 1 <= number <= rank or not 1 <= depth <= 2**20:
        raise ModelError(f"depth={depth}, axis={number} do not fit indices of the shape {shape(indices)}")
    number %= rank + 1
    labels = builder.emit(op.expand_dims(indices, number))
    classes = np.arange(depth).reshape(-1, *[1] * (rank - number))
    matches = builder.emit(op.equal(labels, builder.constant(classes, dtype(indices))))
    values = [builder.constant(constant_values(operand, "the value"), target) for operand in (on_value, off_value)]
    return builder.emit(op.where(matches, *values))


TABLE: dict[str, Converter] = {
    "strided_slice": _strided_slice,
    "slice_like": _slice_like,
    "take": _take,
    "gather": _gather,
    "gather_nd": _gather_nd,
    "scatter": _scatter_elements,
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "one_hot": _one_hot,
}
