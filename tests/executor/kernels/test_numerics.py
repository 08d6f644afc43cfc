"""Weights of half the size, and what it does to results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.numerics import Numerics
from pipeline.errors import BuildError
from tests.support.onnx_models import by_onnxruntime, node, save, weights

KINDS = ("float16", "bfloat16")


def round_to(array: np.ndarray, kind: str) -> np.ndarray:
    """Return float32 values round_to to nearest, ties to even, as their exponent and digits allow."""
    if kind == "float16":
        return array.astype(np.float16).astype(np.float32)
    mantissa, exponent = np.frexp(array.astype(np.float64))
    result: np.ndarray = np.ldexp(np.rint(mantissa * 256) / 256, exponent).astype(np.float32)
    return result


def network(path: Path, kind: str) -> Path:
    """Write a network of every operator with packed weights, these round_to to what the kernels will see."""
    values = {
        "a": weights(40, 5, 3, 3), "b": weights(33, 40, 1, 1), "c": weights(33, 11, 3, 3), "d": weights(33 * 49, 10),
        "e": weights(40),
    }  # fmt: skip
    values = {name: value if name == "e" else round_to(value, kind) for name, value in values.items()}
    nodes = [
        node("Conv", "x a e", "t1", pads=[1] * 4),
        node("Relu", "t1", "t2"),
        node("Conv", "t2 b", "t3"),
        node("Conv", "t3 c", "t4", pads=[1] * 4, group=3),
        node("Flatten", "t4", "t5"),
        node("MatMul", "t5 d", "y"),
    ]
    return save(path, nodes, {"x": (2, 5, 7, 7)}, ["y"], values)


def result(path: Path, **options: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the frame, its result, and the bytes of all parameters."""
    graph = pipeline.read(path)
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1), **options)
    frame = np.random.default_rng(3).standard_normal((2, 5, 7, 7)).astype(np.float32)
    with pipeline.load(bundle) as running:
        output = running.submit(frame).result(60)
    return frame, output, sum(array.nbytes for code in bundle.codes if code for array in code.parameters.values())


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_those_of_the_rounded_weights(tmp_path: Path, kind: str) -> None:
    path = network(tmp_path / "model.onnx", kind)
    frame, output, nbytes = result(path, weights=kind, tolerance=1e-5)
    expected = by_onnxruntime(path, {"x": frame})["y"]
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    _, _, float32_bytes = result(path)
    assert nbytes < 0.55 * float32_bytes


def test_the_error_is_against_the_whole_weights(small_onnx: Path) -> None:
    graph = pipeline.read(small_onnx)
    plan = pipeline.plan(graph, stages=2)
    errors = [pipeline.build(graph, plan, weights=kind).parity.relative for kind in ("float32", *KINDS)]
    assert errors[0] < 1e-6 < errors[1] < errors[2] < 5e-2
    with pytest.raises(BuildError, match="allowed is 1e-05"):
        pipeline.build(graph, plan, weights="bfloat16", tolerance=1e-5)


def test_winograd_is_compared_with_direct_sums(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "t", pads=[1] * 4), node("Conv", "t w", "y", pads=[1] * 4)]
    values = {"w": weights(32, 32, 3, 3) / 17}
    graph = pipeline.read(save(tmp_path / "model.onnx", nodes, {"x": (1, 32, 16, 16)}, ["y"], values))
    parity = pipeline.build(graph, pipeline.plan(graph, stages=2), precision="float32").parity
    assert 0 < parity.relative < 1e-5


def test_other_types_are_refused() -> None:
    with pytest.raises(BuildError, match="weights is 'int4'; it must be one of float32, float16, bfloat16"):
        Numerics(weights="int4")
