"""Requantization: whole numbers times a factor, rounded in several ways, by TVM and by NumPy alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tvm
from tvm import relax

from pipeline.executor.linker import link
from pipeline.model.requantization import OUTWARD, REAL, TWICE, UPWARD, Arrays, Multiplier, Requantization
from pipeline.tvm.access import compiler_lock

LEAST, MOST = -(2**31) + 1, 2**31 - 2
"""Bounds of products by a factor."""


def run(requantization: Requantization, values: Sequence[int]) -> list[int]:
    """Return what the kernel makes of values, which is what NumPy makes of them."""
    numbers = np.array(values, np.int32)
    with compiler_lock:
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((len(values),), "int32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                result = builder.emit_output(requantization.call(builder, x))
            builder.emit_func_output(result)
        executable = tvm.compile(builder.get(), tvm.target.Target({"kind": "llvm"}))
        machine = relax.VirtualMachine(executable.jit(fcompile=link), tvm.cpu())
    made = machine["main"](tvm.runtime.tensor(numbers)).numpy()
    computed = requantization.compute(Arrays(requantization.axis), numbers)
    np.testing.assert_array_equal(made, computed)
    assert made.dtype == computed.dtype == requantization.dtype
    return list(map(int, made))


def divided(exponents: int | list[int]) -> Requantization:
    """Return a division by powers of two, whose product changes nothing."""
    shifts = -np.array(exponents, np.int64)
    return Multiplier(np.full(shifts.shape, 1 << 31), shifts).scale(TWICE)


@pytest.mark.parametrize(
    ("exponent", "results"),
    [
        (1, {LEAST: -(2**30), -4: -2, -3: -2, -2: -1, -1: -1, 0: 0, 1: 1, 2: 1, 3: 2, 4: 2, MOST: 2**30 - 1}),
        (
            2,
            {LEAST: -(2**29), -7: -2, -6: -2, -5: -1, -3: -1, -2: -1, -1: 0, 0: 0, 1: 0, 2: 1, 5: 1, 6: 2, MOST: 2**29},
        ),
        (8, {-385: -2, -384: -2, -383: -1, -129: -1, -128: -1, -127: 0, 127: 0, 128: 1, 383: 1, 384: 2}),
        (31, {LEAST: -1, -(2**30): -1, -(2**30) + 1: 0, 0: 0, 2**30 - 1: 0, 2**30: 1, MOST: 1}),
    ],
)
def test_halves_go_away_from_zero(exponent: int, results: dict[int, int]) -> None:
    assert run(divided(exponent), list(results)) == list(results.values())
    outward = Requantization(right=(exponent,), rounding=OUTWARD)
    assert run(outward, list(results)) == list(results.values())


def test_nothing_is_divided() -> None:
    values = [LEAST, -3, -1, 0, 1, MOST]
    assert run(divided(0), values) == values


def test_channels_have_exponents_of_their_own() -> None:
    assert run(divided([0, 1, 2, 3, 0, 1, 2, 3]), [-3, -3, -3, -3, 5, 5, 5, 5]) == [-3, -2, -1, 0, 5, 3, 1, 1]


@pytest.mark.parametrize(
    ("rounding", "results"),
    [(UPWARD, [-1, -1, 0, 1, 2]), (OUTWARD, [-2, -1, 0, 1, 2]), (TWICE, [-1, -1, 0, 1, 2]), (REAL, [-2, -1, 0, 1, 2])],
)
def test_halves(rounding: str, results: list[int]) -> None:
    scale = Requantization((0.5,), rounding=REAL) if rounding == REAL else Multiplier.of(0.5).scale(rounding)
    assert run(scale, [-3, -2, 0, 2, 3]) == results


@pytest.mark.parametrize("rounding", [UPWARD, OUTWARD, TWICE])
def test_a_factor_above_one_loses_no_bits(rounding: str) -> None:
    scale = Multiplier.of(2.5).scale(rounding)
    assert run(scale, [-4, -2, 1, 2, 4]) == [-10, -5, 3, 5, 10]
    assert scale.factor == 2.5


def test_zero_point_and_bounds_come_last() -> None:
    stored = Requantization(zero=-3, low=-8, high=2, dtype="int8")
    assert run(stored, [-100, -6, -5, 0, 4, 5, 6, 100]) == [-8, -8, -8, -3, 1, 2, 2, 2]


def test_a_call_says_what_it_computes() -> None:
    scale = Multiplier.of([0.25, 0.5]).scale(UPWARD, axis=-2)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "int32"))
    with compiler_lock, builder.function("main", [x]):
        call = scale.call(builder, x)
        builder.emit_func_output(call)
    assert Requantization.of(call) == scale
    assert Requantization.of(relax.op.add(x, x)) is None
    np.testing.assert_array_equal(scale.factor, [0.25, 0.5])
