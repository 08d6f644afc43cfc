"""Capture clock: picture times of cameras or streams in local time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

# Drivers deliver within a second or so; streams count from zero or a random number, far from the present.
NEAR = 10.0
"""Largest distance in seconds of a stamp by this machine's clock."""

# Ten seconds at 30 pictures per second, in which quartz clocks drift apart by less than a millisecond.
WINDOW = 300
"""Newest stamps compared, so that clocks may drift apart."""


class CaptureClock:
    """Turns a stream's own stamps into times of `time.time`.

    Drivers of cameras stamp pictures by this machine's clock, and these stamps stay.  Senders of streams begin
    anywhere: of the newest pictures, the one that came quickest is taken to have come at once, so that what others
    needed longer counts as their delay.
    """

    def __init__(self, read_clock: Callable[[], float] = time.time) -> None:
        self._read_clock = read_clock
        self._offsets: deque[float] = deque(maxlen=WINDOW)
        self._last = 0.0

    def capture_time(self, stamp: float | None) -> float:
        """Return the capture time of the picture just arrived, in seconds."""
        read_clock = self._read_clock()
        # Some formats carry no time at all.
        if stamp is None:
            return read_clock
        if read_clock - NEAR < stamp <= read_clock:
            return stamp
        if stamp < self._last:  # the sender has begun anew
            self._offsets.clear()
        self._last = stamp
        self._offsets.append(read_clock - stamp)
        # The smallest difference is that of the picture with the least delay.
        return stamp + min(self._offsets)
