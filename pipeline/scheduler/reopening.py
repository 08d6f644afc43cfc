"""Reopening: a hung device's replacement, opened in time or given up."""

from __future__ import annotations

import threading
from collections.abc import Callable

OPENINGS = 10
"""Factor on the first opening's time. A server has to be started again, and files to be sent."""


def opening_limit(stage_limit: float, opened_s: float, opening_s: float) -> float:
    """Return a device's opening limit in seconds, for a stage's limit."""
    return max(stage_limit, OPENINGS * opened_s, opening_s)


class Reopening:
    """Time limit of an opening, ended once by device or clock.

    Parameters
    ----------
    limit : float
        Seconds.
    on_late : callable
        Function to call, in a thread of its own, when they are over.
    """

    def __init__(self, limit: float, on_late: Callable[[], None]) -> None:
        self._on_late = on_late
        # Taken once and never released: whoever gets it, the worker or the clock, owns what comes next.
        self._decision = threading.Lock()
        self._timer = threading.Timer(limit, self._expire)
        # The interpreter must not wait for a limit that may be minutes long.
        self._timer.daemon = True

    def begin(self) -> None:
        """Start the clock."""
        self._timer.start()

    def end(self) -> bool:
        """Stop the clock; return True if in time."""
        in_time = self._decision.acquire(blocking=False)
        # Also when it was too late: cancelling a timer that runs does nothing.
        self._timer.cancel()
        return in_time

    def _expire(self) -> None:
        if self._decision.acquire(blocking=False):
            self._on_late()
