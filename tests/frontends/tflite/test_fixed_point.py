"""Fixed point: whole numbers are divided by powers of two, halves away from zero."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from pipeline.executor.linker import link
from pipeline.tvm.access import compiler_lock

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")

from pipeline.frontends.tflite.operators.fixed_point import divide_by_power

LEAST, MOST = -(2**31) + 1, 2**31 - 2
"""Products by a factor reach no further."""


def run(values: list[int], exponents: int | list[int]) -> list[int]:
    with compiler_lock:
        builder = relax.BlockBuilder()
        x = relax.Var("x", relax.TensorType((len(values),), "int32"))
        with builder.function("main", [x]):
            with builder.dataflow():
                result = builder.emit_output(divide_by_power(builder, x, np.array(exponents)))
            builder.emit_func_output(result)
        executable = tvm.compile(builder.get(), tvm.target.Target({"kind": "llvm"}))
        machine = relax.VirtualMachine(executable.jit(fcompile=link), tvm.cpu())
    return list(map(int, machine["main"](tvm.runtime.tensor(np.array(values, np.int32))).numpy()))


@pytest.mark.parametrize(
    ("exponent", "results"),
    [
        (0, {LEAST: LEAST, -3: -3, -1: -1, 0: 0, 1: 1, MOST: MOST}),
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
    assert run(list(results), exponent) == list(results.values())


def test_channels_have_exponents_of_their_own() -> None:
    assert run([-3, -3, -3, -3, 5, 5, 5, 5], [0, 1, 2, 3, 0, 1, 2, 3]) == [-3, -2, -1, 0, 5, 3, 1, 1]
