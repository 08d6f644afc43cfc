"""Every rule over random shapes, against ONNX Runtime: odd channels, strides, paddings, groups."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.executor.build import compile_stage
from pipeline.executor.devices.cpu import CpuRuntime
from pipeline.executor.schedules import writers
from pipeline.plans import StagePlan
from pipeline.split import extract
from pipeline.split.extract import Part
from tests.onnx_models import HOST, assert_close, by_onnxruntime, frame, in_stages, node, save, weights

Drawn = tuple[list[Any], dict[str, tuple[int, ...]], dict[str, np.ndarray]]
"""Nodes that make ``y``, inputs, constants."""


def _image(draw: random.Random, channels: int) -> dict[str, tuple[int, ...]]:
    return {"x": (draw.choice((1, 1, 2)), channels, draw.randint(5, 19), draw.randint(5, 19))}


def _odd(draw: random.Random) -> int:
    return draw.choice((1, 3, 5, 7, 8, 12, 16, 17, 31, 32, 33, 40, 48, 65))


def _kernel(draw: random.Random) -> dict[str, Any]:
    size = [draw.choice((1, 1, 2, 3, 3, 5)), draw.choice((1, 1, 2, 3, 3, 5))]
    dilations = [draw.choice((1, 1, 2)) if each < 3 else 1 for each in size]
    pads = [draw.randint(0, each - 1) for each in [*size, *size]]
    strides = [draw.choice((1, 1, 2, 3)), draw.choice((1, 1, 2, 3))]
    return {"kernel_shape": size, "dilations": dilations, "pads": pads, "strides": strides}


def convolution(draw: random.Random) -> Drawn:
    channels, makes = _odd(draw), _odd(draw)
    attributes = _kernel(draw)
    values = {"w": weights(makes, channels, *attributes["kernel_shape"]), "b": weights(makes)}
    return [node("Conv", "x w b", "y", **attributes)], _image(draw, channels), values


def pointwise(draw: random.Random) -> Drawn:
    channels, makes = _odd(draw), _odd(draw)
    values = {"w": weights(makes, channels, 1, 1), "b": weights(makes)}
    nodes = [node("Conv", "x w b", "c"), node("Add", "c r", "s"), node("Relu", "s", "y")]
    image = _image(draw, channels)
    batch, _, height, width = image["x"]
    return nodes, {**image, "r": (batch, makes, height, width)}, values


def grouped(draw: random.Random) -> Drawn:
    groups = draw.choice((2, 3, 4))
    channels, makes = groups * draw.choice((1, 2, 5, 9, 17)), groups * draw.choice((1, 3, 7, 16, 20))
    attributes = _kernel(draw)
    values = {"w": weights(makes, channels // groups, *attributes["kernel_shape"])}
    return [node("Conv", "x w", "y", group=groups, **attributes)], _image(draw, channels), values


def depthwise(draw: random.Random) -> Drawn:
    channels = _odd(draw)
    attributes = _kernel(draw)
    values = {"w": weights(channels, 1, *attributes["kernel_shape"])}
    nodes = [node("Conv", "x w", "c", group=channels, **attributes), node("Sigmoid", "c", "y")]
    return nodes, _image(draw, channels), values


def residual(draw: random.Random) -> Drawn:
    """Two blocks with skips: the sums may take their operands' memory, but not too early."""
    channels = _odd(draw)
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
    return nodes, _image(draw, channels), values


def max_pool(draw: random.Random) -> Drawn:
    attributes = _kernel(draw)
    return [node("MaxPool", "x", "y", ceil_mode=draw.randint(0, 1), **attributes)], _image(draw, _odd(draw)), {}


def average_pool(draw: random.Random) -> Drawn:
    attributes = _kernel(draw)
    attributes.pop("dilations")
    include = draw.randint(0, 1)
    return [node("AveragePool", "x", "y", count_include_pad=include, **attributes)], _image(draw, _odd(draw)), {}


def dense(draw: random.Random) -> Drawn:
    rows, depth, makes = draw.choice((1, 1, 2, 5, 17)), _odd(draw), _odd(draw)
    values = {"w": weights(depth, makes), "b": weights(makes)}
    return [node("Gemm", "x w b", "c"), node("Relu", "c", "y")], {"x": (rows, depth)}, values


def normalization(draw: random.Random) -> Drawn:
    attributes: dict[str, Any] = {
        "size": draw.choice((1, 3, 5)),
        "alpha": 0.02,
        "beta": draw.choice((0.5, 0.75, 1.0, 0.6)),
        "bias": 1.5,
    }
    return [node("LRN", "x", "y", **attributes)], _image(draw, _odd(draw)), {}


def branches(draw: random.Random) -> Drawn:
    """Concatenation along channels, a shuffle of channels, and a mean over the pixels."""
    channels, makes = _odd(draw), 2 * draw.choice((2, 5, 8, 9))
    values = {"w": weights(makes, channels, 1, 1), "v": weights(makes, channels, 3, 3)}
    image = _image(draw, channels)
    batch, _, height, width = image["x"]
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
    return nodes, image, values


RULES: list[Callable[[random.Random], Drawn]] = [
    convolution, pointwise, grouped, depthwise, residual, max_pool, average_pool, dense, normalization, branches,
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_result_is_that_of_onnxruntime(rule: Callable[[random.Random], Drawn], seed: int, tmp_path: Path) -> None:
    nodes, inputs, constants = rule(random.Random(f"{rule.__name__}{seed}"))
    path = save(tmp_path / "model.onnx", nodes, inputs, ["y"], constants)
    graph = pipeline.read(path)
    values = frame(graph)
    assert_close(in_stages(graph, [], values), by_onnxruntime(path, values))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_several_cores_compute_the_same(
    rule: Callable[[random.Random], Drawn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "ENOUGH", 1)
    nodes, inputs, constants = rule(random.Random(rule.__name__))
    path = save(tmp_path / "model.onnx", nodes, inputs, ["y"], constants)
    graph = pipeline.read(path)
    part = extract.parts(graph, [])[0]
    values = frame(graph)
    one, three = (by_cores(part, values, cores) for cores in (1, 3))
    np.testing.assert_allclose(three, one, rtol=0, atol=1e-6 * float(np.abs(one).max()))


def by_cores(part: Part, values: Mapping[str, np.ndarray], cores: int) -> np.ndarray:
    """Run a model's only stage, compiled for so many cores."""
    runtime = CpuRuntime(HOST)
    program = runtime.load(
        StagePlan("test", "cpu", part.inputs, part.outputs), compile_stage(extract.module(part), HOST, cores)
    )
    made = runtime.run(program, [runtime.copy_in(values[spec.name]) for spec in part.inputs])
    return np.array(runtime.copy_out(made[0]))
