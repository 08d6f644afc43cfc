"""Recent: rates over the last seconds, from growing counters."""

from __future__ import annotations

from collections import deque
from time import perf_counter

from pipeline.scheduler.statistics import StageStatistics, Statistics

WINDOW_S = 2.0
"""Seconds of the window: a stage of some frames per second has a steady share."""


class Recent:
    """The statistics of the last seconds.

    Attributes
    ----------
    frames_per_s : float
        Frames delivered per second.
    """

    def __init__(self) -> None:
        self._snapshots: deque[tuple[float, Statistics]] = deque()

    def add(self, statistics: Statistics) -> None:
        """Add the newest statistics, dropping all outdated but one."""
        time = perf_counter()
        self._snapshots.append((time, statistics))
        # The newest one from before the window remains, so that the rates span all of it.
        while len(self._snapshots) > 2 and time - self._snapshots[1][0] >= WINDOW_S:
            self._snapshots.popleft()

    @property
    def frames_per_s(self) -> float:
        """Frames delivered per second; at first, since the beginning."""
        newest = self._snapshots[-1][1]
        seconds = self._seconds
        return (newest.delivered - self._snapshots[0][1].delivered) / seconds if seconds else newest.frames_per_s

    def busy(self, stage: StageStatistics) -> float:
        """Return a stage's busy share, 0 to 1, initially since the start."""
        first = next((counts for counts in self._snapshots[0][1].stages if counts.name == stage.name), None)
        seconds = self._seconds
        if first is None or not seconds:
            return stage.busy
        # A swap may put a new stage under the same name, with counters of its own.
        return min(1.0, max(0.0, stage.busy_s - first.busy_s) / (seconds * stage.replicas))

    @property
    def _seconds(self) -> float:
        return self._snapshots[-1][0] - self._snapshots[0][0]
