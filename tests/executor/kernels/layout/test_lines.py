"""Operators over one axis, over random shapes, against ONNX Runtime: the kernels for images compute them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import pipeline
from tests.support.onnx_models import node, save, weights
from tests.support.random_networks import Drawn, Kind, check, odd
from tests.support.random_seeds import seeds


def _window(draw: random.Random, size: int) -> dict[str, Any]:
    pads = [draw.randint(0, size - 1), draw.randint(0, size - 1)]
    return {"kernel_shape": [size], "strides": [draw.choice((1, 1, 2, 3))], "pads": pads}


def _sound(draw: random.Random, channels: int) -> dict[str, tuple[int, ...]]:
    return {"x": (draw.choice((1, 1, 2)), channels, draw.randint(6, 40))}


def convolution(draw: random.Random) -> Drawn:
    channels, makes, size = odd(draw), odd(draw), draw.choice((1, 2, 3, 5))
    window = _window(draw, size) | {"dilations": [draw.choice((1, 1, 2)) if size < 4 else 1]}
    constants = {"w": weights(makes, channels, size), "b": weights(makes)}
    return [node("Conv", "x w b", "y", **window)], _sound(draw, channels), constants


def depthwise_and_grouped(draw: random.Random) -> Drawn:
    groups, size = draw.choice((3, 8, 17)), draw.choice((3, 5))
    depth, makes = draw.choice((1, 1, 2, 4)), draw.choice((1, 1, 2, 5))
    constants = {"w": weights(groups * makes, depth, size), "v": weights(4, groups * makes, 1)}
    nodes = [node("Conv", "x w", "c", group=groups, **_window(draw, size)), node("Conv", "c v", "y")]
    return nodes, _sound(draw, groups * depth), constants


def transposed_convolution(draw: random.Random) -> Drawn:
    channels, makes, size = odd(draw), odd(draw), draw.choice((2, 3, 4))
    constants = {"w": weights(channels, makes, size), "b": weights(makes)}
    nodes = [node("ConvTranspose", "x w b", "c", strides=[2], pads=[1, 0]), node("Tanh", "c", "y")]
    return nodes, _sound(draw, channels), constants


def network(draw: random.Random) -> Drawn:
    """The usual ones for sound: activations, residual sums, joins, pools, and an end in the model's layout."""
    channels, makes = odd(draw), odd(draw)
    constants = {
        "w": weights(makes, channels, 3), "s": weights(makes, 1), "k": weights(1, makes, 1),
        "v": weights(makes, makes, 3), "d": weights(makes, 1, 3), "u": weights(2, 2 * makes, 1),
    }  # fmt: skip
    nodes = [
        node("Conv", "x w", "c", pads=[1, 1]),
        node("PRelu", "c s", "p"),
        node("Mul", "p k", "m"),
        node("Conv", "m v", "q", pads=[1, 1]),
        node("Add", "q p", "a"),
        node("Sigmoid", "a", "g"),
        node("Conv", "g d", "e", pads=[1, 1], group=makes),
        node("Concat", "e a", "j", axis=1),
        node(draw.choice(("MaxPool", "AveragePool")), "j", "l", kernel_shape=[2], strides=[2]),
        node("Conv", "l u", "o"),
        node("Transpose", "o", "y", perm=[0, 2, 1]),
    ]
    return nodes, _sound(draw, channels), constants


KINDS = (convolution, depthwise_and_grouped, transposed_convolution, network)


@pytest.mark.parametrize("seed", seeds(1, 4))
@pytest.mark.parametrize("kind", KINDS)
def test_result_is_that_of_onnxruntime(kind: Kind, seed: int, tmp_path: Path) -> None:
    check(kind, seed, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_all_operators_have_kernels(kind: Kind, tmp_path: Path) -> None:
    nodes, inputs, constants = kind(random.Random("kernels"))
    graph = pipeline.read(save(tmp_path / "model.onnx", nodes, inputs, ["y"], constants))
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1))
    kinds = {each.kind for stage in bundle.general for each in stage.operators}
    assert not {"conv1d", "conv1d_transpose", "max_pool1d", "avg_pool1d", "prelu"} & kinds


def test_extents_that_are_joined_along_the_length(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "c"), node("Concat", "z c", "j", axis=2), node("Conv", "j v", "y")]
    inputs, constants = {"x": (1, 3, 9), "z": (1, 5, 4)}, {"w": weights(5, 3, 2), "v": weights(4, 5, 3)}
    path = save(tmp_path / "model.onnx", nodes, inputs, ["y"], constants)
    assert pipeline.verify(pipeline.read(path), path).relative < 1e-5
