"""Affinity: cores of this process and of its threads."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

Argument = TypeVar("Argument")

CAN_PIN = hasattr(os, "sched_setaffinity")
"""Support of this system for threads on chosen cores."""


class _ThreadCores(threading.local):
    """Cores of a thread that `pin` has set."""

    cores: frozenset[int] = frozenset()


_thread_cores = _ThreadCores()


def process_cores() -> tuple[int, ...]:
    """Return this process's core numbers (taskset and containers count).

    The main thread may use all of these cores.  The calling one may be kept on fewer, for example by a stage, and
    threads inherit the cores of the one that starts them.
    """
    if CAN_PIN:
        return tuple(sorted(os.sched_getaffinity(os.getpid())))  # a process is called after its main thread
    # macOS and Windows do not say what a process may use; `cpu_count` is None where even the number is unknown.
    return tuple(range(os.cpu_count() or 1))


def thread_cores() -> tuple[int, ...]:
    """Return the core numbers of the calling thread, sorted."""
    return tuple(sorted(os.sched_getaffinity(0))) if CAN_PIN else process_cores()


def pin(cores: Iterable[int]) -> None:
    """Keep the calling thread on `cores`, where the system can."""
    core_set = frozenset(cores)
    if core_set and CAN_PIN:
        # The system refuses cores that it lacks, or that a container forbids: a plan for another machine still runs
        # here.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, core_set)
            _thread_cores.cores = core_set


def unpin() -> None:
    """Let the calling thread use all cores of the process."""
    if CAN_PIN:
        # 0 is the calling thread, not the process.
        os.sched_setaffinity(0, process_cores())
        _thread_cores.cores = frozenset()


def call_unpinned(function: Callable[[Argument], object], argument: Argument) -> None:
    """Call foreign code, whose threads may use all cores.

    Threads inherit the cores of the thread that starts them, wherever this one is kept.
    """
    cores = _thread_cores.cores
    if not cores:
        function(argument)
        return
    unpin()
    try:
        function(argument)
    finally:
        pin(cores)
