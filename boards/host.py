"""The machine this runs on."""

from __future__ import annotations

import os

import psutil

from pipeline.board import Board, Device
from pipeline.executor.processor import flags

# Elements of float32 that one instruction works on, by the widest extension.
_LANES = {"avx512f": 16, "avx2": 8, "sse2": 4, "asimd": 4, "neon": 4}
_GUESSED_MHZ = 2000.0
# Two pipes that multiply and add; kernels reach about two thirds of what they could.
_PER_LANE_AND_CYCLE = 2 * 2 * 0.65


def board() -> Board:
    """Describe this machine: one CPU device with the cores that this process may use."""
    cpu = Device(
        "cpu", kind="cpu", cores=usable_cores(), memory_bytes=psutil.virtual_memory().total, flops=attainable_flops()
    )
    return Board(name="host", devices=(cpu,))


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
