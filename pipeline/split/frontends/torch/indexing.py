"""Indexing by tensors, as PyTorch and NumPy have it: along several axes at once, also apart, also from the end."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax

from pipeline.errors import ModelError
from pipeline.split.frontends.torch.arguments import arguments, extents


def index(importer: Any, node: Any) -> Any:
    """Return ``index.Tensor``: one ``take`` along the indexed axes, which are brought together first."""
    operands = arguments(importer, node)
    data, emit = operands["self"], importer.block_builder.emit
    # None stands for an axis that is not indexed, as ":" in NumPy.
    axes = [axis for axis, each in enumerate(operands["indices"]) if each is not None]
    indices = [operands["indices"][axis] for axis in axes]
    if any(str(each.ty.dtype) in ("bool", "uint8") for each in indices):
        raise ModelError(
            f"{importer.current_node} selects by a mask, so that its shape depends on values; not supported"
        )
    shape = extents(data)
    remaining_axes = [axis for axis in range(len(shape)) if axis not in axes]
    # One index into the indexed axes counted as one, so that a single take is left.
    flat = _flat(emit, indices, [shape[axis] for axis in axes])
    if axes + remaining_axes != list(range(len(shape))):
        data = emit(relax.op.permute_dims(data, axes + remaining_axes))
    if len(axes) > 1:
        data = emit(
            relax.op.reshape(data, [math.prod(shape[axis] for axis in axes), *(shape[o] for o in remaining_axes)])
        )
    # Clipped: an index outside is an error in PyTorch, and would read foreign memory in a kernel.
    elements = emit(relax.op.take(data, flat, axis=0, mode="clip"))
    # NumPy's rule: adjacent axes are replaced where they are; axes that are apart go to the front.
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    return _move_axes(elements, flat.ty.ndim, axes[0]) if adjacent and axes[0] else elements


def _flat(emit: Any, indices: list[Any], shape: list[int]) -> Any:
    """Return the places of the elements in the indexed axes, counted through."""
    flat = None
    for indices_of_axis, extent in zip(indices, shape, strict=True):
        kind = str(indices_of_axis.ty.dtype)
        behind = emit(relax.op.add(indices_of_axis, relax.const(extent, kind)))
        position = emit(
            relax.op.where(emit(relax.op.less(indices_of_axis, relax.const(0, kind))), behind, indices_of_axis)
        )
        if flat is None:
            flat = position
        else:
            flat = emit(relax.op.add(emit(relax.op.multiply(flat, relax.const(extent, kind))), position))
    return flat


def _move_axes(elements: Any, width: int, target: int) -> Any:
    """Return `elements` with its first `width` axes at the position `target`."""
    remaining_axes = list(range(width, elements.ty.ndim))
    return relax.op.permute_dims(elements, [*remaining_axes[:target], *range(width), *remaining_axes[target:]])
