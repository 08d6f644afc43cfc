"""Probes: questions repeated until answered, in few threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

Question = Callable[[], "float | None"]
"""Asks once, and returns the seconds until it wants to be asked again; None if there is no need."""

MOST_THREADS = 8
"""Questions at once. An unanswered one takes its whole time limit."""


@dataclass(eq=False)
class _Entry:
    question: Question
    due_s: float
    asked: int = 0


class Probes:
    """Questions with due times, least asked first.

    However many there are, they take no more than `MOST_THREADS` threads, which end when nothing is left to ask.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._entries: list[_Entry] = []
        self._threads: set[threading.Thread] = set()
        self._busy = 0
        self._is_closed = False
        # Guards all of the above.
        self._changed = threading.Condition()

    def add(self, question: Question, pause_s: float = 0.0) -> None:
        """Have a question asked after a pause."""
        with self._changed:
            if self._is_closed:
                return
            self._entries.append(_Entry(question, time.monotonic() + pause_s))
            self._changed.notify()
            if len(self._threads) - self._busy < len(self._entries) and len(self._threads) < MOST_THREADS:
                # A daemon: it may wait for a server when the interpreter ends.
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._threads.add(thread)
                thread.start()

    def close(self, timeout: float) -> None:
        """Stop asking; threads still waiting after the limit are abandoned."""
        with self._changed:
            self._is_closed = True
            self._entries.clear()
            threads = list(self._threads)
            self._changed.notify_all()
        deadline = time.monotonic() + timeout
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while (entry := self._next()) is not None:
            pause_s = entry.question()
            with self._changed:
                self._busy -= 1
                if pause_s is not None and not self._is_closed:
                    entry.asked, entry.due_s = entry.asked + 1, time.monotonic() + pause_s
                    self._entries.append(entry)

    def _next(self) -> _Entry | None:
        """Wait for a due question; None after the last."""
        with self._changed:
            while self._entries:
                clock_s = time.monotonic()
                due = [entry for entry in self._entries if entry.due_s <= clock_s]
                if due:
                    # A new one does not wait behind a thousand that were never answered.
                    entry = min(due, key=lambda entry: (entry.asked, entry.due_s))
                    self._entries.remove(entry)
                    self._busy += 1
                    return entry
                self._changed.wait(min(entry.due_s for entry in self._entries) - clock_s)
            self._threads.discard(threading.current_thread())
            return None
