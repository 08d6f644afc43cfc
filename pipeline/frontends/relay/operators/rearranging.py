"""Operators that rearrange: blocks, sequences, triangles, grids, masks."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, topi

from pipeline.errors import ModelError
from pipeline.frontends.operators.blocks import batch_to_space, space_to_batch
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, axis, constant_values, dtype, fields, shape
from pipeline.frontends.relay.operators.common import Converter, cast, reshape
from pipeline.frontends.relay.operators.indexing import slice_axis

op = relax.op


def _pairs(attrs: Attributes, name: str, count: int) -> list[tuple[int, int]]:
    attribute = attrs.get(name)
    widths = np.array(attribute if isinstance(attribute, list) else [], dtype=object).reshape(-1).tolist()
    if len(widths) != 2 * count or not all(isinstance(width, int) and width >= 0 for width in widths):
        raise ModelError(f"{name}={attribute!r} is not supported; expected two numbers for each of {count} axes")
    return list(zip(widths[::2], widths[1::2], strict=True))


def _blocks(attrs: Attributes, x: Any) -> list[int]:
    blocks = attrs.integers("block_shape", [1, 1])
    if not 1 <= len(blocks) < len(shape(x)) or min(blocks) < 1:
        raise ModelError(f"block_shape={blocks} does not fit the shape {shape(x)}")
    return blocks


def _space_to_batch_nd(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    sizes = _blocks(attrs, x)
    pads, fill = _pairs(attrs, "paddings", len(sizes)), attrs.number("pad_value", 0.0)
    return builder.emit(space_to_batch(builder.emit, x, sizes, pads, fill))


def _batch_to_space_nd(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    sizes = _blocks(attrs, x)
    crops = _pairs(attrs, "crops", len(sizes))
    return builder.emit(batch_to_space(builder.emit, x, sizes, crops))


def _reverse_sequence(builder: BindingBuilder, attrs: Attributes, x: Any, lengths: Any) -> Any:
    """Pick elements counted back from the sequence's end."""
    time_axis, batch = axis(x, attrs.integer("seq_axis", 1)), axis(x, attrs.integer("batch_axis", 0))
    if time_axis == batch or shape(lengths) != (shape(x)[batch],):
        raise ModelError(f"lengths of the shape {shape(lengths)} do not fit the axes {time_axis} and {batch}")
    rank = len(shape(x))
    positions = np.arange(shape(x)[time_axis]).reshape([-1 if number == time_axis else 1 for number in range(rank)])
    position = builder.constant(positions, "int64")
    extents = [shape(x)[batch] if number == batch else 1 for number in range(rank)]
    ends = reshape(builder, cast(builder, lengths, "int64"), extents)
    # A longer sequence than there is would read foreign memory.
    ends = builder.emit(op.minimum(ends, builder.constant(shape(x)[time_axis], "int64")))
    # Inside of the sequence, position p is read from length - 1 - p; behind it elements keep their places.
    sources = builder.emit(op.subtract(builder.emit(op.subtract(ends, position)), builder.constant(1, "int64")))
    index = builder.emit(op.where(builder.emit(op.less(position, ends)), sources, position))
    return builder.emit(op.gather_elements(x, builder.emit(op.broadcast_to(index, shape(x))), time_axis))


def _trilu(builder: BindingBuilder, attrs: Attributes, x: Any, k: Any) -> Any:
    offset = int(constant_values(k, "the diagonal").reshape(-1)[0])
    return builder.emit((op.triu if attrs.flag("upper", True) else op.tril)(x, offset))


def _meshgrid(builder: BindingBuilder, attrs: Attributes, tensors: Any) -> Any:
    """Repeat each vector along the axes of the others."""
    parts = [reshape(builder, part, (1,)) if not shape(part) else part for part in fields(tensors)]
    if any(len(shape(part)) != 1 for part in parts):
        raise ModelError("expected vectors")
    order = list(range(len(parts)))
    if attrs.choice("indexing", "ij", "xy") == "xy" and len(parts) > 1:
        # NumPy's "xy" exchanges the first two axes and leaves the others.
        order[:2] = [1, 0]
    extents = [shape(parts[number])[0] for number in order]
    grids = []
    for number, part in enumerate(parts):
        single = [shape(part)[0] if position == number else 1 for position in order]
        grids.append(builder.emit(op.broadcast_to(reshape(builder, part, single), tuple(extents))))
    return tuple(grids)


