"""Indexing by tensors, as PyTorch and NumPy have it: along several axes at once, also apart, also from the end."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax

from pipeline.errors import ModelError
from pipeline.split.frontends.torch.arguments import arguments, extents


def index(importer: Any, node: Any) -> Any:
    """Return ``index.Tensor``: one ``take`` along the indexed axes, which are brought together first."""
    given = arguments(importer, node)
    data, emit = given["self"], importer.block_builder.emit
    axes = [axis for axis, each in enumerate(given["indices"]) if each is not None]
    indices = [given["indices"][axis] for axis in axes]
    if any(str(each.ty.dtype) in ("bool", "uint8") for each in indices):
        raise ModelError(f"{importer.where} selects by a mask, so that its shape depends on values; not supported")
    shape = extents(data)
    others = [axis for axis in range(len(shape)) if axis not in axes]
    flat = _flat(emit, indices, [shape[axis] for axis in axes])
    if axes + others != list(range(len(shape))):
        data = emit(relax.op.permute_dims(data, axes + others))
    if len(axes) > 1:
        data = emit(relax.op.reshape(data, [math.prod(shape[axis] for axis in axes), *(shape[o] for o in others)]))
    taken = emit(relax.op.take(data, flat, axis=0, mode="clip"))
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    return _moved(taken, flat.ty.ndim, axes[0]) if adjacent and axes[0] else taken


def _flat(emit: Any, indices: list[Any], shape: list[int]) -> Any:
    """Return the places of the elements in the indexed axes, counted through."""
    flat = None
    for each, extent in zip(indices, shape, strict=True):
        kind = str(each.ty.dtype)
        behind = emit(relax.op.add(each, relax.const(extent, kind)))
        place = emit(relax.op.where(emit(relax.op.less(each, relax.const(0, kind))), behind, each))
        if flat is None:
            flat = place
        else:
            flat = emit(relax.op.add(emit(relax.op.multiply(flat, relax.const(extent, kind))), place))
    return flat


def _moved(taken: Any, width: int, to: int) -> Any:
    """Return `taken` with its first `width` axes at the place `to`."""
    rest = list(range(width, taken.ty.ndim))
    return relax.op.permute_dims(taken, [*rest[:to], *range(width), *rest[to:]])
