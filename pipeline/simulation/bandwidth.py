"""Bandwidth: a memory shared equally by concurrent readers and writers.

A run's bytes come while it computes, so that it takes the longer of the two: what the cores do, and what the memory
does for it while others ask for their bytes, too (processor sharing, on top of the roofline model).
"""

from __future__ import annotations

from pipeline.prediction.shared_rate import SharedRate
from pipeline.simulation.clock import Clock, Request, Resume


class Bandwidth:
    """The bytes per second of one memory."""

    def __init__(self, clock: Clock, bytes_per_s: float) -> None:
        self._clock = clock
        self._rate = SharedRate[tuple[float, Resume]](bytes_per_s)

    def serve(self, nbytes: float, seconds: float) -> Request:
        """Return a request for `nbytes`, lasting at least `seconds`."""

        def request(resume: Resume) -> None:
            self._rate.add(self._clock.time, nbytes, (self._clock.time + seconds, resume))
            self._schedule()

        return request

    def _schedule(self) -> None:
        """Reschedule at the next completion, unless the set changes before."""
        version, time = self._rate.version, self._rate.next_time()
        if time < float("inf"):
            self._clock.schedule(time - self._clock.time, lambda: self._finish(version))

    def _finish(self, version: int) -> None:
        if version != self._rate.version:
            return
        end, resume = self._rate.pop(self._clock.time)
        self._clock.schedule(max(0.0, end - self._clock.time), resume)
        self._schedule()
