"""Elementary functions without the C library: as exact, also where they end, beside a convolution and alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pipeline
from tests.onnx_models import by_onnxruntime, checked, in_stages, node, save, weights

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Exp": np.exp,
    "Sigmoid": lambda value: 1 / (1 + np.exp(-value)),
    "Tanh": np.tanh,
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_values_are_exact_to_a_few_units_in_the_last_place(kind: str, tmp_path: Path) -> None:
    graph = pipeline.read(save(tmp_path / "model.onnx", [node(kind, "x", "y")], {"x": (4, 10001)}, ["y"]))
    values = np.linspace(-80, 80, 40004, dtype=np.float32).reshape(4, -1)
    found = in_stages(graph, [], {"x": values})["y"]
    np.testing.assert_allclose(found, FUNCTIONS[kind](values.astype(np.float64)), rtol=6e-7, atol=0)


def test_error_function_is_exact_to_its_largest_value(tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", [node("Erf", "x", "y")], {"x": (4, 10001)}, ["y"])
    values = {"x": np.linspace(-6, 6, 40004, dtype=np.float32).reshape(4, -1)}
    found = in_stages(pipeline.read(path), [], values)["y"]
    np.testing.assert_allclose(found, by_onnxruntime(path, values)["y"], rtol=0, atol=3e-7)


@pytest.mark.parametrize("kind", [*FUNCTIONS, "Erf"])
def test_what_is_no_number_or_infinite(kind: str, tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", [node(kind, "x", "y")], {"x": (1, 20)}, ["y"])
    values = {"x": np.resize(np.array([np.nan, np.inf, -np.inf, 0, 1e30, -1e30], np.float32), (1, 20))}
    found = in_stages(pipeline.read(path), [], values)["y"]
    np.testing.assert_allclose(found, by_onnxruntime(path, values)["y"], rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("channels", [3, 16, 21])
def test_behind_a_convolution(channels: int, tmp_path: Path) -> None:
    nodes = [
        node("Conv", "x w", "c"),
        node("Sigmoid", "c", "s"),
        node("Mul", "c s", "d"),
        node("Conv", "d v", "e"),
        node("Tanh", "e", "f"),
        node("Erf", "f", "g"),
        node("Exp", "g", "y"),
    ]
    values = {"w": weights(channels, 3, 3, 3), "v": weights(5, channels, 1, 1)}
    checked(save(tmp_path / "model.onnx", nodes, {"x": (1, 3, 11, 12)}, ["y"], values))
