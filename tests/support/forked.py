"""Work in a process that is forked from a test's."""

from __future__ import annotations

import contextlib
import gc
import os
import traceback
import warnings
from collections.abc import Callable

import numpy as np
import pytest

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec

X = np.ones((4, 4), np.float32)
PYTHON_WARNS = "ignore:.*multi-threaded, use of fork:DeprecationWarning"
"""Of any fork of a process that has threads; in the tests of forks it is what is asked for."""

pytest.importorskip("fcntl", reason="this system does not fork")


def plan(kind: str = "simulated", seconds: float = 0.02, stages: int = 2) -> Plan:
    """Return stages one after the other, which take some time."""
    specs = tuple(TensorSpec(name, X.shape) for name in "xyzuv"[: stages + 1])
    stage_plans = tuple(
        StagePlan(f"s{number}", "d", specs[number : number + 1], specs[number + 1 : number + 2], seconds=seconds)
        for number in range(stages)
    )
    return Plan("m", "", Board("test", (Device("d", kind),)), (specs[0],), (specs[-1],), stage_plans)


def in_child(work: Callable[[], None]) -> str:
    """Run `work` in a forked process, and return how it failed; an empty text if it did not."""
    # A collection in the child would destroy what earlier tests left.  The destructor of what has threads
    # may wait there for ever: its copy remembers threads that wait, and a fork copies none.
    gc.collect()
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        trouble = b""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                work()
        except BaseException:  # noqa: BLE001 - told in the parent
            trouble = traceback.format_exc().encode()
        finally:
            # Nothing of the test's own may go on here.
            with contextlib.suppress(OSError):
                os.write(writing, trouble[-4000:])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        trouble = pipe.read()
    _, status = os.waitpid(child, 0)
    return trouble.decode() or (f"it ended with status {status}" if status else "")
