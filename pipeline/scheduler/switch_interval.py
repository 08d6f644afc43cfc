"""The interpreter's switch interval, and why it matters here.

Python code of different threads takes turns.  A thread that comes back from a device while another one is busy in pure
Python waits until that one is asked to hand over: by default after 5 ms, which can be many times the stage's own time.
The remedies, best first: keep heavy Python code out of the process that runs the pipeline; let it call NumPy or other
native code that releases the interpreter; or shorten the interval with ``Pipeline(..., switch_interval=0.0005)``.
The interval belongs to the process.  A shorter one lets busy threads change more often, which costs them a few percent
at 0.5 ms; ``bench/interpreter.py`` measures both.  So commands, whose process is theirs, choose it by the plan
(`choose_interval`), and `Pipeline` leaves the process of its caller alone unless asked.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from pipeline.core import arguments
from pipeline.core.plan.plan import Plan
from pipeline.errors import ArgumentError
from pipeline.scheduler.interrupts import uninterrupted
from pipeline.scheduler.statistics import StageCounters

LONGEST = 1000.0
"""Seconds; the interpreter counts microseconds in 32 bits or more."""

SHORTEST = 1e-4
"""Shortest interval that is chosen, in seconds. Handing over takes some 10 us, and all threads wait for it."""

UNKNOWN = 5e-4
"""Interval for a plan without times, in seconds."""

_lock = threading.RLock()
# The lock guards the two below, which are the process's as the interval is.  Reentrant: a signal handler may close a
# pipeline while another one opens.
_requests: list[float] = []
_original_s = 0.0


def choose_interval(plan: Plan) -> float:
    """Return the switch interval for a plan: a quarter of its shortest stage's time."""
    # A stage then loses at most a quarter of its time to a busy thread behind its run, and as much at its queue.
    times = [stage.seconds for stage in plan.stages if stage.seconds]
    return max(SHORTEST, min(times) / 4) if times else UNKNOWN


class SwitchInterval:
    """Limit on the process's switch interval, in `seconds`, until `end`.

    `seconds`: switch interval; None leaves it alone.  Of several that are in use at once the shortest counts; the
    interval before the first of them comes back after the last.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        if seconds is not None:
            seconds = self._seconds = arguments.duration("switch_interval", seconds)
            if seconds > LONGEST:
                raise ArgumentError(f"switch_interval is {seconds}; it must be at most {LONGEST:.0f} seconds")
            global _original_s  # noqa: PLW0603 - the interval is the process's
            with _lock:
                _original_s = _original_s if _requests else sys.getswitchinterval()
                # Equal values may be in use twice; each `end` removes one of them.
                _requests.append(seconds)
                _apply()

    @uninterrupted
    def end(self) -> None:
        """Want it no longer; may be called again."""
        with _lock:
            # Under the lock, so that of two closes at once only one gives the request back.
            seconds, self._seconds = self._seconds, None
            if seconds is not None:
                _requests.remove(seconds)
                _apply()


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - a thread of the parent may hold it
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _apply() -> None:
    sys.setswitchinterval(min((_original_s, *_requests)))


try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


Run = Callable[[Any, Sequence[Any]], Sequence[Any]]

CAN_SAMPLE = hasattr(resource, "RUSAGE_THREAD")
"""True on Linux."""

EVERY = 16
"""Runs for each sample. It takes 2 us, and the first runs may wait for the disk."""


class SampledRun:
    """A runtime's `run`, for one worker."""

    def __init__(self, run: Run, counters: StageCounters) -> None:
        self._run, self._counters, self._countdown = run, counters, EVERY

    def __call__(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run a frame."""
        self._countdown -= 1
        if self._countdown:
            return self._run(program, inputs)
        self._countdown = EVERY
        before, begin_s = resource.getrusage(resource.RUSAGE_THREAD), perf_counter()
        outputs = self._run(program, inputs)
        seconds, after = perf_counter() - begin_s, resource.getrusage(resource.RUSAGE_THREAD)
        computing_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        asleep, displaced = after.ru_nvcsw - before.ru_nvcsw, after.ru_nivcsw - before.ru_nivcsw
        if asleep:
            # Where both happened, each has its share.
            self._counters.interpreter_s += max(0.0, seconds - computing_s) * asleep / (asleep + displaced)
        self._counters.sampled_s += seconds
        return outputs
