"""Turns: a device borrowed by several workers, oldest frame first.

Turns go by age and not in the order in which workers ask, for two reasons.  Results leave in order, so that younger
frames would only wait for older ones later.  And workers that are alike fall into step when each waits for all others:
then all compute on their cores at the same time, and the device idles, until all want it at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from time import perf_counter


class Turns:
    """Workers in the queue for one device."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._holder: threading.Lock | None = None
        # By the frame's number, and equal ones in the order in which they ask.  Each ends in a lock that is held until
        # its turn comes.
        self._waiting: list[tuple[int, int, threading.Lock]] = []
        self._order = count()

    def __len__(self) -> int:
        """Count the workers with or waiting for the device."""
        return len(self._waiting) + (self._holder is not None)

    def take(self, frame: int) -> threading.Lock:
        """Wait for the device with a frame; return the ticket for release."""
        ticket = threading.Lock()
        with self._guard:
            if self._holder is None:
                self._holder = ticket
                return ticket
            ticket.acquire()
            heappush(self._waiting, (frame, next(self._order), ticket))
        # Waits for `give_back`, which releases the ticket whose turn it is.
        ticket.acquire()
        return ticket

    def give_back(self, ticket: threading.Lock) -> None:
        """Pass the device on; a used ticket changes nothing."""
        with self._guard:
            if self._holder is not ticket:
                return
            self._holder = heappop(self._waiting)[-1] if self._waiting else None
            if self._holder is not None:
                self._holder.release()


class Loan:
    """One worker's turn with a device for a frame, for a ``with`` statement.

    A device without turns is the worker's own, which it has at once; `wait` is called with a wait for another one. By
    `time.perf_counter`, the worker `asked` for it, had it from `begin`, and gave it back at `end`.
    """

    def __init__(self, turns: Turns | None, frame: int, wait: Callable[[Callable[[], None]], None]) -> None:
        self._turns, self._frame, self._wait = turns, frame, wait
        self._ticket: threading.Lock | None = None
        self.asked = self.begin = self.end = 0.0

    def __enter__(self) -> None:
        self.asked = perf_counter()
        if self._turns is not None:
            self._wait(self._take)
        self.begin = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.end = perf_counter()
        self.release()

    def _take(self) -> None:
        if self._turns is not None:
            self._ticket = self._turns.take(self._frame)

    def release(self) -> None:
        """Release the device once, also by the watchdog for hanging workers."""
        if self._turns is not None and self._ticket is not None:
            self._turns.give_back(self._ticket)


class DeviceTurns:
    """Queues of a pipeline's borrowed devices, by name."""

    def __init__(self) -> None:
        self._turns: dict[str, Turns] = {}

    def of(self, device: str) -> Turns:
        """Return a device's queue, common to all deployments."""
        return self._turns.setdefault(device, Turns())
