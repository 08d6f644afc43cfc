"""Clock: when the pictures of a camera or stream were captured, by the clock of this machine."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

NEAR = 10.0
"""Seconds within which a stamp counts as a time of this machine's clock."""

WINDOW = 300
"""How many of the newest stamps are compared, so that clocks may drift apart."""


class Clock:
    """Turns a stream's own stamps into times of `time.time`.

    Drivers of cameras stamp pictures by this machine's clock, and these stamps stay.  Senders of streams begin
    anywhere: of the newest pictures, the one that came quickest is taken to have come at once, so that what others
    needed longer counts as their delay.

    Parameters
    ----------
    now : callable
        Returns the time.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._offsets: deque[float] = deque(maxlen=WINDOW)
        self._last = 0.0

    def captured(self, stamp: float | None) -> float:
        """Return when the picture with `stamp`, in seconds, was captured; it has just arrived."""
        now = self._now()
        if stamp is None:
            return now
        if now - NEAR < stamp <= now:
            return stamp
        if stamp < self._last:  # the sender has begun anew
            self._offsets.clear()
        self._last = stamp
        self._offsets.append(now - stamp)
        return stamp + min(self._offsets)
