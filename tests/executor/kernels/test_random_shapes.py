"""The rules over random shapes, against ONNX Runtime: odd channels, strides, paddings, groups."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.onnx_models import node, weights
from tests.support.random_networks import Drawn, Kind, check, check_cores, image, odd, window
from tests.support.random_seeds import seeds

pytestmark = pytest.mark.thorough


def convolution(draw: random.Random) -> Drawn:
    channels, makes = odd(draw), odd(draw)
    attributes = window(draw)
    values = {"w": weights(makes, channels, *attributes["kernel_shape"]), "b": weights(makes)}
    return [node("Conv", "x w b", "y", **attributes)], image(draw, channels), values


def pointwise(draw: random.Random) -> Drawn:
    channels, makes = odd(draw), odd(draw)
    values = {"w": weights(makes, channels, 1, 1), "b": weights(makes)}
    nodes = [node("Conv", "x w b", "c"), node("Add", "c r", "s"), node("Relu", "s", "y")]
    images = image(draw, channels)
    batch, _, height, width = images["x"]
    return nodes, {**images, "r": (batch, makes, height, width)}, values


def grouped_convolution(draw: random.Random) -> Drawn:
    groups = draw.choice((2, 3, 4))
    channels, makes = groups * draw.choice((1, 2, 5, 9, 17)), groups * draw.choice((1, 3, 7, 16, 20))
    attributes = window(draw)
    values = {"w": weights(makes, channels // groups, *attributes["kernel_shape"])}
    return [node("Conv", "x w", "y", group=groups, **attributes)], image(draw, channels), values


def depthwise(draw: random.Random) -> Drawn:
    channels = odd(draw)
    attributes = window(draw)
    values = {"w": weights(channels, 1, *attributes["kernel_shape"])}
    nodes = [node("Conv", "x w", "c", group=channels, **attributes), node("Sigmoid", "c", "y")]
    return nodes, image(draw, channels), values


def residual(draw: random.Random) -> Drawn:
    """Two blocks with skips: the sums may take their operands' memory, but not too early."""
    channels = odd(draw)
    values = {name: weights(channels, channels, 1, 1, seed=seed) / channels for seed, name in enumerate("abcd")}
    nodes = [
        node("Conv", "x a", "s"),
        node("Conv", "s b", "t"),
        node("Add", "t s", "u"),
        node("Conv", "u c", "v"),
        node("Relu", "v", "p"),
        node("Conv", "p d", "q"),
        node("Add", "q u", "z"),
        node("Add", "z p", "y"),
    ]
    return nodes, image(draw, channels), values


def max_pool(draw: random.Random) -> Drawn:
    attributes = window(draw)
    return [node("MaxPool", "x", "y", ceil_mode=draw.randint(0, 1), **attributes)], image(draw, odd(draw)), {}


def average_pool(draw: random.Random) -> Drawn:
    attributes = window(draw)
    attributes.pop("dilations")
    include = draw.randint(0, 1)
    return [node("AveragePool", "x", "y", count_include_pad=include, **attributes)], image(draw, odd(draw)), {}


def dense(draw: random.Random) -> Drawn:
    rows, depth, makes = draw.choice((1, 1, 2, 5, 17)), odd(draw), odd(draw)
    values = {"w": weights(depth, makes), "b": weights(makes)}
    return [node("Gemm", "x w b", "c"), node("Relu", "c", "y")], {"x": (rows, depth)}, values


def normalization(draw: random.Random) -> Drawn:
    attributes: dict[str, Any] = {
        "size": draw.choice((1, 3, 5)),
        "alpha": 0.02,
        "beta": draw.choice((0.5, 0.75, 1.0, 0.6)),
        "bias": 1.5,
    }
    return [node("LRN", "x", "y", **attributes)], image(draw, odd(draw)), {}


def branches(draw: random.Random) -> Drawn:
    """Concatenation along channels, a shuffle of channels, and a mean over the pixels."""
    channels, makes = odd(draw), 2 * draw.choice((2, 5, 8, 9))
    values = {"w": weights(makes, channels, 1, 1), "v": weights(makes, channels, 3, 3)}
    images = image(draw, channels)
    batch, _, height, width = images["x"]
    values["split"] = np.array([batch, 4, makes // 2, height, width])
    values["joined"] = np.array([batch, 2 * makes, height, width])
    nodes = [
        node("Conv", "x w", "a"),
        node("Conv", "x v", "b", pads=[1, 1, 1, 1]),
        node("Concat", "a b", "c", axis=1),
        node("Reshape", "c split", "d"),
        node("Transpose", "d", "e", perm=[0, 2, 1, 3, 4]),
        node("Reshape", "e joined", "f"),
        node("GlobalAveragePool", "f", "g"),
        node("Flatten", "g", "y"),
    ]
    return nodes, images, values


RULES: list[Kind] = [
    convolution, pointwise, grouped_convolution, depthwise, residual, max_pool, average_pool, dense, normalization,
    branches,
]  # fmt: skip


@pytest.mark.parametrize("seed", seeds(1, 4))
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_result_is_that_of_onnxruntime(rule: Kind, seed: int, tmp_path: Path) -> None:
    check(rule, seed, tmp_path)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.one_in(2)
def test_several_cores_compute_the_same(rule: Kind, tmp_path: Path) -> None:
    check_cores(rule, tmp_path)
