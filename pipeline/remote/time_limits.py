"""Time limits: frames unusually slow on a member are retried elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from time import monotonic

from pipeline.remote.member_health import LEAST_LIMIT_S, time_limit
from pipeline.remote.pool_members import Place
from pipeline.system.watchdog import TimedRun, Watchdog


class TimeLimits:
    """Limited frames of a pool, by usual times per member or overall.

    `has_other` says whether the frame of a place could be tried elsewhere; without that it is never broken off.
    """

    def __init__(self, has_other: Callable[[Place], bool]) -> None:
        self._has_other = has_other
        self._watchdog: Watchdog | None = None
        self._is_closed = False
        # Guards these two, and who ends a place's run; the pool's own lock may be taken while it is held.
        self._lock = threading.Lock()

    def begin(self, place: Place) -> None:
        """Break a late frame's session, until `end`."""
        with self._lock:
            if self._is_closed:
                return
            if self._watchdog is None:
                self._watchdog = Watchdog()
                self._watchdog.start()
            place.run = self._watchdog.begin(LEAST_LIMIT_S, partial(self._expire, place))

    def end(self, place: Place) -> None:
        """Let the session of a place be."""
        with self._lock:
            if place.run is not None and self._watchdog is not None:
                self._watchdog.end(place.run)
            place.run = None

    def close(self) -> None:
        """Limit nothing more."""
        with self._lock:
            self._is_closed = True
            if self._watchdog is not None:
                self._watchdog.stop()

    def _expire(self, place: Place, run: TimedRun) -> None:
        """Break a place's session, or look again later; in the watchdog's thread."""
        with self._lock:
            # The frame may have ended at this very moment, and the session be another one's.
            if place.run is not run or self._watchdog is None or self._is_closed:
                return
            spent_s = monotonic() - run.start_s
            limit_s = time_limit(place.member.health(place.stages).usual_s or place.stages.usual_s)
            if spent_s >= limit_s and self._has_other(place):
                place.hangs, place.run = True, None
                place.break_off()
            else:
                # As long as nothing is usual, or nobody else is there, that may change soon.
                next_s = max(min(limit_s, spent_s + LEAST_LIMIT_S), spent_s + LEAST_LIMIT_S / 10)
                place.run = self._watchdog.begin(next_s, partial(self._expire, place), spent_s)
