"""Remainders by powers of two, of which LLVM 22 makes wrong vectors for AVX-512."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tvm import relax

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.executor import host_target
from pipeline.executor.build import compile_stage, runs_here
from pipeline.executor.devices.cpu import CpuRuntime
from pipeline.executor.executable import CompileOptions
from tests.support.random_seeds import seeds
from tests.support.relax_models import module, run

PROCESSORS = ("x86-64", "haswell", "znver3", "skylake-avx512", "icelake-server", "znver4")


def tiled(shape: tuple[int, ...], repeats: tuple[int, ...]) -> tuple[dict[str, np.ndarray], object]:
    values = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    return values, module(values, lambda emit, x: emit(relax.op.tile(x, repeats)))


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_tile_for_all_processors_that_this_one_can_be(processor: str) -> None:
    device = Device("cpu", "cpu", target={"kind": "llvm", "mcpu": processor})
    if host_target.machine() != "x86_64" or not runs_here(device):
        pytest.skip(f"this is no {processor}")
    values, network = tiled((3, 4, 5), (6, 4, 1))
    for symbolic in (False, True):
        runtime = CpuRuntime(device)
        stage = StagePlan("test", "cpu", (TensorSpec("x", (3, 4, 5)),), (TensorSpec("y", (18, 16, 5)),))
        program = runtime.load(stage, compile_stage(network, device, options=CompileOptions(symbolic=symbolic)))
        (result,) = runtime.run(program, [runtime.copy_in(values["x"])])
        np.testing.assert_array_equal(runtime.copy_out(result), np.tile(values["x"], (6, 4, 1)))


@pytest.mark.parametrize("seed", seeds(8, 24))
def test_random_tiles(seed: int) -> None:
    draw = random.Random(seed)
    rank = draw.randint(1, 4)
    shape = tuple(draw.choice((1, 2, 3, 4, 5, 8, 16)) for _ in range(rank))
    repeats = tuple(draw.choice((1, 2, 3, 4, 6, 8)) for _ in range(rank))
    values, network = tiled(shape, repeats)
    np.testing.assert_array_equal(run(network, values), np.tile(values["x"], repeats))


def test_negative_dividends() -> None:
    """TVM's remainder has the sign of the divisor, and so have the bits of a mask."""
    values = {"x": np.arange(-40, 40, dtype=np.int32).reshape(5, 16)}
    network = module(values, lambda emit, x: emit(relax.op.floor_mod(x, relax.const(8, "int32"))))
    np.testing.assert_array_equal(run(network, values), values["x"] % 8)
