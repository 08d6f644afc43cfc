"""Positions of extreme elements: ties, NaN, infinities, any axis and dtype, against ONNX Runtime."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import pipeline
from pipeline.executor.kernels.argmax import LONGEST, Argmax
from pipeline.split import extract
from tests.support.onnx_models import by_onnxruntime, in_stages, node, save, weights
from tests.support.random_networks import by_cores
from tests.support.random_seeds import seeds
from tests.support.relax_models import kernels

KINDS = ("ArgMax", "ArgMin")
EXTENTS = (1, 2, 3, 5, 8, 16, 17, 33, 70)
NUMBERS = {
    "float32": TensorProto.FLOAT,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "float64": TensorProto.DOUBLE,
}
NAN, INF = float("nan"), float("inf")


def model(folder: Path, shape: tuple[int, ...], kind: str, dtype: str = "float32", **attributes: Any) -> Path:
    dtypes = {"x": NUMBERS[dtype], "y": TensorProto.INT64}
    return save(folder / "model.onnx", [node(kind, "x", "y", **attributes)], {"x": shape}, ["y"], dtypes=dtypes)


def compare(path: Path, values: np.ndarray) -> None:
    positions = in_stages(pipeline.read(path), [], {"x": values})["y"]
    np.testing.assert_array_equal(positions, by_onnxruntime(path, {"x": values})["y"])


@pytest.mark.parametrize("seed", seeds(3, 8))
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_of_many_equal_ones(kind: str, seed: int, tmp_path: Path) -> None:
    draw = random.Random(f"{kind}{seed}")
    shape = tuple(draw.choice(EXTENTS) for _ in range(draw.randint(1, 4)))
    path = model(tmp_path, shape, kind, axis=draw.randrange(-len(shape), len(shape)), keepdims=draw.randint(0, 1))
    compare(path, np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32))


@pytest.mark.parametrize("seed", seeds(3, 8))
@pytest.mark.parametrize("kind", KINDS)
def test_nan_counts_only_where_it_is_first(kind: str, seed: int, tmp_path: Path) -> None:
    draw, generator = random.Random(f"{kind}{seed}"), np.random.default_rng(seed)
    shape = tuple(draw.choice((1, 2, 3, 17, 40)) for _ in range(3))
    values = generator.choice(np.array([NAN, -INF, INF, -1, 0, 1, 2], np.float32), shape, p=(0.3, 0.2, 0.1, *[0.1] * 4))
    compare(model(tmp_path, shape, kind, axis=draw.randrange(3)), values)


@pytest.mark.parametrize("row", [[NAN] * 20, [-INF] * 20, [INF] * 20, [NAN, *range(20)], [1, NAN, 1, NAN], [-INF, NAN]])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_numbers(kind: str, row: list[float], tmp_path: Path) -> None:
    compare(model(tmp_path, (1, len(row)), kind, axis=1), np.array([row], np.float32))


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "uint8"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.one_in(3)
def test_whole_numbers(kind: str, axis: int, dtype: str, tmp_path: Path) -> None:
    """Also those that float32 cannot tell apart."""
    limits = np.iinfo(dtype)
    values = np.random.default_rng(axis).integers(limits.max - 3, limits.max + 1, (5, 33, 18)).astype(dtype)
    values[..., 0] = limits.min
    compare(model(tmp_path, (5, 33, 18), kind, dtype, axis=axis), values)


@pytest.mark.parametrize("axis", [0, 1])
def test_numbers_of_double_precision(axis: int, tmp_path: Path) -> None:
    values = 1 + np.random.default_rng(axis).integers(0, 9, (33, 40)) * 1e-12
    values[5:7] = NAN
    compare(model(tmp_path, (33, 40), "ArgMax", "float64", axis=axis), values)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axis", range(4))
def test_of_an_image_with_channels_last(axis: int, keepdims: int, tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "c"), node("ArgMax", "c", "y", axis=axis, keepdims=keepdims)]
    values, dtypes = {"w": weights(21, 3, 1, 1)}, {"y": TensorProto.INT64}
    path = save(tmp_path / "model.onnx", nodes, {"x": (2, 3, 6, 19)}, ["y"], values, dtypes=dtypes)
    compare(path, weights(2, 3, 6, 19, seed=1))


def test_it_has_a_kernel_of_its_own_that_takes_what_follows(tmp_path: Path) -> None:
    nodes = [node("ArgMax", "x", "a", axis=1), node("Cast", "a", "y", to=TensorProto.INT32)]
    dtypes = {"y": TensorProto.INT32}
    path = save(tmp_path / "model.onnx", nodes, {"x": (2, 21, 40)}, ["y"], dtypes=dtypes)
    compare(path, weights(2, 21, 40))
    assert list(kernels(extract.module(extract.parts(pipeline.read(path), [])[0])).values()) == ["argmax"]


@pytest.mark.parametrize(("longest", "kernel"), [(20, "general"), (21, "argmax")])
def test_rows_too_long_for_float32_are_left_to_the_general_schedule(longest: int, kernel: str, tmp_path: Path) -> None:
    assert np.float32(LONGEST - 1) + 1 == LONGEST
    module = extract.module(extract.parts(pipeline.read(model(tmp_path, (2, 21), "ArgMax", axis=1)), [])[0])
    assert list(kernels(module, rewrites=[Argmax(longest)]).values()) == [kernel]


@pytest.mark.parametrize("axis", range(3))
def test_several_cores_compute_the_same(axis: int, tmp_path: Path) -> None:
    part = extract.parts(pipeline.read(model(tmp_path, (5, 33, 70), "ArgMin", axis=axis)), [])[0]
    values = weights(5, 33, 70)
    expected = np.expand_dims(values.argmin(axis), axis)
    np.testing.assert_array_equal(by_cores(part, {"x": values}, 3), expected)
