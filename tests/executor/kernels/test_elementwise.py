"""Elementwise operators over rows that are no whole vectors, against NumPy."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tests.support.relax_models import constant, module, run

EXTENTS = (1, 2, 3, 7, 12, 24, 28, 42)


@pytest.mark.parametrize("seed", range(8))
def test_random_shapes(seed: int) -> None:
    """Tensors of the same shape, of one number for each place in a row, and numbers."""
    draw, generator = random.Random(seed), np.random.default_rng(seed)
    shape = [draw.choice(EXTENTS) for _ in range(draw.randint(1, 4))]
    values = {name: generator.standard_normal(shape).astype(np.float32) for name in "xy"}
    row = generator.standard_normal(shape[-1]).astype(np.float32)

    def make(emit: Any, x: Any, y: Any) -> Any:
        return emit(relax.op.add(emit(relax.op.multiply(emit(relax.op.abs(x)), constant(row))), emit(relax.op.abs(y))))

    np.testing.assert_allclose(
        run(module(values, make), values), np.abs(values["x"]) * row + np.abs(values["y"]), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("axis", range(3))
def test_numbers_along_other_axes(axis: int) -> None:
    """They are elsewhere than in the row."""
    values = {"x": np.random.default_rng(0).standard_normal((3, 5, 7)).astype(np.float32)}
    shape = [size if number == axis else 1 for number, size in enumerate((3, 5, 7))]
    factors = np.arange(1, max(shape) + 1, dtype=np.float32).reshape(shape)
    network = module(values, lambda emit, x: emit(relax.op.multiply(x, constant(factors))))
    np.testing.assert_array_equal(run(network, values), values["x"] * factors)


@pytest.mark.parametrize("shape", [(211, 181), (1, 211, 181, 3)])
def test_several_cores_compute_the_same(shape: tuple[int, ...]) -> None:
    """Tensors large enough to be worth it."""
    values = {"x": np.random.default_rng(0).integers(-128, 128, shape, np.int8)}
    row = np.arange(shape[-1], dtype=np.int32)

    def make(emit: Any, x: Any) -> Any:
        wide = emit(relax.op.astype(x, "int32"))
        return emit(relax.op.astype(emit(relax.op.subtract(wide, constant(row))), "float32"))

    network, expected = module(values, make), (values["x"].astype(np.int32) - row).astype(np.float32)
    for cores in (1, 3):
        np.testing.assert_array_equal(run(network, values, cores), expected)


def test_a_broadcast_is_none() -> None:
    """Each of its elements is at several places of the result."""
    values = {"x": np.arange(3, dtype=np.float32).reshape(3, 1)}
    network = module(values, lambda emit, x: emit(relax.op.broadcast_to(x, (3, 5))))
    np.testing.assert_array_equal(run(network, values), np.broadcast_to(values["x"], (3, 5)))


def test_a_function_of_the_position_is_none() -> None:
    values = {"x": np.arange(15, dtype=np.float32).reshape(3, 5)}
    network = module(values, lambda emit, x: emit(relax.op.triu(x)))
    np.testing.assert_array_equal(run(network, values), np.triu(values["x"]))