def _adv_index(builder: BindingBuilder, _: Attributes, tensors: Any) -> Any:
    """Pick elements by broadcast indices of the first axes, as NumPy."""
    data, *indices = fields(tensors)
    if not 1 <= len(indices) <= len(shape(data)):
        raise ModelError(f"{len(indices)} tensors of indices do not fit the shape {shape(data)}")
    extents = np.broadcast_shapes(*map(shape, indices))
    rows = []
    for extent, index in zip(shape(data), indices, strict=False):
        row = cast(builder, index, "int64")
        # Negative indices count from the end; clipping comes after this, or they would all be 0.
        negative = builder.emit(op.less(row, builder.constant(0, "int64")))
        row = builder.emit(op.where(negative, builder.emit(op.add(row, builder.constant(extent, "int64"))), row))
        # What lies outside would read foreign memory.
        row = builder.emit(op.clip(row, relax.prim_value(0), relax.prim_value(extent - 1)))
        rows.append(reshape(builder, builder.emit(op.broadcast_to(row, extents)), (*extents, 1)))
    index_rows = builder.emit(op.concat(rows, axis=len(extents))) if len(rows) > 1 else rows[0]
    return builder.emit(op.gather_nd(data, index_rows))


def _sequence_mask(builder: BindingBuilder, attrs: Attributes, x: Any, lengths: Any) -> Any:
    """Fill past sequences' ends, along axis 0 or 1. The batch lies along the other."""
    time_axis = axis(x, attrs.integer("axis", 0))
    rank = len(shape(x))
    if time_axis > 1 or rank < 2 or shape(lengths) != (shape(x)[1 - time_axis],):
        raise ModelError(
            f"lengths of the shape {shape(lengths)} do not fit the shape {shape(x)} along axis {time_axis}"
        )
    positions = np.arange(shape(x)[time_axis]).reshape([-1 if number == time_axis else 1 for number in range(rank)])
    ends = reshape(
        builder,
        cast(builder, lengths, "int64"),
        [shape(x)[1 - time_axis] if n == 1 - time_axis else 1 for n in range(rank)],
    )
    is_inside = builder.emit(op.less(builder.constant(positions, "int64"), ends))
    return builder.emit(op.where(is_inside, x, builder.constant(attrs.number("mask_value", 0.0), dtype(x))))


