"""Refusal log: rate-limited warnings about refused clients."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

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
