"""Operators with extents, axes or positions as operands, also computed.

A frame's tensors have fixed shapes, so that the extents that the model states for a result say what such an operand
must be.  Positions that extents do not tell, such as where a slice begins, are computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.onnx.operators.node_call import NodeCall, by_axis, extents, integer, integers
from pipeline.model.passes.bindings import constant


def _expand(call: NodeCall) -> Any:
    """Return ``Expand``; an extent of 1 keeps the tensor's own."""
    data, target = call.inputs[0], call.values(1)
    if target is None and not call.is_computed(1):
        return None
    shape = call.result_shape() if target is None else np.broadcast_shapes(call.shape(), tuple(target.tolist()))
    return data if list(shape) == call.shape() else relax.op.broadcast_to(data, shape)


def _reshape(call: NodeCall) -> Any:
    """Return a reshape with a computed shape."""
    return relax.op.reshape(call.inputs[0], call.result_shape()) if call.is_computed(1) else None


def _tile(call: NodeCall) -> Any:
    """Return ``Tile``; where there is something to repeat, by positions."""
    repeats, shape = call.values(1), call.shape()
    result_shape = call.result_shape() if repeats is None else [a * int(b) for a, b in zip(shape, repeats, strict=True)]
    data = call.inputs[0]
    for axis, (extent, length) in enumerate(zip(shape, result_shape, strict=True)):
        if 1 < extent < length:
            data = relax.op.take(data, integers(np.arange(length) % extent), axis)
    shape = [length if extent > 1 else 1 for extent, length in zip(shape, result_shape, strict=True)]
    return data if shape == result_shape else relax.op.broadcast_to(data, result_shape)


def _fill(call: NodeCall) -> Any:
    """Return ``ConstantOfShape`` of a computed shape."""
    if not call.is_computed(0):
        return None
    value = call.attributes.get("value")
    fill = np.zeros(1, np.float32) if value is None else call.tensor("value")
    return constant(np.full(call.result_shape(), fill.reshape(())))


def _range(call: NodeCall) -> Any:
    """Return ``Range`` with computed ends."""
    if all(call.values(position) is not None for position in range(3)):
        return None
    (count,) = call.result_shape()
    start, _, step = call.inputs
    numbers = constant(np.arange(count).astype(call.dtype()))
    return relax.op.add(start, relax.op.multiply(numbers, step))


def _split(call: NodeCall) -> Any:
    if not call.is_computed(1):
        return None
    axis = int(call.attributes.get("axis", 0)) % len(call.shape())
    sizes = [call.result_shape(position)[axis] for position in range(len(call.results))]
    return relax.op.split(call.inputs[0], np.cumsum(sizes[:-1]).tolist(), axis)


def _slice(call: NodeCall) -> Any:
    """Return ``Slice`` with attributes or computed ends, by positions per axis."""
    if "starts" in call.attributes:
        return _slice_of_old_opset(call)
    if not any(call.is_computed(position) for position in range(1, len(call.inputs))):
        return None
    shape, result_shape = call.shape(), call.result_shape()
    starts, axes = call.inputs[1], call.input(3)
    count = extents(starts)[0]
    axes = integers(range(count)) if axes is None else axes
    steps = integers([1] * count) if call.input(4) is None else call.inputs[4]
    starts = by_axis(call, starts, axes, [0] * len(shape))
    steps = by_axis(call, steps, axes, [1] * len(shape))
    data = call.inputs[0]
    for axis, (extent, length) in enumerate(zip(shape, result_shape, strict=True)):
        start, step = _element(call, starts, axis), _element(call, steps, axis)
        # Negative positions count from the end; what lies beyond an end means that end.
        start = relax.op.where(relax.op.less(start, integer(0)), relax.op.add(start, integer(extent)), start)
        last = relax.op.where(relax.op.less(step, integer(0)), integer(extent - 1), integer(extent))
        start = relax.op.minimum(relax.op.maximum(start, integer(0)), last)
        positions = relax.op.add(start, relax.op.multiply(integers(range(length)), step))
        data = relax.op.take(data, call.normal(positions), axis, mode="clip")
    return data


def _slice_of_old_opset(call: NodeCall) -> Any:
    """Return ``Slice`` before opset 10, unknown to TVM."""
    starts, ends = list(call.attributes["starts"]), list(call.attributes["ends"])
    axes = [axis % len(call.shape()) for axis in call.attributes.get("axes", range(len(starts)))]
    return relax.op.strided_slice(call.inputs[0], axes, starts, ends, assume_inbound=False)


