"""Folding of operators on constants: restored weights of fewer bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from flatbuffers import number_types

from pipeline.frontends.tflite.flatbuffer import TfliteGraph, TfliteTensor

# The schema's enumeration SparseIndexVector.
_VECTORS = {1: number_types.Int32Flags, 2: number_types.Uint16Flags, 3: number_types.Uint8Flags}


def fold(graph: TfliteGraph) -> None:
    """Fold restored constants in place."""
    for operator in graph.operators:
        if operator.kind in {"DENSIFY", "DEQUANTIZE"} and len(operator.operands) == 1:
            values = _restore(graph, operator.operands[0])
            if values is not None:
                result = operator.outputs[0]
                result.values, result.is_constant = values.astype(result.dtype, copy=False), True


def _restore(graph: TfliteGraph, tensor: TfliteTensor) -> np.ndarray | None:
    """Return a dense real constant, or None. Quantised constants stay: others round them in ways of their own."""
    if tensor.is_quantized:
        return None
    if tensor.is_sparse and tensor.is_constant and tensor.in_frames:
        return densify(graph, tensor)
    return tensor.values


def densify(graph: TfliteGraph, tensor: TfliteTensor) -> np.ndarray:
    """Return a sparse constant's dense values, from elements or blocks.

    The stored axes are those of the tensor and then those of its blocks, in an order of their own.  Each of them is
    either dense, or has a list of the positions that there are, as a compressed sparse row has its columns.
    """
    table = graph.subgraph.Tensors(tensor.number)
    sparsity, rank = table.Sparsity(), len(tensor.shape)
    order = [sparsity.TraversalOrder(level) for level in range(sparsity.TraversalOrderLength())]
    blocks = [sparsity.BlockMap(block) for block in range(sparsity.BlockMapLength())]
    stored_axes: dict[int, np.ndarray] = {}
    # Of each element so far: the number of its path through the axes.
    paths = np.zeros(1, np.int64)
    block_sizes: dict[int, int] = {}
    for level, axis in enumerate(order):
        metadata = sparsity.DimMetadata(level)
        if metadata.Format() == 0:
            size = metadata.DenseSize()
            block_sizes[axis] = size
            parents = np.repeat(np.arange(paths.size), size)
            positions = np.tile(np.arange(size), paths.size)
            paths = paths[parents] * size + positions
        else:
            segments = _vector(metadata.ArraySegments(), metadata.ArraySegmentsType())
            counts = segments[paths + 1] - segments[paths]
            parents = np.repeat(np.arange(paths.size), counts)
            # Behind each segment's begin, as many as it has.
            offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            paths = segments[paths][parents] + offsets
            positions = _vector(metadata.ArrayIndices(), metadata.ArrayIndicesType())[paths]
        stored_axes = {earlier: values[parents] for earlier, values in stored_axes.items()} | {axis: positions}
    indices = [stored_axes[axis] for axis in range(rank)]
    for number, axis in enumerate(blocks):
        indices[axis] = indices[axis] * block_sizes[rank + number] + stored_axes[rank + number]
    dense = np.zeros(tensor.shape, tensor.dtype)
    stored_values = graph.stored_values(tensor)
    # An encoder may pad the values.
    dense[tuple(indices)] = stored_values[: paths.size]
    return dense


def _vector(table: Any, kind: int) -> np.ndarray:
    # Each is a table of one field, at the offset 4, that holds the numbers.
    return np.asarray(table.GetVectorAsNumpy(_VECTORS[kind], 4), np.int64)
