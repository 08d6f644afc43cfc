"""Simulated device: computes nothing, sleeps for the plan's time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.core.plan.plan import StagePlan
from pipeline.executor.devices.null import NullRuntime
from pipeline.system.timer_slack import wake_on_time

LARGEST_CREDIT = 0.1
"""Largest part of a run's time, by which earlier runs may shorten it."""


@dataclass
class SleepingStage:
    """One loaded stage."""

    seconds: float
    """Seconds of a run."""
    transfer_s: float
    """Part of it that is spent on transfers, one half before and one after the computation."""
    outputs: tuple[int | np.ndarray, ...]
    """Number of the input that each output repeats, or the zeros that stand for it."""


class Lateness(threading.local):
    """Lateness of a thread's wake-ups, shared by its sequential devices."""

    seconds = 0.0
    """Seconds by which the next sleeps are shorter, all together."""
    longest_s = 0.0
    """The longest sleep of the thread; no more is made up for."""


_lateness = Lateness()


class SimulatedRuntime(NullRuntime):
    """Sleeps for the stage's `seconds`, exactly on average.

    A sleeping thread is woken 20 to 50 microseconds late.  Each run hands its own lateness on to the next one of the
    thread, so that the device keeps its pace, and a worker that borrows devices for short steps keeps its own; time
    spent between runs is nobody's but the scheduler's and is not made up for.
    """

    def open(self, cores: Sequence[int]) -> None:
        """Pin the calling thread to `cores`, with precise wake-ups."""
        super().open(cores)
        wake_on_time()

    def load(self, stage: StagePlan, code: Any) -> SleepingStage:  # noqa: ARG002 - there is none
        """Return the stage's time and stand-in outputs."""
        outputs = tuple(_placeholder(stage, number) for number in range(len(stage.outputs)))
        return SleepingStage(stage.seconds, min(stage.transfer_s, stage.seconds), outputs)

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Sleep, then return inputs or zeros."""
        _sleep(program.seconds)
        return _outputs(program, inputs)

    def run_in_turn(self, program: Any, inputs: Sequence[Any], turn: AbstractContextManager[object]) -> Sequence[Any]:
        """Sleep for input transfers, the run in turn, and output transfers."""
        move_s = program.transfer_s / 2
        if move_s:
            _sleep(move_s)
        with turn:
            _sleep(program.seconds - program.transfer_s)
        if move_s:
            _sleep(move_s)
        return _outputs(program, inputs)


def _outputs(program: SleepingStage, inputs: Sequence[Any]) -> list[Any]:
    return [inputs[output] if isinstance(output, int) else output for output in program.outputs]


def _sleep(seconds: float) -> None:
    # Bounded: after a long stall it must not catch up faster than a real device could, nor for long.
    shortening = min(_lateness.seconds, LARGEST_CREDIT * seconds)
    deadline = time.perf_counter() + seconds - shortening
    _sleep_until(deadline)
    _lateness.longest_s = max(_lateness.longest_s, seconds)
    lateness = _lateness.seconds - shortening + time.perf_counter() - deadline
    _lateness.seconds = min(lateness, _lateness.longest_s)


def _sleep_until(deadline: float) -> None:
    # Sleeping may end early by the clock's grain, never by much.
    while (remaining_s := deadline - time.perf_counter()) > 0:
        time.sleep(remaining_s)


def _placeholder(stage: StagePlan, number: int) -> int | np.ndarray:
    input_number = number % len(stage.inputs)
    source, spec = stage.inputs[input_number], stage.outputs[number]
    if (source.shape, source.dtype) == (spec.shape, spec.dtype):
        return input_number
    zeros = np.zeros(spec.shape, spec.dtype)
    # All frames share it, so nobody may write to it.
    zeros.setflags(write=False)
    return zeros
