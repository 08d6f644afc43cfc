"""Reductions, softmax and layer normalization over random shapes and axes, against ONNX Runtime."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.onnx_models import node, weights
from tests.support.random_networks import Drawn, Kind, check, check_cores
from tests.support.random_seeds import seeds


def _shape(draw: random.Random, fewest_axes: int = 1) -> tuple[int, ...]:
    extents = (1, 2, 3, 5, 8, 16, 17, 33, 70)
    return tuple(draw.choice(extents) for _ in range(draw.randint(fewest_axes, 4)))


def _axes(draw: random.Random, rank: int) -> list[int]:
    return sorted(draw.sample(range(rank), draw.randint(1, rank)))


def _epilogue(name: str) -> list[Any]:
    return [node("Mul", f"{name} two", "z"), node("Sigmoid", "z", "y")]


TWO = {"two": np.array(2, np.float32)}


def reduction(draw: random.Random) -> Drawn:
    shape = _shape(draw)
    kind = draw.choice(("ReduceMean", "ReduceMax", "ReduceMin"))
    return [node(kind, "x", "y", axes=_axes(draw, len(shape)), keepdims=draw.randint(0, 1))], {"x": shape}, {}


def total(draw: random.Random) -> Drawn:
    shape = _shape(draw)
    axes = np.array(_axes(draw, len(shape)))
    return [node("ReduceSum", "x a", "y", keepdims=draw.randint(0, 1))], {"x": shape}, {"a": axes}


def product(draw: random.Random) -> Drawn:
    shape = _shape(draw)
    axis = draw.randrange(len(shape))
    nodes = [node("Sigmoid", "x", "s"), node("Add", "s two", "t"), node("Div", "t two", "u")]
    return [*nodes, node("ReduceProd", "u", "y", axes=[axis])], {"x": shape}, TWO


def norm(draw: random.Random) -> Drawn:
    shape = _shape(draw)
    nodes = [node("ReduceL2", "x", "n", axes=_axes(draw, len(shape))), node("Div", "x n", "y")]
    return nodes, {"x": shape}, {}


def reduction_of_image(draw: random.Random) -> Drawn:
    """Inside a stage the channels are last."""
    channels, axes = draw.choice((1, 3, 16, 21, 40)), _axes(draw, 4)
    nodes = [node("Conv", "x w", "c"), node("ReduceMean", "c", "m", axes=axes, keepdims=draw.randint(0, 1))]
    image: dict[str, tuple[int, ...]] = {"x": (draw.choice((1, 2)), 3, draw.randint(2, 9), draw.randint(2, 9))}
    return [*nodes, *_epilogue("m")], image, {"w": weights(channels, 3, 1, 1)} | TWO


def softmax(draw: random.Random) -> Drawn:
    shape = _shape(draw)
    kind = draw.choice(("Softmax", "LogSoftmax"))
    return [node(kind, "x", "y", axis=draw.randrange(len(shape)))], {"x": shape}, {}


def softmax_of_image(draw: random.Random) -> Drawn:
    channels = draw.choice((1, 3, 16, 21, 40))
    nodes = [node("Conv", "x w", "c"), node("Softmax", "c", "s", axis=draw.randrange(4))]
    image: dict[str, tuple[int, ...]] = {"x": (draw.choice((1, 2)), 3, draw.randint(2, 9), draw.randint(2, 9))}
    return [*nodes, *_epilogue("s")], image, {"w": weights(channels, 3, 1, 1)} | TWO


def layer_norm(draw: random.Random) -> Drawn:
    shape = _shape(draw)
    axis = draw.randrange(len(shape))
    values = {"g": weights(*shape[axis:]), "b": weights(*shape[axis:], seed=1)}
    nodes = [node("LayerNormalization", "x g b", "n", axis=axis), node("Add", "n x", "y")]
    return nodes, {"x": shape}, values


def layer_norm_taken_apart(draw: random.Random) -> Drawn:
    shape = _shape(draw, 2)
    axes = [-1] if draw.randint(0, 1) else [1]
    square = draw.choice((node("Pow", "d two", "e"), node("Mul", "d d", "e")))
    nodes = [
        node("ReduceMean", "x", "m", axes=axes),
        node("Sub", "x m", "d"),
        square,
        node("ReduceMean", "e", "v", axes=axes),
        node("Add", "v small", "w"),
        node("Sqrt", "w", "s"),
        node("Div", "d s", "n"),
        node("Mul", "n g", "o"),
        node("Add", "o b", "y"),
    ]
    values = {"g": weights(shape[-1]), "b": weights(shape[-1], seed=1), "small": np.array(1e-3, np.float32)}
    return nodes, {"x": shape}, values | TWO


def channels_norm(draw: random.Random) -> Drawn:
    """Transposed for the sake of the normalization, which inside a stage it is anyway."""
    channels = draw.choice((1, 3, 16, 21, 40))
    nodes = [
        node("Conv", "x w", "c"),
        node("Transpose", "c", "d", perm=[0, 2, 3, 1]),
        node("LayerNormalization", "d g b", "e"),
        node("MatMul", "e v", "f"),
        node("Transpose", "f", "h", perm=[0, 3, 1, 2]),
        node("Conv", "h u", "y"),
    ]
    values = {"w": weights(channels, 3, 1, 1), "g": weights(channels), "b": weights(channels, seed=1)}
    values |= {"v": weights(channels, 7), "u": weights(5, 7, 1, 1)}
    return nodes, {"x": (2, 3, draw.randint(2, 9), draw.randint(2, 9))}, values


def instance_norm(draw: random.Random) -> Drawn:
    channels = draw.choice((1, 3, 16, 21, 40))
    nodes = [node("Conv", "x w", "c"), node("InstanceNormalization", "c g b", "n"), node("Relu", "n", "y")]
    values = {"w": weights(channels, 3, 1, 1), "g": weights(channels), "b": weights(channels, seed=1)}
    return nodes, {"x": (2, 3, draw.randint(2, 9), draw.randint(2, 9))}, values


KINDS: list[Kind] = [
    reduction, total, product, norm, reduction_of_image, softmax, softmax_of_image, layer_norm, layer_norm_taken_apart,
    channels_norm, instance_norm,
]  # fmt: skip


@pytest.mark.parametrize("seed", seeds(1, 3))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_result_is_that_of_onnxruntime(kind: Kind, seed: int, tmp_path: Path) -> None:
    check(kind, seed, tmp_path, tolerance=2e-5)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.one_in(2)
def test_several_cores_compute_the_same(kind: Kind, tmp_path: Path) -> None:
    check_cores(kind, tmp_path)
