"""Activations and poolings of quantised networks, against real numbers that are quantised once."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.support.relay_programs import apply, random

FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "abs": (np.abs, "int8"),
    "erf": (np.vectorize(math.erf), "int8"),
    "exp": (np.exp, "int8"),
    "hardswish": (lambda x: x * np.clip(x + 3, 0, 6) / 6, "int8"),
    "log": (np.log, "uint8"),
    "rsqrt": (lambda x: 1 / np.sqrt(x), "uint8"),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), "uint8"),
    "sqrt": (np.sqrt, "uint8"),
    "tanh": (np.tanh, "int8"),
}


def quantize(values: np.ndarray, scale: float, zero: int, dtype: str) -> np.ndarray:
    limits = np.iinfo(dtype)
    transferred = np.clip(values / scale + zero, limits.min, limits.max)
    return np.trunc(transferred + np.copysign(0.5, transferred)).astype(dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_bytes(name: str) -> None:
    """Check the bytes that the function is defined for: of unsigned ones, those above their zero point."""
    function, dtype = FUNCTIONS[name]
    zero = 3 if dtype == "uint8" else -4
    values = np.arange(zero + 1 if dtype == "uint8" else -128, np.iinfo(dtype).max + 1).astype(dtype)
    output = apply(f"qnn.{name}(%a, 0.03125f, {zero}, 0.0625f, 5)", values)
    reference = quantize(function((values.astype(np.float64) - zero) * 0.03125), 0.0625, 5, dtype)
    assert output.dtype == dtype
    np.testing.assert_array_equal(output, reference)


def test_what_a_function_is_not_defined_for_is_some_byte() -> None:
    values = np.arange(-128, 128).astype(np.int8)
    assert apply("qnn.log(%a, 1f, 0, 1f, 0)", values).dtype == np.int8


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_leaky_relu_of_bytes(dtype: str) -> None:
    """TVM rounds twice, so that a result may be one off."""
    values = random(300, seed=1, dtype=dtype)
    output = apply("qnn.leaky_relu(%a, 0.25f, 10, 0.5f, 20, alpha=0.3f)", values).astype(int)
    real_values = (values.astype(np.float64) - 10) * 0.25
    reference = quantize(np.where(real_values < 0, 0.3 * real_values, real_values), 0.5, 20, dtype).astype(int)
    assert np.abs(output - reference).max() <= 1
    positive = real_values >= 0
    np.testing.assert_array_equal(output[positive], reference[positive])


def test_average_pooling_of_bytes() -> None:
    """The average is a whole number, whose fraction is dropped; padding does not count."""
    x = random(1, 3, 6, 6, dtype="int8")
    output = apply("qnn.avg_pool2d(%a, 0.5f, 2, 0.25f, -3, pool_size=[2, 2], strides=[2, 2])", x)
    sums = (x.astype(int) - 2).reshape(1, 3, 3, 2, 3, 2).sum((3, 5))
    reference = np.clip(np.trunc(sums / 4) * 2 - 3, -128, 127)
    np.testing.assert_array_equal(output, reference)


def test_softmax_of_bytes() -> None:
    x = random(4, 7, dtype="int8")
    output = apply("qnn.softmax(%a, 0.1f, 3, 0.00390625f, -128, axis=1)", x)
    powers = np.exp((x.astype(np.float64) - 3) * 0.1)
    reference = quantize(powers / powers.sum(1, keepdims=True), 1 / 256, -128, "int8")
    assert np.abs(output.astype(int) - reference).max() <= 1
