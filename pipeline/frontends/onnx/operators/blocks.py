"""Operators that move elements: blocks of pixels, grids, caches."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.onnx.operators.node_call import NodeCall, integer, integers
from pipeline.model.passes.bindings import constant


def _space_to_depth(call: NodeCall) -> Any:
    # TVM does not read the attribute and always does what DCR says.
    if call.text("mode", "DCR") != "CRD":
        return None
    size = int(call.attributes["blocksize"])
    batch, channels, height, width = call.shape()
    # CRD: the channel is the outermost part of the new channels, then row and column inside of the block.
    parts = relax.op.reshape(call.inputs[0], (batch, channels, height // size, size, width // size, size))
    blocks = relax.op.permute_dims(parts, [0, 1, 3, 5, 2, 4])
    return relax.op.reshape(blocks, (batch, channels * size * size, height // size, width // size))


def _affine_grid(call: NodeCall) -> Any:
    """Return ``AffineGrid`` as a product of matrices."""
    batch, *image, rank = call.result_shape()
    is_aligned = bool(call.attributes.get("align_corners", 0))
    lines = [np.linspace(-1, 1, extent) if is_aligned else (2 * np.arange(extent) + 1) / extent - 1 for extent in image]
    # The last axis of an image is the first of its coordinates.
    points = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(image)], -1).reshape(-1, rank + 1)
    matrix = relax.op.permute_dims(call.inputs[0], [0, 2, 1])
    grid = relax.op.matmul(constant(points.astype(call.dtype())), matrix)
    return relax.op.reshape(grid, [batch, *image, rank])


def _scatter_into_cache(call: NodeCall) -> Any:
    """Return ``TensorScatter``: a cache updated at each sequence's position."""
    cache, update = call.inputs[:2]
    shape, rank = call.shape(), len(call.shape())
    axis = int(call.attributes.get("axis", -2)) % rank
    extent, length = shape[axis], call.shape(1)[axis]
    starts = integers([0] * shape[0]) if call.input(2) is None else call.inputs[2]
    line = integers(np.arange(extent).reshape([-1, *[1] * (rank - axis - 1)]))
    positions = relax.op.subtract(line, relax.op.reshape(starts, [-1, *[1] * (rank - 1)]))
    if call.text("mode", "linear") == "circular":
        positions = relax.op.floor_mod(positions, integer(extent))
    positions = call.normal(relax.op.broadcast_to(positions, shape))
    is_new = relax.op.logical_and(
        relax.op.greater_equal(positions, integer(0)), relax.op.less(positions, integer(length))
    )
    inner_places = relax.op.minimum(relax.op.maximum(positions, integer(0)), integer(length - 1))
    return relax.op.where(is_new, relax.op.gather_elements(update, call.normal(inner_places), axis), cache)


CONVERTERS = {"AffineGrid": _affine_grid, "SpaceToDepth": _space_to_depth, "TensorScatter": _scatter_into_cache}
