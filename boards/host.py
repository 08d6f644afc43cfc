"""The machine this runs on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psutil

from boards import topology
from pipeline.board import Board, Device, Link
from pipeline.executor import devices
from pipeline.executor.processor import flags

if TYPE_CHECKING:
    from pipeline.executor.present import Accelerator

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
    """Describe this machine: the CPU with the cores that this process may use, and what else is driven and there."""
    cores = usable_cores()
    cpu = Device(
        "cpu",
        kind="cpu",
        cores=cores,
        clusters=topology.clusters(cores),
        memory_bytes=psutil.virtual_memory().total,
        flops=attainable_flops(),
        bytes_per_s=_BYTES_PER_S,
    )
    others = _accelerators()
    links = tuple(Link((cpu.memory, each.memory), bytes_per_s=1e10, latency_s=2e-5) for each in others)
    return Board("host", (cpu, *others), links, about="this machine")


def _accelerators() -> list[Device]:
    # Looking for them loads TVM and their drivers.
    if not any(kind in devices.KINDS for kind in ("cuda", "opencl", "vulkan")):
        return []
    from pipeline.executor import present

    return [_device(each) for each in present.accelerators() if each.driven]


def _device(found: Accelerator) -> Device:
    name = f"{found.kind}{found.index}"
    arch = {"arch": f"sm_{found.version.replace('.', '')}"} if found.kind == "cuda" and found.version else {}
    return Device(
        name,
        kind=found.kind,
        index=found.index,
        target={"kind": found.kind, **arch},
        memory=name,
        memory_bytes=found.memory_bytes,
        flops=_PER_PROCESSOR_AND_CYCLE * (found.processors or 1) * (found.clock_hz or 1e9),
        bytes_per_s=1e11,
        launch_s=1e-5,
    )


def attainable_flops() -> float:
    """Return a guess of one core's floating-point operations per second, from its clock and its vectors."""
    present = flags()
    lanes = next((lanes for flag, lanes in _LANES.items() if flag in present), 1)
    clock = psutil.cpu_freq()
    return lanes * _PER_LANE_AND_CYCLE * 1e6 * ((clock and (clock.max or clock.current)) or _GUESSED_MHZ)


def usable_cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may use (taskset and containers count)."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(psutil.cpu_count() or 1))
