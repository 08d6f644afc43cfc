"""Fair queue: frames that wait for a node, each stream in its own order."""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Takes items of several streams in turn.

    The stream that was served least comes first, and of equal ones the earliest capture: start-time fair queueing
    (Goyal, Vin and Cheng, 1996) with equal weights.  A stream that was away gets no turns for those that it missed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, deque[tuple[float, Item]]] = {}
        # Turns that each stream has had, and those of the stream that was served last, when it was.
        self._turns: dict[str, int] = {}
        self._now = 0
        # A token per item; readers wait for these, in C.
        self._tokens: SimpleQueue[bool] = SimpleQueue()

    def put(self, stream: str, time_s: float, item: Item) -> None:
        """Add an item of a stream, behind its earlier ones."""
        with self._lock:
            line = self._lines.setdefault(stream, deque())
            if not line:
                self._turns[stream] = max(self._turns.get(stream, 0), self._now)
            line.append((time_s, item))
        self._tokens.put(True)

    def get(self) -> Item | None:
        """Wait for an item; None once closed and drained."""
        if not self._tokens.get():
            return None
        with self._lock:
            waiting = (name for name, line in self._lines.items() if line)
            stream = min(waiting, key=lambda name: (self._turns[name], self._lines[name][0][0]))
            self._now = self._turns[stream]
            self._turns[stream] += 1
            return self._lines[stream].popleft()[1]

    def close(self) -> None:
        """End the reader after the remaining items."""
        self._tokens.put(False)
