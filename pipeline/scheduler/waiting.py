"""Waiting: a latch and a condition, safe from signals.

`threading.Event` and `threading.Condition` take their lock in Python code: an interrupt right behind that, in the main
thread, leaves it locked for ever, and a signal handler that sets an event may find it locked by the thread that it has
interrupted.  The classes here take locks in C only.
"""

from __future__ import annotations

import threading
from operator import attrgetter
from queue import Empty, SimpleQueue


class Latch:
    """One-time event to wait for, settable anywhere, even in signal handlers."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[SimpleQueue[None]] = []

    def is_set(self) -> bool:
        """Test if it is set."""
        return self._is_set

    def set(self) -> None:
        """Let it happen, and wake all who wait."""
        self._is_set = True
        # The flag comes first: whoever enlists from now on looks at it before sleeping.
        for waker in self._waiting.copy():
            waker.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds until set; return success."""
        if self._is_set:
            return True
        waker: SimpleQueue[None] = SimpleQueue()
        self._waiting.append(waker)
        try:
            # Looked at only now: from here on `set` sees the waker.
            if not self._is_set:
                waker.get(timeout=timeout)
        except Empty:
            pass
        finally:
            self._waiting.remove(waker)
        return self._is_set


class SafeCondition(threading.Condition):
    """Condition on a reentrant lock, for ``with`` only."""

    # Looked up by ``with`` before it calls them; what it then calls is the lock's own, in C.
    __enter__ = property(attrgetter("_lock.__enter__"))
    __exit__ = property(attrgetter("_lock.__exit__"))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a notification, as `threading.Condition.wait` does."""
        try:
            return super().wait(timeout)
        except BaseException:
            # Interrupted while the lock was away: whoever called is about to release it.
            if not self._is_owned():  # type: ignore[attr-defined]
                self.acquire()
            raise
