"""Transposed convolution over random shapes, against ONNX Runtime: strides, paddings, dilations, groups."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from pipeline.core.numerics import Numerics
from tests.support.onnx_models import node, weights
from tests.support.random_networks import Drawn, Kind, check, check_cores
from tests.support.random_seeds import seeds
from tests.support.relax_models import constant, module, parameters, run


def _odd(draw: random.Random) -> int:
    return draw.choice((1, 3, 5, 8, 16, 17, 33, 40))


def _window(draw: random.Random) -> dict[str, Any]:
    kernel = [draw.randint(1, 5), draw.randint(1, 5)]
    strides = [draw.choice((1, 2, 2, 3)), draw.choice((1, 2, 2, 3))]
    dilations = [draw.choice((1, 1, 2, 3)), draw.choice((1, 1, 2, 3))]
    reach = [(size - 1) * apart for size, apart in zip(kernel, dilations, strict=True)]
    pads = [draw.randint(0, each) for each in [*reach, *reach]]
    output_padding = [draw.randrange(stride) for stride in strides]
    # ONNX Runtime wants less than the stride, or than the dilation.
    return {
        "kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads,
        "output_padding": output_padding,
    }  # fmt: skip


def _image(draw: random.Random, channels: int) -> dict[str, tuple[int, ...]]:
    return {"x": (draw.choice((1, 2)), channels, draw.randint(6, 13), draw.randint(6, 13))}


def transposed_convolution(draw: random.Random) -> Drawn:
    channels, makes, window = _odd(draw), _odd(draw), _window(draw)
    values = {"w": weights(channels, makes, *window["kernel_shape"]), "b": weights(makes)}
    return [node("ConvTranspose", "x w b", "y", **window)], _image(draw, channels), values


def decoder(draw: random.Random) -> Drawn:
    """The usual sizes in decoders of images, between two convolutions."""
    channels, makes = _odd(draw), _odd(draw)
    size, stride, pad = draw.choice(((2, 2, 0), (4, 2, 1), (3, 2, 1), (8, 4, 2), (16, 8, 4)))
    values = {"v": weights(channels, 3, 1, 1), "w": weights(channels, makes, size, size), "u": weights(5, makes, 1, 1)}
    nodes = [
        node("Conv", "x v", "c"),
        node("ConvTranspose", "c w", "d", strides=[stride, stride], pads=[pad] * 4),
        node("Relu", "d", "e"),
        node("Conv", "e u", "y"),
    ]
    return nodes, {"x": (1, 3, draw.randint(3, 9), draw.randint(3, 9))}, values


def grouped_convolution(draw: random.Random) -> Drawn:
    groups, window = draw.choice((2, 3)), _window(draw)
    channels, makes = groups * draw.choice((1, 2, 9, 17)), draw.choice((1, 3, 16, 20))
    values = {"w": weights(channels, makes, *window["kernel_shape"])}
    nodes = [node("ConvTranspose", "x w", "c", group=groups, **window), node("Sigmoid", "c", "y")]
    return nodes, _image(draw, channels), values


def depthwise(draw: random.Random) -> Drawn:
    channels, window = _odd(draw), _window(draw)
    values = {"w": weights(channels, 1, *window["kernel_shape"])}
    return [node("ConvTranspose", "x w", "y", group=channels, **window)], _image(draw, channels), values


KINDS: list[Kind] = [transposed_convolution, decoder, grouped_convolution, depthwise]


@pytest.mark.parametrize("seed", seeds(1, 3))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_result_is_that_of_onnxruntime(kind: Kind, seed: int, tmp_path: Path) -> None:
    check(kind, seed, tmp_path)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.one_in(2)
def test_several_cores_compute_the_same(kind: Kind, tmp_path: Path) -> None:
    check_cores(kind, tmp_path)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_weights_of_half_the_size(kind: str) -> None:
    """Sums are those of weights of so few digits that they lose none, and nothing else is stored."""
    kernel = np.random.default_rng(0).integers(-8, 9, (16, 20, 2, 2)).astype(np.float32) / 8
    x = {"x": weights(1, 16, 4, 4, seed=1)}
    stage = module(x, lambda emit, data: emit(relax.op.nn.conv2d_transpose(data, constant(kernel), strides=(2, 2))))
    result, expected = (run(stage, x, numerics=Numerics(weights=each)) for each in (kind, "float32"))
    np.testing.assert_array_equal(result, expected)
    assert {array.dtype.itemsize for array in parameters(stage, Numerics(weights=kind))} == {2}
