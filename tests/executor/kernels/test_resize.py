"""Bilinear resizing over random shapes, against ONNX Runtime and the definition, and its positions along an axis."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from pipeline.executor.kernels.resize import interpolation
from pipeline.model import byte_resizing
from tests.support.onnx_models import node, weights
from tests.support.random_networks import Drawn, check, check_cores, odd
from tests.support.random_seeds import seeds
from tests.support.relax_models import kernels, module, run

MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


def resize(draw: random.Random) -> Drawn:
    """Between two convolutions, which have their channels last; larger, smaller, and as large."""
    channels, height, width = odd(draw), draw.randint(1, 12), draw.randint(1, 12)
    size = [draw.choice((height, 2 * height, draw.randint(1, 30))), draw.choice((width, 2 * width, 27))]
    batch = draw.choice((1, 2))
    mode = draw.choice(MODES)
    constants = {
        "w": weights(channels, 3, 1, 1), "n": np.array([batch, channels, *size], np.int64),
        "v": weights(2, channels, 1, 1),
    }  # fmt: skip
    nodes = [
        node("Conv", "x w", "c"),
        node("Resize", "c - - n", "r", mode="linear", coordinate_transformation_mode=mode),
        node("Relu", "r", "a"),
        node("Conv", "a v", "y"),
    ]
    return nodes, {"x": (batch, 3, height, width)}, constants


@pytest.mark.parametrize("seed", seeds(4, 12))
def test_result_is_that_of_onnxruntime(seed: int, tmp_path: Path) -> None:
    check(resize, seed, tmp_path, opset=18)


def test_several_cores(tmp_path: Path) -> None:
    check_cores(resize, tmp_path, opset=18)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("layout", "shape"), [("NHWC", (2, 5, 7, 21)), ("NHWC", (1, 6, 4, 1)), ("NCHW", (1, 3, 5, 7))])
@pytest.mark.one_in(2)
def test_all_layouts_agree_with_the_four_neighbours(mode: str, layout: str, shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    network = module(
        {"x": data},
        lambda _, x: relax.op.image.resize2d(
            x, (9, 11), layout=layout, method="linear", coordinate_transformation_mode=mode
        ),
    )
    # An image with its channels first that nobody has turned is TVM's.
    assert ("resize" in kernels(network).values()) == (layout == "NHWC")
    image = data if layout == "NHWC" else data.transpose(0, 2, 3, 1)
    expected = along(along(image, 9, 1, mode), 11, 2, mode)
    expected = expected if layout == "NHWC" else expected.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(run(network, {"x": data}), expected, atol=1e-5)


def along(image: np.ndarray, extent: int, axis: int, mode: str) -> np.ndarray:
    """Resize one axis by the definition, in float64."""
    old = image.shape[axis]
    steps = np.arange(extent)
    positions = {
        "align_corners": steps * (old - 1) / (extent - 1),
        "asymmetric": steps * old / extent,
    }.get(mode, (steps + 0.5) * old / extent - 0.5)
    inside = positions.clip(0, old - 1)
    lower = np.floor(inside).astype(int)
    shares = (inside - lower).reshape([-1 if each == axis else 1 for each in range(4)])
    upper = np.minimum(lower + 1, old - 1)
    mixed: np.ndarray = image.take(lower, axis) * (1 - shares) + image.take(upper, axis) * shares
    return mixed


def test_positions_that_shrink_stay_inside() -> None:
    neighbours, shares = interpolation(9, 3, "half_pixel")
    np.testing.assert_array_equal(neighbours, [[1, 2], [4, 5], [7, 8]])
    np.testing.assert_allclose(shares, 0)
    neighbours, _ = interpolation(2, 64, "half_pixel")
    assert neighbours.min() == 0
    assert neighbours.max() == 1


@pytest.mark.parametrize(("side", "size"), [((5, 7), (9, 27)), ((6, 4), (3, 3)), ((3, 9), (3, 2))])
@pytest.mark.parametrize("channels", [1, 3, 21])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
@pytest.mark.one_in(3)
def test_bytes_are_rounded_as_by_litert(
    dtype: str, channels: int, side: tuple[int, int], size: tuple[int, int]
) -> None:
    limits = np.iinfo(dtype)
    data = np.random.default_rng(0).integers(limits.min, limits.max, (2, *side, channels), dtype, endpoint=True)
    places = [tables(extent, count, dtype) for extent, count in zip(side, size, strict=True)]
    network = module({"x": data}, lambda emit, x: byte_resizing.resize(emit.__self__, x, *places))
    # Most of a mixed row would not be read where columns shrink much.
    assert ("resize" in kernels(network).values()) == (side[1] <= 2 * size[1])
    np.testing.assert_array_equal(run(network, {"x": data}), four_neighbours(data, *places))


def tables(extent: int, count: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the neighbours of aligned corners, and the second's share: whole 1024ths for signed numbers."""
    positions = np.arange(count) * (extent - 1) / max(count - 1, 1)
    first = np.floor(positions)
    shares = positions - first
    shares = shares.astype(np.float32) if dtype == "uint8" else np.floor(shares * 1024)
    return np.stack([first, np.minimum(first + 1, extent - 1)], 1), shares


def four_neighbours(image: np.ndarray, *places: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the sum of products with the neighbours, each rounded where they are real."""
    is_real = image.dtype == np.uint8
    wide, unit = ("float32", 1) if is_real else ("int64", 1024)
    (rows, down), (columns, right) = ((positions.astype(int), shares.astype(wide)) for positions, shares in places)
    total: Any = 0
    for side, across in enumerate((unit - right, right)):
        for end, along_rows in enumerate((unit - down, down)):
            corner = image[:, rows[:, end]][:, :, columns[:, side]].astype(wide)
            total = total + corner * along_rows[:, None, None] * across[:, None]
    rounded = total + np.float32(0.5) if is_real else (total + np.where(total > 0, 1 << 19, (1 << 19) - 1)) >> 20
    result: np.ndarray = rounded.astype(image.dtype)
    return result
