"""Rate limit: connections, failed authentications and warnings per address."""

from __future__ import annotations

import ipaddress
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

MOST_ADDRESSES = 4096
"""Addresses remembered; the least recent is forgotten first."""

FAILURE = 20
"""A failed attempt counts as so many connections."""


class RateLimit:
    """Token bucket per address, one token per connection, refilled with time.

    An address may have `per_s` connections per second for long, and `burst` at once. Clients of this machine have no
    limit: all that come through tunnels, and so all honest ones too, have its address; `exempt` says which others have
    none.
    """

    def __init__(
        self,
        per_s: float = 20.0,
        burst: float = 200.0,
        *,
        exempt: Callable[[str], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_s, self._burst, self._clock = per_s, burst, clock
        self._exempt = exempt or is_loopback
        # By address, what was left in its bucket, and when.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def allows(self, address: str) -> bool:
        """Count a client of an address; return False over the limit."""
        return self._take(address, 1.0)

    def note_failure(self, address: str) -> None:
        """Count a failed authentication."""
        self._take(address, FAILURE)

    def _take(self, address: str, amount: float) -> bool:
        if self._exempt(address):
            return True
        with self._lock:
            now = self._clock()
            level, since = self._buckets.pop(address, (self._burst, now))
            level = min(self._burst, level + (now - since) * self._per_s)
            has_enough = level >= 1
            # Refused ones take nothing: whoever tries again and again is let in as soon as anybody.
            self._buckets[address] = (max(0.0, level - amount) if has_enough else level, now)
            if len(self._buckets) > MOST_ADDRESSES:
                self._buckets.popitem(last=False)
            return has_enough


def is_loopback(address: str) -> bool:
    """Test for this machine's own address, or a local socket."""
    try:
        return not address or ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


logger = logging.getLogger(__name__)

MOST_LINES = 10
"""Lines per period. Further refusals are counted."""

PERIOD_S = 10.0


class RefusalLog:
    """Warnings about refused clients, with their addresses."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begin_s, self._lines, self._silent = clock(), 0, 0
        self._lock = threading.Lock()

    def note(self, peer: str, reason: str) -> None:
        """Say why a client is refused, or count it."""
        with self._lock:
            if self._clock() - self._begin_s >= PERIOD_S:
                self._begin_s, self._lines = self._clock(), 0
            if self._lines >= MOST_LINES:
                self._silent += 1
                return
            self._lines += 1
            silent, self._silent = self._silent, 0
        summary = f" (and {silent} others since the last line)" if silent else ""
        logger.warning("a client%s is refused: %s%s", f" at {peer}" if peer else "", reason, summary)
