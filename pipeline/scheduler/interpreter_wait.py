"""SampledRun: a stage's run that tells, now and then, how long it waited for the interpreter.

A stage that computes in its worker's own thread sleeps in a run only behind its native code, until another thread hands
over Python's interpreter.  So of the seconds without a core, those behind a voluntary switch are the interpreter's, and
those behind an involuntary one another thread's that has the core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pipeline.scheduler.statistics import StageCounters

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
