"""NaN: what activations, limits and extremes make of it is what ONNX Runtime makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import pipeline
from tests.support.onnx_models import by_onnxruntime, in_stages, node, save, weights

pytestmark = pytest.mark.thorough

CONV = node("Conv", "x w", "c", "conv", pads=[1] * 4)
LIMITS = {"low": np.array(0, np.float32), "high": np.array(6, np.float32)}
NAN = weights(1, 16, 19, 19)
NAN[0, 1, 3, 4] = np.nan
ACTIVATIONS = (
    *("Relu", "Clip", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "Sigmoid", "Tanh", "HardSwish"),
    *("Softplus", "Gelu", "Erf", "Exp", "Abs", "Sign", "ThresholdedRelu"),
)


# NumPy's warning about the comparison of numbers beside NaN.
@pytest.mark.filterwarnings("ignore:invalid value encountered")
def check(path: Path, nodes: list[Any], constants: Mapping[str, np.ndarray], **options: Any) -> None:
    inputs = options.pop("inputs", {"x": NAN})
    shapes = {name: value.shape for name, value in inputs.items()}
    saved = save(path / "m.onnx", nodes, shapes, ["y"], constants, opset=20, **options)
    result = in_stages(pipeline.read(saved), [], inputs)["y"]
    expected = by_onnxruntime(saved, inputs)["y"]
    assert np.isnan(inputs["x"]).any()
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("fused", [False, True], ids=["alone", "fused"])
@pytest.mark.one_in(2)
def test_activations(tmp_path: Path, kind: str, *, fused: bool) -> None:
    first, read = ([CONV], "c") if fused else ([], "x")
    last = node(kind, f"{read} low high" if kind == "Clip" else read, "y")
    check(tmp_path, [*first, last], {"w": weights(16, 16, 3, 3) / 12, **LIMITS} if fused else LIMITS)


@pytest.mark.parametrize("kind", ["Relu", "Clip"])
def test_activations_of_dense_layers(tmp_path: Path, kind: str) -> None:
    values = weights(5, 64)
    values[1, 7] = np.nan
    last = node(kind, "d low high" if kind == "Clip" else "d", "y")
    constants = {"w": weights(64, 8) / 8, **LIMITS}
    check(tmp_path, [node("MatMul", "x w", "d"), last], constants, inputs={"x": values})


@pytest.mark.parametrize("kind", ["Max", "Min"])
@pytest.mark.parametrize("read", ["x z", "z x", "x high", "high x", "x z low"])
def test_the_larger_and_the_smaller_of_tensors(tmp_path: Path, kind: str, read: str) -> None:
    inputs = {"x": NAN, **({"z": -weights(1, 16, 19, 19)} if "z" in read else {})}
    check(tmp_path, [node(kind, read, "y")], LIMITS, inputs=inputs)


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_sums(tmp_path: Path, axis: int) -> None:
    check(tmp_path, [node("ReduceSum", "x a", "y")], {"a": np.array([axis])})


@pytest.mark.parametrize(("kind", "extreme"), [("ReduceMax", np.nanmax), ("ReduceMin", np.nanmin)])
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_extremes_lose_nothing_to_nan(tmp_path: Path, kind: str, extreme: Any, axis: int) -> None:
    # ONNX Runtime forgets what came before it, along some axes.
    path = save(
        tmp_path / "m.onnx", [node(kind, "x a", "y")], {"x": NAN.shape}, ["y"], {"a": np.array([axis])}, opset=20
    )
    result = in_stages(pipeline.read(path), [], {"x": NAN})["y"]
    np.testing.assert_array_equal(result, extreme(NAN, axis=axis, keepdims=True))


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_pools(tmp_path: Path, kind: str) -> None:
    check(tmp_path, [node(kind, "x", "y", kernel_shape=[3, 3], strides=[2, 2])], {})


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_places_of_extremes(tmp_path: Path, kind: str, axis: int) -> None:
    check(tmp_path, [node(kind, "x", "y", axis=axis)], {}, dtypes={"y": TensorProto.INT64})
