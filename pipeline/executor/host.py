"""The machine this runs on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import psutil

from pipeline.core.board.board import Board, Device, Link
from pipeline.executor import core_kinds, topology
from pipeline.executor.host_target import flags
from pipeline.system.affinity import process_cores

if TYPE_CHECKING:
    from pipeline.executor.devices.accelerator import Accelerator

# Products of bfloat16 for one of float32, as convolutions reach them: matrix tiles, and vectors of pairs.
_BFLOAT16_GAINS = {"amx_bf16": 6.0, "avx512_bf16": 2.0}
# The same of bytes.
_INT8_GAINS = {"amx_int8": 6.0, "avx512_vnni": 2.5}
# Elements of float32 that one instruction works on, by the widest extension.
_LANES = {"avx512f": 16, "avx2": 8, "sse2": 4, "asimd": 4, "neon": 4}
_GUESSED_MHZ = 2000.0
# Two pipes that multiply and add; large convolutions reach about so much of what they could.
_PER_LANE_AND_CYCLE = 2 * 2 * 0.85
# What one core moves to and from the memory, for as long as nobody measures it.
_BYTES_PER_S = 1.4e10
# A multiprocessor has 128 lanes that multiply and add, or units alike; kernels that nobody tuned reach two fifths.
_PER_PROCESSOR_AND_CYCLE = 128 * 2 * 0.4


def board() -> Board:
    """Describe this machine: usable CPU cores and other usable devices."""
    cores, flops, extensions = process_cores(), attainable_flops(), flags()
    cpu = Device(
        "cpu",
        kind="cpu",
        cores=cores,
        clusters=core_kinds.with_targets(topology.clusters(cores)),
        memory_bytes=psutil.virtual_memory().total,
        flops=flops,
        int8_flops=flops * _gain(_INT8_GAINS, extensions),
        bfloat16_flops=flops * _gain(_BFLOAT16_GAINS, extensions),
        bytes_per_s=_BYTES_PER_S,
    )
    accelerators = _accelerators()
    # In the order of PCIe 3.0 with 16 lanes, and of the start of a copy, for as long as nobody measures them.
    links = tuple(
        Link((cpu.memory, accelerator.memory), bytes_per_s=1e10, latency_s=2e-5) for accelerator in accelerators
    )
    return Board("host", (cpu, *accelerators), links, about="this machine")


def _gain(gains: Mapping[str, float], extensions: frozenset[str]) -> float:
    return next((gain for flag, gain in gains.items() if flag in extensions), 0.0)


def _accelerators() -> list[Device]:
    # Late, because searching loads TVM and the drivers.
    from pipeline.executor import detection

    return [_describe(accelerator) for accelerator in detection.accelerators()]


def _describe(accelerator: Accelerator) -> Device:
    name = f"{accelerator.kind}{accelerator.index}"
    return Device(
        name,
        kind=accelerator.kind,
        index=accelerator.index,
        target=accelerator.target,
        memory=name,
        memory_bytes=accelerator.memory_bytes,
        # A driver that does not tell counts as one processor of 1 GHz, so that there can be a plan to measure.
        flops=_PER_PROCESSOR_AND_CYCLE * (accelerator.processors or 1) * (accelerator.clock_hz or 1e9),
        bytes_per_s=1e11,
        launch_s=1e-5,
    )


def attainable_flops() -> float:
    """Estimate a core's floating-point operations per second from clock and vectors."""
    extensions = flags()
    lanes = next((lanes for flag, lanes in _LANES.items() if flag in extensions), 1)
    # None in many containers, and a maximum of 0 in many virtual machines.
    clock = psutil.cpu_freq()
    return lanes * _PER_LANE_AND_CYCLE * 1e6 * ((clock and (clock.max or clock.current)) or _GUESSED_MHZ)
