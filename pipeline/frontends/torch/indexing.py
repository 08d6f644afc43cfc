"""Indexing by tensors along several axes, as PyTorch and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.torch.torch_call import TorchCall, extents


def index(call: TorchCall) -> Any:
    """Return ``index.Tensor``: ``gather_nd`` with the indexed axes in front."""
    data, emit = call.operands["self"], call.emit
    # None stands for an axis that is not indexed, as ":" in NumPy.
    axes = [axis for axis, axis_index in enumerate(call.operands["indices"]) if axis_index is not None]
    indices = [call.operands["indices"][axis] for axis in axes]
    if any(str(axis_index.ty.dtype) in ("bool", "uint8") for axis_index in indices):
        raise ModelError(f"{call} selects by a mask, so that its shape depends on values; not supported")
    shape = extents(data)
    remaining_axes = [axis for axis in range(len(shape)) if axis not in axes]
    if axes + remaining_axes != list(range(len(shape))):
        data = emit(relax.op.permute_dims(data, axes + remaining_axes))
    positions = _from_start(emit, indices, [shape[axis] for axis in axes])
    width = positions[0].ty.ndim
    if len(positions) == 1:
        elements = emit(relax.op.take(data, positions[0], axis=0))
    else:
        columns = [emit(relax.op.expand_dims(position, width)) for position in positions]
        elements = emit(relax.op.gather_nd(data, emit(relax.op.concat(columns, width))))
    # NumPy's rule: adjacent axes are replaced where they are; axes that are apart go to the front.
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    return _move_axes(elements, width, axes[0]) if adjacent and axes[0] else elements


def take(call: TorchCall) -> Any:
    """Return ``take``: elements by their number in all axes together."""
    operands, emit = call.operands, call.emit
    data = emit(relax.op.reshape(operands["self"], (-1,)))
    (positions,) = _from_start(emit, [operands["index"]], extents(data))
    return relax.op.take(data, positions, axis=0)


def scatter(call: TorchCall) -> Any:
    """Return ``scatter``, checked for negative indices.

    PyTorch refuses negative indices, TVM would count from the end.
    """
    operands, emit = call.operands, call.emit
    data, index = operands["self"], emit(relax.op.astype(operands["index"], "int64"))
    axis = operands["dim"] % data.ty.ndim
    outside_index = relax.const(extents(data)[axis], "int64")
    index = emit(relax.op.where(emit(relax.op.less(index, relax.const(0, "int64"))), outside_index, index))
    updates = operands.get("src")
    if updates is None:
        value = relax.const(operands["value"], str(data.ty.dtype))
        updates = emit(relax.op.broadcast_to(value, extents(index)))
    elif extents(updates) != extents(index):
        updates = emit(relax.op.strided_slice(updates, *_corner(extents(index))))
    return relax.op.scatter_elements(data, index, updates, axis=axis)


def _corner(shape: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Return axes, starts and ends of a tensor's first part."""
    return list(range(len(shape))), [0] * len(shape), shape


def _from_start(emit: Any, indices: list[Any], extents: list[int]) -> list[Any]:
    """Return indices counted from the start, of one shape."""
    shape = np.broadcast_shapes(*(tuple(map(int, axis_index.ty.shape)) for axis_index in indices))
    positions = []
    for axis_index, extent in zip(indices, extents, strict=True):
        wide = emit(relax.op.astype(axis_index, "int64"))
        from_end = emit(relax.op.add(wide, relax.const(extent, "int64")))
        position = emit(relax.op.where(emit(relax.op.less(wide, relax.const(0, "int64"))), from_end, wide))
        positions.append(emit(relax.op.broadcast_to(position, shape)))
    return positions


def _move_axes(elements: Any, width: int, target: int) -> Any:
    """Return `elements`, its first `width` axes moved to `target`."""
    remaining_axes = list(range(width, elements.ty.ndim))
    return relax.op.permute_dims(elements, [*remaining_axes[:target], *range(width), *remaining_axes[target:]])