def _element(call: NodeCall, values: Any, position: int) -> Any:
    return call.normal(relax.op.strided_slice(values, [0], [position], [position + 1]))


def _pad(call: NodeCall) -> Any:
    """Return ``Pad`` of computed widths, by positions per axis."""
    if not call.is_computed(1) and not call.is_computed(3):
        return None
    shape, result_shape, mode = call.shape(), call.result_shape(), call.text("mode", "constant")
    widths = call.inputs[1]
    count = extents(widths)[0] // 2
    axes = integers(range(count)) if call.input(3) is None else call.inputs[3]
    starts = relax.op.strided_slice(widths, [0], [0], [count])
    starts = by_axis(call, starts, axes, [0] * len(shape))
    data, fill = call.inputs[0], call.input(2)
    fill = relax.const(0, call.dtype()) if fill is None else relax.op.reshape(fill, [])
    for axis, (extent, length) in enumerate(zip(shape, result_shape, strict=True)):
        positions = relax.op.subtract(integers(range(length)), _element(call, starts, axis))
        data = relax.op.take(data, call.normal(_inner_positions(positions, extent, mode)), axis, mode="clip")
        if mode == "constant":
            is_inside = relax.op.logical_and(
                relax.op.greater_equal(positions, integer(0)), relax.op.less(positions, integer(extent))
            )
            is_inside = relax.op.reshape(is_inside, [length, *[1] * (len(shape) - axis - 1)])
            data = relax.op.where(is_inside, data, fill)
        data = call.normal(data)
    return data


def _inner_positions(positions: Any, extent: int, mode: str) -> Any:
    """Return the inner positions that outer ones copy."""
    if mode == "wrap":
        return relax.op.floor_mod(positions, integer(extent))
    if mode == "reflect":
        # There and back again: a period is twice the extent, less both ends.
        period = max(2 * extent - 2, 1)
        positions = relax.op.floor_mod(positions, integer(period))
        return relax.op.minimum(positions, relax.op.subtract(integer(period), positions))
    return relax.op.minimum(relax.op.maximum(positions, integer(0)), integer(extent - 1))


def _center_crop_pad(call: NodeCall) -> Any:
    """Return ``CenterCropPad``; an odd element counts at the end."""
    data = call.inputs[0]
    for axis, (extent, length) in enumerate(zip(call.shape(), call.result_shape(), strict=True)):
        if length < extent:
            start = (extent - length) // 2
            data = relax.op.strided_slice(data, [axis], [start], [start + length])
        elif length > extent:
            front = (length - extent) // 2
            widths = [0] * (2 * len(call.shape()))
            widths[2 * axis : 2 * axis + 2] = front, length - extent - front
            data = relax.op.nn.pad(data, widths)
        data = call.normal(data)
    return data


def _one_hot(call: NodeCall) -> Any:
    """Return ``OneHot``; negative indices count back, outer ones are off."""
    indices, _, values = call.inputs
    shape = call.result_shape()
    axis = int(call.attributes.get("axis", -1)) % len(shape)
    depth = shape[axis]
    indices = relax.op.expand_dims(relax.op.astype(indices, "int64"), axis)
    indices = relax.op.where(relax.op.less(indices, integer(0)), relax.op.add(indices, integer(depth)), indices)
    classes = integers(np.arange(depth).reshape([-1, *[1] * (len(shape) - axis - 1)]))
    off, on = (relax.op.strided_slice(values, [0], [position], [position + 1]) for position in (0, 1))
    return relax.op.where(relax.op.equal(indices, classes), on, off)


def _eye(call: NodeCall) -> Any:
    """Return ``EyeLike``, a constant of the extents."""
    dtype = (call.results[0] or (None, None))[1] or call.dtype()
    rows, columns = call.shape()
    return constant(np.eye(rows, columns, int(call.attributes.get("k", 0))).astype(dtype))


def _triangle(call: NodeCall) -> Any:
    """Return ``Trilu`` with a computed diagonal."""
    if not call.is_computed(1):
        return None
    rows, columns = call.shape()[-2:]
    distance = integers(np.arange(columns) - np.arange(rows)[:, None])
    compare = relax.op.greater_equal if int(call.attributes.get("upper", 1)) else relax.op.less_equal
    return relax.op.where(compare(distance, call.inputs[1]), call.inputs[0], relax.const(0, call.dtype()))


CONVERTERS = {
    "CenterCropPad": _center_crop_pad,
    "ConstantOfShape": _fill,
    "Expand": _expand,
    "EyeLike": _eye,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _reshape,
    "Tile": _tile,
    "Trilu": _triangle,
    "Unsqueeze": _reshape,
}
