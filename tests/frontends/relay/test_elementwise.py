"""Element-wise operators, reductions, searches and sorting against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.support.relay_programs import apply, random, results, signature

pytestmark = pytest.mark.thorough

X, Y = random(2, 3, 4), random(2, 3, 4, seed=1)
HALVES = np.array([-2.5, -1.5, -0.5, -0.49999997, 0.49999997, 0.5, 1.5, 2.5], np.float32)


@pytest.mark.parametrize(
    "name",
    [
        "abs",
        "ceil",
        "cos",
        "cosh",
        "exp",
        "floor",
        "isfinite",
        "isinf",
        "isnan",
        "negative",
        "sign",
        "sin",
        "sinh",
        "tan",
        "tanh",
        "trunc",
        "arctan",
        "arcsinh",
    ],
)
def test_unary(name: str) -> None:
    relay = name.replace("arc", "a")
    np.testing.assert_allclose(apply(f"{relay}(%a)", X), getattr(np, name)(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "reference"),
    [
        ("log(%a)", np.log),
        ("log2(%a)", np.log2),
        ("log10(%a)", np.log10),
        ("sqrt(%a)", np.sqrt),
        ("rsqrt(%a)", lambda a: 1 / np.sqrt(a)),
        ("sigmoid(%a)", lambda a: 1 / (1 + np.exp(-a))),
        ("fast_exp(%a)", np.exp),
        ("erf(%a)", np.vectorize(math.erf)),
        ("nn.relu(%a)", lambda a: np.maximum(a, 0)),
        ("nn.leaky_relu(%a)", lambda a: np.where(a > 0, a, 0.25 * a)),
        ("nn.leaky_relu(%a, alpha=0.1f)", lambda a: np.where(a > 0, a, 0.1 * a)),
        ("clip(%a, a_min=0.5f, a_max=1f)", lambda a: np.clip(a, 0.5, 1)),
        ("copy(%a)", lambda a: a),
        ("annotation.stop_fusion(%a)", lambda a: a),
        ("nn.dropout(%a, rate=0.5f).0", lambda a: a),
        ("nn.dropout(%a).1", np.ones_like),
    ],
)
def test_functions_of_positive_numbers(call: str, reference: object) -> None:
    positive = np.abs(X) + 0.1
    np.testing.assert_allclose(apply(call, positive), reference(positive), rtol=1e-5, atol=1e-6)  # type: ignore[operator]


def test_halves_are_rounded_away_from_zero() -> None:
    np.testing.assert_array_equal(apply("round(%a)", HALVES), [-3, -2, -1, 0, 0, 1, 2, 3])
    np.testing.assert_array_equal(apply("round(%a)", np.array([3], np.int32)), [3])


@pytest.mark.parametrize(
    "name",
    [
        "add",
        "subtract",
        "multiply",
        "divide",
        "maximum",
        "minimum",
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
        "floor_divide",
    ],
)
def test_binary_with_broadcasting(name: str) -> None:
    second = random(3, 1, seed=2)
    np.testing.assert_allclose(apply(f"{name}(%a, %b)", X, second), getattr(np, name)(X, second), rtol=1e-5)


def test_powers_and_remainders() -> None:
    positive = np.abs(X)
    np.testing.assert_allclose(apply("power(%a, %b)", positive, Y), positive**Y, rtol=1e-4)
    np.testing.assert_allclose(apply("mod(%a, %b)", X, Y), np.fmod(X, Y), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(apply("floor_mod(%a, %b)", X, Y), np.mod(X, Y), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(apply("trunc_divide(%a, %b)", X, Y), np.trunc(X / Y))


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("divide", [-3, -3, -2, 2]),
        ("trunc_divide", [-3, -3, -2, 2]),
        ("floor_divide", [-4, -4, -3, 2]),
        ("mod", [-1, 1, -2, 1]),
        ("trunc_mod", [-1, 1, -2, 1]),
        ("floor_mod", [1, -1, 1, 1]),
    ],
)
def test_division_of_whole_numbers(name: str, reference: list[int]) -> None:
    first, second = np.array([-7, 7, -8, 9], np.int32), np.array([2, -2, 3, 4], np.int32)
    np.testing.assert_array_equal(apply(f"{name}(%a, %b)", first, second), reference)


def test_bits() -> None:
    first, second = np.array([12, -7], np.int32), np.array([3, 2], np.int32)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"):
        np.testing.assert_array_equal(apply(f"{name}(%a, %b)", first, second), getattr(np, name)(first, second))
    np.testing.assert_array_equal(apply("bitwise_not(%a)", first), ~first)


def test_truth_values() -> None:
    first, second = X > 0, Y > 0
    for name in ("logical_and", "logical_or", "logical_xor", "equal", "not_equal"):
        np.testing.assert_array_equal(apply(f"{name}(%a, %b)", first, second), getattr(np, name)(first, second))
    np.testing.assert_array_equal(apply("logical_not(%a)", first), ~first)
    np.testing.assert_array_equal(apply("all(%a, axis=[1])", first), first.all(1))
    np.testing.assert_array_equal(apply("any(%a, axis=[0, 2], keepdims=True)", first), first.any((0, 2), keepdims=True))


def test_casts_and_choices() -> None:
    np.testing.assert_array_equal(apply('cast(%a, dtype="int32")', 10 * X), (10 * X).astype("int32"))
    np.testing.assert_array_equal(apply("cast_like(%a, %b)", 10 * X, X > 0), X != 0)
    np.testing.assert_array_equal(apply("where(%a, %b, 0f)", X > 0, X), np.maximum(X, 0))
    np.testing.assert_array_equal(apply("where(%a, %b, %c)", (X > 0).astype("int8"), X, Y), np.where(X > 0, X, Y))


def test_clipping_whole_numbers_keeps_their_dtype() -> None:
    values = np.array([-1000, 5, 1000], np.int32)
    np.testing.assert_array_equal(apply("clip(%a, a_min=-127f, a_max=127f)", values), [-127, 5, 127])
    bytes_ = np.array([-100, 5, 100], np.int8)
    np.testing.assert_array_equal(apply("clip(%a, a_min=-1000f, a_max=6.9f)", bytes_), [-100, 5, 6])


def test_slopes_and_biases_run_along_an_axis() -> None:
    slopes = np.array([0.1, 0.2, 0.3], np.float32)
    np.testing.assert_allclose(apply("nn.prelu(%a, %b)", X, slopes), np.where(X > 0, X, X * slopes[:, None]), rtol=1e-6)
    np.testing.assert_allclose(apply("nn.bias_add(%a, %b)", X, slopes), X + slopes[:, None], rtol=1e-6)
    np.testing.assert_allclose(apply("nn.bias_add(%a, %b, axis=-1)", X, X[0, 0]), X + X[0, 0], rtol=1e-6)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize(
    ("attributes", "options"),
    [
        ("", {}),
        (", axis=1", {"axis": 1}),
        (", axis=[0, -1], keepdims=True", {"axis": (0, -1), "keepdims": True}),
        (", axis=[1], exclude=True", {"axis": (0, 2)}),
    ],
)
def test_reductions(name: str, attributes: str, options: dict[str, object]) -> None:
    reference = getattr(np, name)(X, **options)
    np.testing.assert_allclose(apply(f"{name}(%a{attributes})", X), reference, rtol=1e-4, atol=1e-6)


def test_variance_about_a_given_mean() -> None:
    mean = X.mean(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(apply("variance(%a, %b, axis=[1, 2])", X, mean), X.var(axis=(1, 2)), rtol=1e-5)
    output = apply("variance(%a, %b, axis=[1, 2], unbiased=True)", X, mean)
    np.testing.assert_allclose(output, X.var(axis=(1, 2), ddof=1), rtol=1e-5)


def test_searches_give_int32() -> None:
    output = apply("argmax(%a, axis=[1])", X)
    assert output.dtype == np.int32
    np.testing.assert_array_equal(output, X.argmax(1))
    np.testing.assert_array_equal(apply("argmin(%a, axis=-1, keepdims=True)", X), X.argmin(-1, keepdims=True))
    np.testing.assert_array_equal(apply("argmax(%a)", X), X.argmax())


def test_sorting() -> None:
    np.testing.assert_array_equal(apply("sort(%a, axis=1)", X), np.sort(X, 1))
    np.testing.assert_array_equal(apply("sort(%a, is_ascend=False)", X), -np.sort(-X))
    np.testing.assert_array_equal(apply('argsort(%a, axis=0, dtype="int64")', X), X.argsort(0))
    np.testing.assert_array_equal(apply("argsort(%a, is_ascend=0)", X), (-X).argsort())


def test_the_largest_few() -> None:
    values, positions = results(f"({signature({'a': X})}) {{ topk(%a, k=2) }}", {"a": X})
    np.testing.assert_array_equal(values, -np.sort(-X)[..., :2])
    np.testing.assert_array_equal(positions, (-X).argsort()[..., :2])
    assert positions.dtype == np.int32
    output = apply('topk(%a, k=1, axis=0, ret_type="values", is_ascend=True)', X)
    np.testing.assert_array_equal(output, X.min(0, keepdims=True))


def test_running_totals() -> None:
    np.testing.assert_allclose(apply("cumsum(%a, axis=1)", X), X.cumsum(1), rtol=1e-5)
    np.testing.assert_allclose(apply("cumprod(%a, axis=2)", X), X.cumprod(2), rtol=1e-5)
