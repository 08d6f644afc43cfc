"""Bandwidth: a memory that serves all who read and write it at the same time, in equal parts.

A run's bytes come while it computes, so that it takes the longer of the two: what the cores do, and what the memory
does for it while others ask for their bytes, too (processor sharing, on top of the roofline model).
"""

from __future__ import annotations

import heapq
from itertools import count

from pipeline.simulation.clock import Clock, Request, Resume


class Bandwidth:
    """The bytes per second of one memory.

    Parameters
    ----------
    clock : Clock
    bytes_per_s : float
    """

    def __init__(self, clock: Clock, bytes_per_s: float) -> None:
        self._clock, self._bytes_per_s = clock, bytes_per_s
        # What each run has been served by now that was there from the start: with equal parts, runs end in the order
        # of what they need beyond what it was when they came.
        self._served, self._time = 0.0, 0.0
        self._due: list[tuple[float, int, float, Resume]] = []
        self._order = count()
        self._plan = 0

    def serve(self, nbytes: float, seconds: float) -> Request:
        """Return the request to go on when so many bytes have come, and not before so many seconds are over."""

        def request(resume: Resume) -> None:
            self._advance()
            heapq.heappush(self._due, (self._served + nbytes, next(self._order), self._clock.time + seconds, resume))
            self._schedule()

        return request

    def _advance(self) -> None:
        """Count what has been served since the last change."""
        if self._due:
            self._served += (self._clock.time - self._time) * self._bytes_per_s / len(self._due)
        self._time = self._clock.time

    def _schedule(self) -> None:
        """Look again when the first one is served, unless another one comes or goes before."""
        self._plan += 1
        if self._due:
            plan, missing = self._plan, max(0.0, self._due[0][0] - self._served)
            self._clock.after(missing * len(self._due) / self._bytes_per_s, lambda: self._finish(plan))

    def _finish(self, plan: int) -> None:
        if plan != self._plan:
            return
        self._advance()
        # Exactly what it was planned for: rounding must not leave a byte behind.
        self._served, _, end, resume = heapq.heappop(self._due)
        self._clock.after(max(0.0, end - self._clock.time), resume)
        self._schedule()
