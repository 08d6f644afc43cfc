"""Elementary functions without the C library: as exact, also where they end, beside a convolution and alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

import pipeline
from tests.support import relax_models
from tests.support.onnx_models import by_onnxruntime, check_outputs, in_stages, node, save, weights

pytestmark = pytest.mark.thorough

FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Exp": np.exp,
    "Sigmoid": lambda value: 1 / (1 + np.exp(-value)),
    "Tanh": np.tanh,
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_values_are_exact_to_a_few_units_in_the_last_place(kind: str, tmp_path: Path) -> None:
    graph = pipeline.read(save(tmp_path / "model.onnx", [node(kind, "x", "y")], {"x": (4, 10001)}, ["y"]))
    values = np.linspace(-80, 80, 40004, dtype=np.float32).reshape(4, -1)
    result = in_stages(graph, [], {"x": values})["y"]
    np.testing.assert_allclose(result, FUNCTIONS[kind](values.astype(np.float64)), rtol=6e-7, atol=0)


def test_error_function_is_exact_to_its_largest_value(tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", [node("Erf", "x", "y")], {"x": (4, 10001)}, ["y"])
    values = {"x": np.linspace(-6, 6, 40004, dtype=np.float32).reshape(4, -1)}
    result = in_stages(pipeline.read(path), [], values)["y"]
    np.testing.assert_allclose(result, by_onnxruntime(path, values)["y"], rtol=0, atol=3e-7)


@pytest.mark.parametrize("kind", [*FUNCTIONS, "Erf"])
def test_what_is_no_number_or_infinite(kind: str, tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", [node(kind, "x", "y")], {"x": (1, 20)}, ["y"])
    values = {"x": np.resize(np.array([np.nan, np.inf, -np.inf, 0, 1e30, -1e30], np.float32), (1, 20))}
    result = in_stages(pipeline.read(path), [], values)["y"]
    np.testing.assert_allclose(result, by_onnxruntime(path, values)["y"], rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("kind", ["Cosh", "Sinh"])
def test_hyperbolic_functions(kind: str, tmp_path: Path) -> None:
    """TVM leaves them to the C library, which has none for vectors: no model with one was built."""
    values = np.linspace(-89, 89, 640, dtype=np.float32).reshape(4, 160)
    path = save(tmp_path / "m.onnx", [node(kind, "x", "y")], {"x": values.shape}, ["y"])
    graph = pipeline.read(path)
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages=1))) as running:
        result = running.submit(values).result(60)
    np.testing.assert_allclose(result, getattr(np, kind.lower())(values.astype(np.float64)), rtol=1e-5)


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
    check_outputs(save(tmp_path / "model.onnx", nodes, {"x": (1, 3, 11, 12)}, ["y"], values))


def _error_function(values: np.ndarray) -> np.ndarray:
    return np.array([math.erf(value) for value in values.ravel()]).reshape(values.shape)


PAIRED: dict[str, tuple[Callable[..., Any], Callable[[np.ndarray], np.ndarray]]] = {
    "exp": (relax.op.exp, FUNCTIONS["Exp"]),
    "sigmoid": (relax.op.sigmoid, FUNCTIONS["Sigmoid"]),
    "tanh": (relax.op.tanh, FUNCTIONS["Tanh"]),
    "erf": (relax.op.erf, _error_function),
}
ENDS = np.array([np.nan, np.inf, -np.inf, 0, 1e30, -1e30, 88, -88], np.float32)


@pytest.mark.parametrize("length", [1, 3, 67])
@pytest.mark.parametrize("inner_name", PAIRED)
@pytest.mark.one_in(3)
def test_function_of_a_function(inner_name: str, length: int) -> None:
    """TVM gave up where the value of a variable held the exponential function, with variables of its own."""
    values = np.linspace(-4, 4, length, dtype=np.float32).reshape(1, length)
    if length > len(ENDS):
        values[0, -len(ENDS) :] = ENDS
    first, first_exact = PAIRED[inner_name]
    # Each pair reads an input of its own, so that no other one shares its inner function.
    frame = dict.fromkeys(PAIRED, values)

    def make(emit: Callable[[Any], Any], *inputs: Any) -> Any:
        results = [emit(second(emit(first(x)))) for (second, _), x in zip(PAIRED.values(), inputs, strict=True)]
        return emit(relax.op.stack(results, 0))

    with np.errstate(all="ignore"):
        inner = first_exact(values.astype(np.float64))
        expected = np.stack([second_exact(inner).astype(np.float32) for _, second_exact in PAIRED.values()])
    results = relax_models.run(relax_models.module(frame, make), frame)
    np.testing.assert_allclose(results, expected, rtol=2e-5, atol=1e-6)


def _tanh_of_choice(emit: Callable[[Any], Any], x: Any) -> Any:
    positive = emit(relax.op.greater(x, relax.const(0, "float32")))
    return emit(relax.op.tanh(emit(relax.op.where(positive, x, emit(relax.op.exp(x))))))


def _sigmoid_of_padding(emit: Callable[[Any], Any], x: Any) -> Any:
    return emit(relax.op.sigmoid(emit(relax.op.nn.pad(emit(relax.op.exp(x)), (0, 0, 2, 3)))))


def _deep(emit: Callable[[Any], Any], x: Any) -> Any:
    return emit(relax.op.exp(emit(relax.op.sigmoid(emit(relax.op.tanh(emit(relax.op.exp(x))))))))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (_tanh_of_choice, lambda x: np.tanh(np.where(x > 0, x, np.exp(x)))),
        (_sigmoid_of_padding, lambda x: FUNCTIONS["Sigmoid"](np.pad(np.exp(x), ((0, 0), (2, 3))))),
        (_deep, lambda x: np.exp(FUNCTIONS["Sigmoid"](np.tanh(np.exp(x))))),
    ],
)
@pytest.mark.parametrize("length", [3, 67])
def test_function_of_a_choice_and_of_many(
    make: Callable[..., Any], expected: Callable[[np.ndarray], np.ndarray], length: int
) -> None:
    values = np.linspace(-4, 4, length, dtype=np.float32).reshape(1, length)
    result = relax_models.run(relax_models.module({"x": values}, make), {"x": values})
    np.testing.assert_allclose(result, expected(values), rtol=5e-6, atol=1e-6)


ACTIVATIONS: dict[str, list[Any]] = {
    "softplus": [node("Softplus", "c", "y")],
    "mish": [node("Mish", "c", "y")],
    "mish of parts": [node("Softplus", "c", "p"), node("Tanh", "p", "t"), node("Mul", "c t", "y")],
    "hard swish": [node("HardSwish", "c", "y")],
    "gelu": [node("Gelu", "c", "y")],
    "gelu by tanh": [node("Gelu", "c", "y", approximate="tanh")],
    "tanh of exp": [node("Exp", "c", "e"), node("Tanh", "e", "y")],
}


@pytest.mark.parametrize("channels", [3, 24])
@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.one_in(2)
def test_activation_behind_a_convolution_and_alone(kind: str, channels: int, tmp_path: Path) -> None:
    kernel = {"w": weights(channels, 3, 3, 3)}
    nodes = [node("Conv", "x w", "c"), *ACTIVATIONS[kind]]
    check_outputs(save(tmp_path / "model.onnx", nodes, {"x": (1, 3, 11, 12)}, ["y"], kernel, opset=20))
    path = save(tmp_path / "alone.onnx", ACTIVATIONS[kind], {"c": (1, 1000 + channels)}, ["y"], opset=20)
    values = {"c": np.linspace(-15, 80, 1000 + channels, dtype=np.float32).reshape(1, -1)}
    results = in_stages(pipeline.read(path), [], values)
    np.testing.assert_allclose(results["y"], by_onnxruntime(path, values)["y"], rtol=1e-5, atol=2e-6)
