"""Stranger budget: a server's processor time for unauthenticated clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

SHARE = 0.1
"""Seconds of a core in a second. Admitted clients lack what strangers cost."""

BURST_S = 0.1
"""Seconds of a burst, for some dozens who come together. They hold up all others meanwhile."""


class StrangerBudget:
    """Bucket of seconds, refilled with time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._level_s, self._since_s = BURST_S, clock()
        self._lock = threading.Lock()

    def spend(self, seconds: float) -> None:
        """Take the time of one client out of it."""
        with self._lock:
            clock_s = self._clock()
            self._level_s = min(BURST_S, self._level_s + SHARE * (clock_s - self._since_s)) - seconds
            self._since_s = clock_s

    def pause(self) -> float:
        """Return the seconds of closed doors."""
        self.spend(0.0)
        return max(0.0, -self._level_s / SHARE)
