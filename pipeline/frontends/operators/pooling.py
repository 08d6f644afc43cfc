"""Pooling of an image to given extents, channels first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.model.passes.bindings import constant

op = relax.op
Emit = Callable[[Any], Any]

MOST_WINDOWS = 256
"""Unequal windows per axis. Each of a maximum is a slice of its own."""


def adaptive_pool(emit: Emit, data: Any, sizes: Sequence[int], kind: str) -> Any:
    """Pool the last axes to sizes: equal windows where they fit.

    `kind`: ``"avg"`` or ``"max"``.
    """
    rank = data.ty.ndim
    axes = range(rank - len(sizes), rank)
    if set(sizes) == {1}:
        return {"avg": op.mean, "max": op.max}[kind](data, axis=list(axes), keepdims=True)
    extents = [int(data.ty.shape[axis]) for axis in axes]
    if not any(extent % size for extent, size in zip(extents, sizes, strict=True)):
        windows = [extent // size for extent, size in zip(extents, sizes, strict=True)]
        # Relax has no pooling without a batch.
        batch = data if rank == len(sizes) + 2 else emit(op.expand_dims(data, 0))
        pooled = getattr(op.nn, f"{kind}_pool{len(sizes)}d")(batch, pool_size=windows, strides=windows)
        return pooled if batch is data else op.squeeze(emit(pooled), [0])
    if kind == "avg" and not str(data.ty.dtype).startswith("float"):
        return getattr(op.nn, f"adaptive_avg_pool{len(sizes)}d")(data, list(sizes))
    pool = _average if kind == "avg" else _largest
    if kind == "max" and max(sizes) > MOST_WINDOWS:
        raise ModelError(f"pooling to the size {tuple(sizes)} is not supported; {MOST_WINDOWS} per axis are")
    for axis, size in zip(axes, sizes, strict=True):
        data = emit(pool(emit, data, axis, size))
    return data


def _windows(extent: int, count: int) -> list[tuple[int, int]]:
    """Return windows from floor to ceiling; neighbours may overlap."""
    return [(extent * window // count, -(-extent * (window + 1) // count)) for window in range(count)]


def _average(emit: Emit, data: Any, axis: int, size: int) -> Any:
    """Average along an axis by a matrix product with its kernels."""
    shape = [int(extent) for extent in data.ty.shape]
    shares = np.zeros((size, shape[axis]))
    for window, (start, end) in enumerate(_windows(shape[axis], size)):
        shares[window, start:end] = 1 / (end - start)
    shares = shares.astype(str(data.ty.dtype))
    if axis == len(shape) - 1:
        return op.matmul(data, constant(np.ascontiguousarray(shares.T)))
    # What comes behind the axis is one.
    flat = emit(op.reshape(data, (*shape[: axis + 1], -1)))
    return op.reshape(emit(op.matmul(constant(shares), flat)), (*shape[:axis], size, *shape[axis + 1 :]))


def _largest(emit: Emit, data: Any, axis: int, size: int) -> Any:
    parts = [
        emit(op.strided_slice(data, [axis], [start], [end])) for start, end in _windows(int(data.ty.shape[axis]), size)
    ]
    return op.concat([emit(op.max(part, axis=axis, keepdims=True)) for part in parts], axis=axis)
