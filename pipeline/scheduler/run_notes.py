"""RunNotes: a worker's counters and trace of its runs."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.scheduler.heterogeneous import StepTimes
from pipeline.scheduler.worker_context import Assignment

RunTimes = tuple[float, float, float, float, float]
"""When a frame came, was taken up, had its inputs, had run, and was stored, by `time.perf_counter`."""


class RunNotes:
    """Counters of a worker, with an optional trace."""

    def __init__(self, assignment: Assignment, *, may_copy: bool) -> None:
        self._stage, self._replica, self._counters = assignment.stage, assignment.replica, assignment.counters
        self._trace, self._may_copy = assignment.context.options.trace, may_copy

    def run(self, number: int, times: RunTimes) -> None:
        """Note a run on a frame."""
        arrival_s, begin_s, ready_s, ran_s, stored_s = times
        self._counters.count_run(begin_s - arrival_s, ready_s - begin_s + stored_s - ran_s, ran_s - ready_s)
        if self._trace is None:
            return
        for kind, start, end in zip(("queue", "copy", "run", "copy"), times, times[1:], strict=False):
            if kind != "copy" or self._may_copy:
                self.event(number, kind, start, end)

    def steps(self, number: int, step_times: Sequence[StepTimes]) -> None:
        """Note the steps of a run."""
        for unit, counters, times in zip(self._stage.units, self._counters.steps, step_times, strict=True):
            copy_s = times.asked - times.start + times.end - times.ran
            counters.count_run(times.begin - times.asked, copy_s, times.ran - times.begin)
            if self._trace is not None:
                self._trace.add(unit.name, number, "step", times.begin, times.ran, self._replica, unit.device)

    def event(self, number: int, kind: str, start: float, end: float) -> None:
        """Trace a frame's time span here."""
        if self._trace is not None:
            self._trace.add(self._stage.name, number, kind, start, end, self._replica)
