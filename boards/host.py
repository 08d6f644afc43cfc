"""The machine this runs on."""

from __future__ import annotations

import os

import psutil

from pipeline.board import Board, Device


def board() -> Board:
    """Describe this machine: one CPU device with the cores that this process may use."""
    return Board(
        name="host",
        devices=(Device("cpu", kind="cpu", cores=usable_cores(), memory_bytes=psutil.virtual_memory().total),),
    )


def usable_cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may use (taskset and containers count)."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(psutil.cpu_count() or 1))
