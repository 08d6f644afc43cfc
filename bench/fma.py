"""Limit of one core: fused multiply-adds on registers alone."""

from __future__ import annotations

from functools import cache
from time import perf_counter
from typing import Any

import numpy as np

from pipeline.executor.kernels import microarchitecture
from pipeline.tvm.access import tvm

# Independent sums.  Two units with a latency of four to five cycles keep ten operations in flight; 24 leave room for
# deeper ones and, with two factors, still fit the 32 vector registers of AVX-512 and AArch64.
SUMS = 24
# About a millisecond a run: far above the clock's resolution, and short enough that some runs meet no interrupt.
ROUNDS = 200_000


@cache
def gflops(target: Any) -> float:
    """Return the most GFLOP/s that the calling thread's core reached in a few tries."""
    run = tvm.compile(tvm.IRModule({"main": kernel(microarchitecture.of_target(target).lanes)}), target)["main"]
    lanes = microarchitecture.of_target(target).lanes
    factors, result = (tvm.runtime.tensor(np.full(size, 0.5, np.float32)) for size in (2 * lanes, SUMS * lanes))
    run(factors, result)
    # The fastest of them: a limit is what the core can reach, disturbances only make it look lower.
    return max(_once(run, factors, result, lanes) for _ in range(20))


def _once(run: Any, factors: Any, result: Any, lanes: int) -> float:
    begin = perf_counter()
    run(factors, result)
    return 2 * SUMS * lanes * ROUNDS / (perf_counter() - begin) / 1e9


def kernel(lanes: int) -> Any:
    """Return a function that multiplies and adds `ROUNDS` times in each of `SUMS` registers."""
    from tvm import tirx

    from pipeline.tvm import statements as tir

    factors, result = tir.buffer("factors", [2 * lanes]), tir.buffer("result", [SUMS * lanes])
    sums = [tir.buffer("sum", [lanes]) for _ in range(SUMS)]
    lane_range = tir.ramp(tir.number(0), lanes)
    factor, term = (tir.load(factors, tir.ramp(tir.number(start), lanes)) for start in (0, lanes))
    step = [tir.store(register, tir.load(register, lane_range) * factor + term, lane_range) for register in sums]
    statements = [tirx.AllocBuffer(register) for register in sums]
    statements += [tir.store(register, tir.zeros(lanes), lane_range) for register in sums]
    statements.append(tir.loop("round", ROUNDS, lambda _: tir.sequence(step)))
    statements += [
        tir.store(result, tir.load(register, lane_range), tir.ramp(tir.number(number * lanes), lanes))
        for number, register in enumerate(sums)
    ]
    return tirx.PrimFunc([factors, result], tir.sequence(statements)).with_attr(
        {"global_symbol": "main", "s_tir": True, "tirx.noalias": True}
    )
