"""Functions of one byte, which become a table of 256 results."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from tvm import relax

from pipeline.executor import host_target, kernels
from pipeline.executor.kernels import microarchitecture
from tests.support import relax_models
from tests.support.relax_models import constant

SHAPES = [(1,), (3, 5), (130,), (2, 3, 7, 5), (1, 9, 8, 16), (1, 65, 70)]
RANDOM = np.random.default_rng(0)


def look_up(emit: Any, x: Any, table: np.ndarray) -> Any:
    """Return the table's entry of each byte, as a frontend writes it."""
    lowest = np.iinfo(str(x.ty.dtype)).min
    index = emit(relax.op.subtract(emit(relax.op.astype(x, "int32")), constant(np.int32(lowest))))
    return emit(relax.op.take(constant(table), index, axis=0))


def gate(emit: Any, x: Any, table: np.ndarray) -> Any:
    """Return each byte less one, times its table's entry."""
    number = emit(relax.op.subtract(emit(relax.op.astype(x, "int32")), constant(np.int32(1))))
    share = emit(relax.op.astype(look_up(emit, x, table), "int32"))
    return emit(relax.op.astype(emit(relax.op.multiply(number, share)), str(x.ty.dtype)))


def data(shape: tuple[int, ...], dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return bytes, a table of zeros and ones, and the bytes' entries."""
    limits = np.iinfo(dtype)
    x = RANDOM.integers(limits.min, limits.max + 1, shape).astype(dtype)
    table = RANDOM.integers(0, 2, 256).astype(dtype)
    return x, table, table[x.astype(np.int32) - limits.min]


@pytest.mark.parametrize("looks_up", [True, False])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_gate_is_exact(shape: tuple[int, ...], dtype: str, looks_up: bool) -> None:
    cpu = microarchitecture.of_target(kernels.target_for(host_target.host_target()))
    if looks_up and not cpu.looks_up_bytes:
        pytest.skip("needs AVX-512 VBMI")
    x, table, shares = data(shape, dtype)
    stage = relax_models.module({"x": x}, lambda emit, value: gate(emit, value, table))
    result = relax_models.run(stage, {"x": x}, microarchitecture=dataclasses.replace(cpu, looks_up_bytes=looks_up))
    np.testing.assert_array_equal(result, ((x.astype(np.int32) - 1) * shares).astype(dtype))


def test_gate_is_one_kernel() -> None:
    x, table, _ = data((1, 9, 8, 16), "int8")
    stage = relax_models.module({"x": x}, lambda emit, value: gate(emit, value, table))
    assert set(relax_models.kernels(stage).values()) == {"byte_table"}


def test_what_follows_is_fused() -> None:
    x, table, shares = data((1, 9, 8, 16), "uint8")

    def double(emit: Any, value: Any) -> Any:
        entries = emit(relax.op.astype(look_up(emit, value, table), "int32"))
        return emit(relax.op.multiply(entries, constant(np.int32(2))))

    stage = relax_models.module({"x": x}, double)
    assert set(relax_models.kernels(stage).values()) == {"byte_table"}
    np.testing.assert_array_equal(relax_models.run(stage, {"x": x}), shares.astype(np.int32) * 2)


def test_two_sources_are_multiplied() -> None:
    (x, table, shares), (y, _, _) = data((4, 40), "int8"), data((4, 40), "int8")

    def product(emit: Any, value: Any, other: Any) -> Any:
        factors = [emit(relax.op.astype(factor, "int32")) for factor in (look_up(emit, value, table), other)]
        return emit(relax.op.astype(emit(relax.op.multiply(*factors)), "int8"))

    stage = relax_models.module({"x": x, "y": y}, product)
    np.testing.assert_array_equal(relax_models.run(stage, {"x": x, "y": y}), shares * y)
