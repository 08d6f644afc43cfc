"""Weights that a TFLite file stores without their zeros, or in 16 bits, are restored when it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

import pipeline
from tests.frontends.tflite.test_tflite import Writer, schema
from tests.support.onnx_models import kinds, weights


def sparse_weights(rows: int, columns: int) -> np.ndarray:
    """Return weights of which two thirds of the blocks of four columns are zeros."""
    values = weights(rows, columns)
    mask = np.arange(rows * columns // 4).reshape(rows, columns // 4) % 3 == 0
    sparse: np.ndarray = values * np.repeat(mask, 4, axis=1)
    return sparse


def axis_of(size: int) -> Any:
    axis = schema.DimensionMetadataT()
    axis.format, axis.denseSize = schema.DimensionType.DENSE, size
    return axis


def sparse_axis(segments: list[int], indices: list[int]) -> Any:
    axis = schema.DimensionMetadataT()
    axis.format = schema.DimensionType.SPARSE_CSR
    axis.arraySegmentsType = axis.arrayIndicesType = schema.SparseIndexVector.Int32Vector
    axis.arraySegments, axis.arrayIndices = schema.Int32VectorT(), schema.Int32VectorT()
    axis.arraySegments.values, axis.arrayIndices.values = segments, indices
    return axis


def store_sparse(writer: Writer, name: str, values: np.ndarray, block: int) -> int:
    """Add a constant without its zeros, or without its blocks of zeros along the columns; return its number."""
    rows, columns = values.shape
    blocks = values.reshape(rows, columns // block, block)
    is_there = blocks.any(axis=2)
    segments = [0, *np.cumsum(is_there.sum(axis=1)).tolist()]
    number = writer.constant(name, blocks[is_there].reshape(-1))
    tensor = writer.graph.tensors[number]
    tensor.shape, tensor.sparsity = [rows, columns], schema.SparsityParametersT()
    tensor.sparsity.traversalOrder = [0, 1] if block == 1 else [0, 1, 2]
    tensor.sparsity.blockMap = None if block == 1 else [1]
    tensor.sparsity.dimMetadata = [axis_of(rows), sparse_axis(segments, np.nonzero(is_there)[1].tolist())]
    if block > 1:
        tensor.sparsity.dimMetadata.append(axis_of(block))
    return number


@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_weights_without_their_zeros(tmp_path: Path, block: int, dtype: str) -> None:
    writer = Writer(1, 24)
    values = sparse_weights(6, 24).astype(dtype)
    kernel = writer.add("DENSIFY", [store_sparse(writer, "stored", values, block)], writer.tensor("d", (6, 24), dtype))
    if dtype == "float16":
        kernel = writer.add("DEQUANTIZE", [kernel], writer.tensor("kernel", (6, 24)))
    result = writer.add("FULLY_CONNECTED", [0, kernel, -1], writer.tensor("y", (1, 6)), options="FullyConnectedOptions")
    path = writer.save(tmp_path / "m.tflite", result)
    graph = pipeline.read(path, fallback=False)
    assert kinds(graph) == ["matmul"]
    assert pipeline.verify(graph, path).relative < 1e-5
