"""Forecast: end of a frame started now, from recent stage times."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.core.plan.plan import Plan
from pipeline.scheduler.statistics import StageCounters, percentiles
from pipeline.scheduler.wiring import Wiring

LATELY = 64
"""Number of the newest runs in a forecast: enough for a 95th percentile, few enough to follow a change of pace."""


class Forecast:
    """Estimates over paths through the stages, and over backlogs.

    The plan's times count until there are measured ones.
    """

    def __init__(self, plan: Plan, wiring: Wiring, counters: Sequence[Sequence[StageCounters]]) -> None:
        # Plain lists: with the policy "deadline" this is computed for each frame that waits, under the ledger's lock.
        self._plan_times = [stage.seconds for stage in plan.stages]
        self._successors = [stage.successors for stage in wiring.stages]
        self._counters = counters
        self.starts = 0

    def __call__(self) -> float:
        """Return seconds: the longest path, or the largest backlog of a stage.

        A stage must first run all frames that are between the entrance and its end; the frame then has the way from
        that stage on before it.
        """
        longest, path_s = 0.0, [0.0] * len(self._counters)
        # From the last stage on: the way behind a stage is known when its turn comes.
        for number in reversed(range(len(self._counters))):
            median, slow = self._times(number)
            onward_s = max((path_s[successor] for successor in self._successors[number]), default=0.0)
            path_s[number] = onward_s + slow
            # Counters are read without a lock, so that this may be one off while a worker counts.
            ahead = self.starts - sum(counters.passed for counters in self._counters[number])
            # Frames ahead take the median each, since slow and quick ones even out over many; the frame itself is
            # granted the slow time of each stage on its way.  Replicas share what is ahead.
            longest = max(longest, path_s[number], path_s[number] + ahead * median / len(self._counters[number]))
        return longest

    def _times(self, number: int) -> tuple[float, float]:
        """Return a stage's median time and slow time."""
        recent = [seconds for counters in self._counters[number] for seconds in counters.newest(LATELY)]
        if not recent:
            return self._plan_times[number], self._plan_times[number]
        times = percentiles(recent)
        return times.p50, times.p95
