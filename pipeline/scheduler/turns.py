"""Turns: a device that several workers borrow, one at a time and in the order in which they ask."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter


class Turns:
    """The queue of the workers that want one device.

    A lock of Python's lets whoever comes next have it, also one that has just given it back; here nobody is overtaken.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        # The first one has the device.  Each is a lock that is held until its turn comes.
        self._tickets: deque[threading.Lock] = deque()

    def __len__(self) -> int:
        """Return the number of workers that have the device or wait for it."""
        return len(self._tickets)

    def take(self) -> threading.Lock:
        """Wait for the device, and return the ticket that gives it back."""
        ticket = threading.Lock()
        with self._guard:
            self._tickets.append(ticket)
            is_first = self._tickets[0] is ticket
            if not is_first:
                ticket.acquire()
        if not is_first:
            # Waits for `give_back`, which releases the ticket of the next one.
            ticket.acquire()
        return ticket

    def give_back(self, ticket: threading.Lock) -> None:
        """Let the next one have the device; a ticket that has been given back already changes nothing."""
        with self._guard:
            if not self._tickets or self._tickets[0] is not ticket:
                return
            self._tickets.popleft()
            if self._tickets:
                self._tickets[0].release()


class Loan:
    """The turn of one worker with a device for one run, for a ``with`` statement.

    Parameters
    ----------
    turns : Turns or None
        Of the device; None for the worker's own, which it has at once.
    wait : callable
        Called with what waits for the device.

    Attributes
    ----------
    asked, begin, end : float
        When the worker asked for the device, had it, and gave it back, by `time.perf_counter`.
    """

    def __init__(self, turns: Turns | None, wait: Callable[[Callable[[], None]], None]) -> None:
        self._turns, self._wait = turns, wait
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
            self._ticket = self._turns.take()

    def release(self) -> None:
        """Give the device back, if it has not been; the watchdog does so for a worker that hangs."""
        if self._turns is not None and self._ticket is not None:
            self._turns.give_back(self._ticket)


class DeviceTurns:
    """The queues of all devices that the stages of a pipeline borrow, by name."""

    def __init__(self) -> None:
        self._turns: dict[str, Turns] = {}

    def of(self, device: str) -> Turns:
        """Return the queue of a device, the same one for all deployments of the pipeline."""
        return self._turns.setdefault(device, Turns())
