"""Waits of workers for the interpreter, in the statistics."""

import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.core.shapes import Build
from pipeline.executor.devices.null import NullRuntime
from pipeline.scheduler import Pipeline
from pipeline.scheduler.switch_interval import CAN_SAMPLE, EVERY

X = np.zeros(4, np.float32)

pytestmark = pytest.mark.skipif(not CAN_SAMPLE, reason="this system does not count how often a thread gave up its core")


class ComputingRuntime(NullRuntime):
    """Says that it computes in the worker's thread."""

    occupies_cores = True


class AwayRuntime(ComputingRuntime):
    """Has no core and asks for none meanwhile, as behind another thread that holds the interpreter."""

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        time.sleep(0.005)
        return super().run(program, inputs)


class ElsewhereRuntime(AwayRuntime):
    """Says that it computes elsewhere."""

    occupies_cores = False


class BusyRuntime(ComputingRuntime):
    """Has a core all the time."""

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        end_s = time.perf_counter() + 0.005
        while time.perf_counter() < end_s:
            pass
        return super().run(program, inputs)


def _stage(plan: Plan, create: Any, frames: int = 3 * EVERY) -> Any:
    with Pipeline(plan, create=create) as running:
        for _ in running.map([X] * frames):
            pass
    return running.statistics().stages[0]


def test_a_run_without_a_core_waits_for_the_interpreter(chain: Callable[..., Plan]) -> None:
    away, busy = (_stage(chain(1, cores={"a": (0,)}), runtime) for runtime in (AwayRuntime, BusyRuntime))
    # How much of either is left to a thread depends on what else the machine does.
    assert busy.interpreter_share < away.interpreter_share <= 1.0
    assert 0.0 <= busy.interpreter_s <= busy.busy_s
    assert 0.0 < away.interpreter_s <= away.busy_s


def test_devices_that_may_sleep_are_not_counted(chain: Callable[..., Plan]) -> None:
    assert _stage(chain(1, cores={"a": (0,)}), ElsewhereRuntime).interpreter_s == 0.0
    assert _stage(chain(1), AwayRuntime).interpreter_s == 0.0, "without a core of its own"


def test_the_first_frames_are_not_counted(chain: Callable[..., Plan]) -> None:
    assert _stage(chain(1, cores={"a": (0,)}), AwayRuntime, frames=EVERY - 1).interpreter_s == 0.0


def test_a_swap_keeps_the_count(chain: Callable[..., Plan]) -> None:
    plan = chain(1, cores={"a": (0,)})
    with Pipeline(plan, create=AwayRuntime) as running:
        for _ in running.map([X] * 2 * EVERY):
            pass
        earlier = running.statistics().stages[0]
        running.swap(SimpleNamespace(plan=plan, builds=[Build(plan, (None,))], shapes=None))
        running.submit(X).result(30)
        later = running.statistics().stages[0]
    assert later.interpreter_s >= earlier.interpreter_s / 2 > 0
