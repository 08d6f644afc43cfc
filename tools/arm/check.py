"""Check of the method of arm.py where times can be measured: the same estimates for x86 beside this machine.

SqueezeNet's five kernels with the most operations are compiled with AVX2: of AVX-512, LLVM's tables for Zen 5 are those
of Zen 4, which takes such instructions in halves.  The clock comes from a loop of multiply-adds on registers alone, of
which two start in each cycle.

estimated_us  innermost loops alone, in the analyser, at that clock
measured_us   the whole kernel, the fastest of several calls
ratio         estimated over measured; below 1 time goes into what is around these loops, or waits for data
coverage      share of the products that are in the loops found
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import fma
import numpy as np
from report import Row, parser, report, usable_cores

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.executor import host_target
from pipeline.executor.build import compile_stage
from pipeline.executor.devices.cpu import CpuRuntime
from pipeline.executor.kernels import microarchitecture
from pipeline.executor.tuning.kernel_times import by_function, call_seconds
from pipeline.system.threads import run_in_thread
from pipeline.tvm.access import compiler_lock
from tools.arm import analyser, kernels, networks
from tools.arm.analyser import Unavailable

NETWORK, KERNELS = "squeezenet", 5
# Vectors of 256 bits, and what comes with them.
_LEVEL = "x86-64-v3"
# Multiply-adds that start in a cycle: on every x86 core with AVX2 or wider since Haswell, and Zen 2 of AMD.
_UNITS = 2


def main() -> None:
    options = parser(__doc__).parse_args()
    try:
        # A thread of its own: TVM's pool and the core it is pinned to belong to the caller.
        rows: list[Row] = run_in_thread(check, "bench")
        version = f"Estimates of LLVM {analyser.version()}.\n"
    except Unavailable as error:
        rows, version = [{"kernel": "all", "skipped": str(error)}], ""
    report("Estimates beside measurements", rows, version + (__doc__ or "").partition("\n\n")[2], options.json)


def check() -> list[Row]:
    """Return a row for each kernel."""
    processor = host_target.host_target()
    if host_target.machine() != "x86_64" or microarchitecture.of_target(processor).lanes < 8:
        raise Unavailable("this machine is no x86-64 with AVX2")
    hertz = clock(processor)
    target: dict[str, object] = {"kind": "llvm", "mtriple": str(processor.attrs["mtriple"]), "mcpu": _LEVEL}
    with tempfile.TemporaryDirectory() as folder:
        stage = networks.module(NETWORK, Path(folder))
        network = networks.compile_network(stage, target, Path(folder) / "kernels.o")
        estimate = kernels.estimate(network, str(processor.attrs["mcpu"]), "x86_64-linux-gnu")
        seconds = measure(stage, target)
    names = sorted(network.operations, key=lambda name: network.operations[name], reverse=True)[:KERNELS]
    return [kernel_row(name, network, estimate, seconds[name], hertz) for name in names]


def clock(processor: Any) -> float:
    """Return the cycles of a second, while the core multiplies and adds."""
    with compiler_lock:
        rate = fma.gflops(processor)
    return rate * 1e9 / (2 * _UNITS * microarchitecture.of_target(processor).lanes)


def measure(stage: Any, target: dict[str, object]) -> dict[str, float]:
    """Return the least seconds of one call of each kernel."""
    device = Device("cpu", target=target)
    code = compile_stage(stage, device)
    runtime = CpuRuntime(device)
    runtime.open(usable_cores()[:1])
    program = runtime.load(StagePlan("whole", "cpu", (), ()), code)
    shape = [int(extent) for extent in stage["main"].params[0].ty.shape]
    frame = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    times = by_function(call_seconds(code, [runtime.copy_in(frame), *program.parameters]))
    return {name: min(seconds) for name, seconds in times.items()}


def kernel_row(
    name: str,
    network: networks.CompiledNetwork,
    estimate: kernels.NetworkEstimate,
    seconds: float,
    hertz: float,
) -> Row:
    """Return the figures of one call of a kernel."""
    uses = [use for use in estimate.uses if use.function == name]
    calls = network.calls[name]
    estimated = sum(use.cycles for use in uses) / calls / hertz
    return {
        "kernel": name,
        "ghz": hertz / 1e9,
        "estimated_us": estimated * 1e6,
        "measured_us": seconds * 1e6,
        "ratio": estimated / seconds,
        "coverage": 2 * sum(use.macs for use in uses) / calls / network.operations[name],
    }


if __name__ == "__main__":
    main()
