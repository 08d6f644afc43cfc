"""Watchdog: one thread that notices stages past their deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic


@dataclass(frozen=True, eq=False)
class TimedRun:
    """Run of a stage with a deadline."""

    start_s: float
    deadline_s: float
    """Seconds of `time.monotonic`."""
    expire: Callable[[TimedRun], None]
    """Function to call in the watchdog's thread, with the run, once the deadline has passed."""


class Watchdog:
    """Runs with a deadline.

    A run ends exactly once: by its worker, or by the watchdog, whose `TimedRun.expire` then owns the frame.
    """

    def __init__(self) -> None:
        # No lock: adding and popping are single steps, and who pops a run owns it.
        self._runs: dict[TimedRun, bool] = {}
        self._wake_at = inf
        self._alarm: SimpleQueue[bool] = SimpleQueue()
        # A daemon: a program that ends without closing must not wait for a deadline.
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    @property
    def wake_at(self) -> float:
        """`time.monotonic` of the next wake-up; infinity when idle."""
        return self._wake_at

    def begin(self, limit: float, expire: Callable[[TimedRun], None], spent_s: float = 0.0) -> TimedRun:
        """Note the start of a run, with the seconds already spent."""
        start_s = monotonic() - spent_s
        run = TimedRun(start_s, start_s + limit, expire)
        self._runs[run] = True
        # Looked at only after the run is noted: the watchdog looks for runs only after it has set this to infinity.
        if run.deadline_s < self._wake_at:
            self._alarm.put(True)
        return run

    def end(self, run: TimedRun) -> bool:
        """Note the end of a run; False if it was late."""
        return self._runs.pop(run, False)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread's end."""
        # A frame that took too long ends in this thread, and its callback may close the pipeline.
        if self._thread is not threading.current_thread():
            self._thread.join()

    def stop(self) -> None:
        """Let the thread end."""
        self._alarm.put(False)

    def _watch(self) -> None:
        while self._sleep():
            self._expire_runs()

    def _expire_runs(self) -> None:
        # On its own, so that a sleeping watchdog refers to no run, nor to its frame.
        now_s = monotonic()
        for run in list(self._runs):
            # `end` decides who owns the frame: the worker may come back at this very moment.
            if run.deadline_s <= now_s and self.end(run):
                run.expire(run)

    def _sleep(self) -> bool:
        """Sleep until a deadline or an alarm; False at the end."""
        self._wake_at = inf
        # Infinity before the runs are read: a run that begins in between puts an alarm, at worst one too many.
        wake_at = self._wake_at = min((run.deadline_s for run in list(self._runs)), default=inf)
        try:
            return self._alarm.get(timeout=None if wake_at == inf else max(0.0, wake_at - monotonic()))
        except Empty:
            return True
