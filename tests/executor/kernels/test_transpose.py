"""Transposing tensors of random shapes, also where they are shorter than a vector, against NumPy."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import pipeline
from pipeline.split import extract
from tests.support.onnx_models import in_stages, node, save
from tests.support.random_networks import by_cores
from tests.support.random_seeds import seeds

EXTENTS = (1, 2, 3, 5, 16, 17, 33, 48)


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_result_is_that_of_numpy(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    shape = [draw.choice(EXTENTS) for _ in range(draw.randint(2, 5))]
    axes = draw.sample(range(len(shape)), len(shape))
    path = save(tmp_path / "model.onnx", [node("Transpose", "x", "y", perm=axes)], {"x": shape}, ["y"])
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    result = in_stages(pipeline.read(path), [], {"x": values})["y"]
    np.testing.assert_array_equal(result, values.transpose(axes))


@pytest.mark.parametrize("columns", [1, 3])
def test_a_slice_is_none(columns: int, tmp_path: Path) -> None:
    """It copies by the same indices, and leaves some out."""
    constants = {"starts": np.array([0]), "ends": np.array([columns]), "axes": np.array([1])}
    path = save(tmp_path / "model.onnx", [node("Slice", "x starts ends axes", "y")], {"x": (10, 4)}, ["y"], constants)
    values = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32)
    np.testing.assert_array_equal(in_stages(pipeline.read(path), [], {"x": values})["y"], values[:, :columns])


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_other_dtypes(dtype: str, tmp_path: Path) -> None:
    kinds = {"int32": TensorProto.INT32, "int64": TensorProto.INT64, "uint8": TensorProto.UINT8}
    nodes = [node("Transpose", "x", "y", perm=[1, 0])]
    path = save(tmp_path / "model.onnx", nodes, {"x": (19, 35)}, ["y"], dtypes={"x": kinds[dtype], "y": kinds[dtype]})
    values = np.arange(19 * 35).reshape(19, 35).astype(dtype)
    np.testing.assert_array_equal(in_stages(pipeline.read(path), [], {"x": values})["y"], values.T)


@pytest.mark.parametrize("shape", [(3, 211, 211), (211, 211, 3), (40, 31, 37), (2, 181, 181)])
def test_several_cores_compute_the_same(shape: tuple[int, int, int], tmp_path: Path) -> None:
    """Tensors large enough to be worth it."""
    nodes = [node("Transpose", "x", "y", perm=[0, 2, 1] if shape[0] == 2 else [1, 2, 0])]
    part = extract.parts(pipeline.read(save(tmp_path / "model.onnx", nodes, {"x": shape}, ["y"])), [])[0]
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected = values.transpose([0, 2, 1] if shape[0] == 2 else [1, 2, 0])
    np.testing.assert_array_equal(by_cores(part, {"x": values}, 3), expected)