def _dilate(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    """Put equal values between neighbours, by padded axes."""
    fill = attrs.number("dilation_value", 0.0)
    for number, stride in enumerate(attrs.positive("strides", len(shape(x)))):
        if stride > 1:
            extents = shape(x)
            x = reshape(builder, x, (*extents[: number + 1], 1, *extents[number + 1 :]))
            widths = [0] * (2 * len(shape(x)))
            # The new axis of 1 stands behind the dilated one: its second width are the values in between.
            widths[2 * number + 3] = stride - 1
            x = builder.emit(op.nn.pad(x, widths, pad_value=fill))
            dilated_extents = (*extents[:number], extents[number] * stride, *extents[number + 1 :])
            # Behind the last element there are no values.
            last = (extents[number] - 1) * stride + 1
            x = builder.emit(op.strided_slice(reshape(builder, x, dilated_extents), [number], [0], [last]))
    return x


def _matrix_set_diag(builder: BindingBuilder, attrs: Attributes, x: Any, diagonal: Any) -> Any:
    first, last = attrs.integer("k1", 0), attrs.integer("k2", 0)
    right_above, right_below = attrs.flag("super_diag_right_align", True), attrs.flag("sub_diag_right_align")
    # TVM's kernel takes TensorFlow's words for both sides: the diagonals above, then those below.
    align = "_".join("RIGHT" if right else "LEFT" for right in (right_above, right_below))
    rows, columns = shape(x)[-2:] if len(shape(x)) > 1 else (0, 0)
    is_single = first == last
    # The length of the longest diagonal, to which the others are filled up (TensorFlow, matrix_set_diag).
    longest = min(rows + min(last, 0), columns - max(first, 0))
    expected_shape = (*shape(x)[:-2], *(() if is_single else (last - first + 1,)), longest)
    if not -rows < first <= last < columns or shape(diagonal) != expected_shape:
        raise ModelError(f"diagonals {first} to {last} of the shape {shape(diagonal)} do not fit {shape(x)}")
    return builder.kernel(topi.matrix_set_diag, x, diagonal, k=(first, last), align=align)


def _unravel_index(builder: BindingBuilder, _: Attributes, indices: Any, extents: Any) -> Any:
    """Return each index as one per axis, in a new first axis."""
    target_shape = constant_values(extents, "the shape").reshape(-1).astype(np.int64)
    # Row-major: the step of an axis is the product of the extents behind it.
    steps = np.concatenate([np.cumprod(target_shape[::-1])[::-1][1:], [1]])
    rows = []
    for extent, step in zip(target_shape, steps, strict=True):
        # Extents of 0 have no indices; 1 instead keeps the division defined.
        row = builder.emit(op.floor_divide(indices, builder.constant(max(1, step), dtype(indices))))
        row = builder.emit(op.floor_mod(row, builder.constant(max(1, extent), dtype(indices))))
        rows.append(reshape(builder, row, (1, *shape(indices))))
    return builder.emit(op.concat(rows, axis=0)) if len(rows) > 1 else rows[0]


def _sliding_window(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    number, window = axis(x, attrs.integer("axis")), attrs.integers("window_shape")
    strides, extents = attrs.integers("strides"), shape(x)[number:]
    fits = len(window) == len(strides) == len(extents) and min(*window, *strides) > 0
    if not fits or any(size > extent for size, extent in zip(window, extents, strict=True)):
        raise ModelError(f"windows of {window} by {strides} do not fit the shape {shape(x)} from axis {number} on")
    return builder.kernel(topi.sliding_window, x, axis=number, window_shape=window, strides=strides)


def _invert_permutation(builder: BindingBuilder, _: Attributes, order: Any) -> Any:
    if len(shape(order)) != 1:
        raise ModelError(f"expected a vector, found the shape {shape(order)}")
    # Sorting a permutation lists, for each value, where it stands, which is the inverse.
    return builder.emit(op.argsort(order, axis=0, dtype=dtype(order)))


def _search_sorted(builder: BindingBuilder, attrs: Attributes, sequence: Any, values: Any) -> Any:
    """Return the insertion positions of values in ascending rows."""
    if len(shape(sequence)) != 1 and shape(sequence)[:-1] != shape(values)[:-1]:
        raise ModelError(f"values of the shape {shape(values)} do not fit rows of the shape {shape(sequence)}")
    side, kind = attrs.flag("right"), attrs.dtype(default="int32")
    return builder.kernel(topi.searchsorted, sequence, values, right=side, out_dtype=kind)


def _fifo_buffer(builder: BindingBuilder, attrs: Attributes, x: Any, buffer: Any) -> Any:
    """Append to a buffer, dropping its oldest elements."""
    number = axis(buffer, attrs.integer("axis"))
    extent, count = shape(buffer)[number], shape(x)[number]
    # More new elements than the buffer holds: only their last ones stay.
    if count >= extent:
        return slice_axis(builder, x, number, count - extent, count)
    return builder.emit(op.concat([slice_axis(builder, buffer, number, count, extent), x], axis=number))


TABLE: dict[str, Converter] = {
    "invert_permutation": _invert_permutation,
    "nn.fifo_buffer": _fifo_buffer,
    "searchsorted": _search_sorted,
    "nn.space_to_batch_nd": _space_to_batch_nd,
    "nn.batch_to_space_nd": _batch_to_space_nd,
    "nn.dilate": _dilate,
    "adv_index": _adv_index,
    "matrix_set_diag": _matrix_set_diag,
    "meshgrid": _meshgrid,
    "reverse_sequence": _reverse_sequence,
    "sequence_mask": _sequence_mask,
    "sliding_window": _sliding_window,
    "trilu": _trilu,
    "unravel_index": _unravel_index,
}
