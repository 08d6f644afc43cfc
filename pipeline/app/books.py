"""Books: where each frame of a stream, and each crop, has gone."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

ENDS = ("delivered", "failed", "dropped", "cancelled")
"""Ends of a frame or crop; each has exactly one."""


@dataclass(frozen=True)
class Book:
    """Counts of frames or crops at a moment, of which those in flight have no end yet."""

    taken: int = 0
    """Frames that came; the sum of the others."""
    delivered: int = 0
    failed: int = 0
    dropped: int = 0
    cancelled: int = 0

    @property
    def in_flight(self) -> int:
        """Those without an end."""
        return self.taken - self.delivered - self.failed - self.dropped - self.cancelled


class Books:
    """Books by the name of a stream, or of a model with crops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def note(self, name: str, end: str, count: int = 1) -> None:
        """Count frames that came (``"taken"``), or found an end of `ENDS`."""
        with self._lock:
            self._counts[name, end] += count

    def snapshot(self) -> Mapping[str, Book]:
        """Return the books at this moment, by name."""
        with self._lock:
            counts = dict(self._counts)
        names = dict.fromkeys(name for name, _ in counts)
        return {name: Book(**{end: counts.get((name, end), 0) for end in ("taken", *ENDS)}) for name in names}
