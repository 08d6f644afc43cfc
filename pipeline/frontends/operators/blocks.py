"""Blocks of an image, moved to its batch and back.

Behind the batch come the axes with blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from pipeline.errors import ModelError

op = relax.op
Emit = Callable[[Any], Any]
Widths = Sequence[tuple[int, int]]


def space_to_batch(emit: Emit, data: Any, blocks: Sequence[int], pads: Widths, fill: float = 0.0) -> Any:
    """Move each position of a block to the batch, after padding.

    Reshape and transpose fuse with their neighbours. Raises `ModelError` if the padded extents do not divide into
    blocks.
    """
    # No operator where there is nothing to pad.
    if any(map(any, pads)):
        trailing = data.ty.ndim - 1 - len(blocks)
        widths = [0, 0, *(width for pair in pads for width in pair), *[0, 0] * trailing]
        data = emit(op.nn.pad(data, widths, pad_value=fill))
    count, (batch, *space) = len(blocks), (int(extent) for extent in data.ty.shape)
    if any(extent % block for extent, block in zip(space, blocks, strict=False)):
        raise ModelError(f"the padded shape {(batch, *space)} does not divide into blocks of {list(blocks)}")
    counts = [extent // block for extent, block in zip(space, blocks, strict=False)]
    parts = [extent for pair in zip(counts, blocks, strict=True) for extent in pair]
    data = emit(op.reshape(data, (batch, *parts, *space[count:])))
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2), *range(1 + 2 * count, data.ty.ndim)]
    data = emit(op.permute_dims(data, order))
    return op.reshape(data, (batch * math.prod(blocks), *counts, *space[count:]))


def batch_to_space(emit: Emit, data: Any, blocks: Sequence[int], crops: Widths) -> Any:
    """Undo the former, and crop; `ModelError` if the batch does not divide into blocks, or nothing is left."""
    count, total, (batch, *space) = len(blocks), math.prod(blocks), (int(extent) for extent in data.ty.shape)
    if batch % total:
        raise ModelError(f"a batch of {batch} does not divide into blocks of {list(blocks)}")
    data = emit(op.reshape(data, (*blocks, batch // total, *space)))
    order = [count, *(axis for block_axis in range(count) for axis in (count + 1 + block_axis, block_axis))]
    data = emit(op.permute_dims(data, [*order, *range(2 * count + 1, data.ty.ndim)]))
    extents = [extent * block for extent, block in zip(space, blocks, strict=False)]
    data = op.reshape(data, (batch // total, *extents, *space[count:]))
    # Nothing to crop: no copy.
    if not any(map(any, crops)):
        return data
    if any(start + end >= extent for (start, end), extent in zip(crops, extents, strict=True)):
        raise ModelError(f"crops={list(crops)} leave nothing of {extents}")
    ends = [extent - end for (_, end), extent in zip(crops, extents, strict=True)]
    return op.strided_slice(emit(data), list(range(1, count + 1)), [start for start, _ in crops], ends)
