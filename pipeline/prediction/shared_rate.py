"""SharedRate: one server for all at once (processor sharing)."""

from __future__ import annotations

import heapq
from itertools import count
from typing import Generic, TypeVar

Item = TypeVar("Item")


class SharedRate(Generic[Item]):
    """Server with a rate, such as a memory's bytes per second.

    `version`: number that changes with each change, which makes an earlier `next_time` void.
    """

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        # What each has been served by now that was there from the start: with equal parts, they end in the order of
        # what they need beyond what it was when they came.
        self._served, self._time = 0.0, 0.0
        self._due: list[tuple[float, int, Item]] = []
        self._order = count()
        self.version = 0

    def add(self, time: float, amount: float, item: Item) -> None:
        """Begin to serve an amount."""
        self._advance(time)
        heapq.heappush(self._due, (self._served + amount, next(self._order), item))

    def next_time(self) -> float:
        """Return the time of the next completion; infinity without any."""
        if not self._due:
            return float("inf")
        return self._time + max(0.0, self._due[0][0] - self._served) * len(self._due) / self._per_s

    def pop(self, time: float) -> Item:
        """Return the item completed at `next_time`, which is now."""
        self._advance(time)
        # Exactly what it was planned for: rounding must not leave a byte behind.
        self._served, _, item = heapq.heappop(self._due)
        return item

    def _advance(self, time: float) -> None:
        """Add the service since the last change."""
        if self._due:
            self._served += (time - self._time) * self._per_s / len(self._due)
        self._time = time
        self.version += 1
