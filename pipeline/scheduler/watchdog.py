"""Watchdog: notices a stage that does not come back, in a thread that sleeps until the next deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.scheduler.frame import Frame
    from pipeline.scheduler.worker import Worker


@dataclass(frozen=True, eq=False)
class Run:
    """A worker that is running its stage on a frame.

    Attributes
    ----------
    started, deadline : float
        Seconds of `time.monotonic`.
    """

    worker: Worker
    frame: Frame
    started: float
    deadline: float


class Watchdog:
    """The runs that have a deadline.

    A run ends exactly once: by its worker, or by the watchdog, who then owns the frame.

    Parameters
    ----------
    expired : callable
        Called in the watchdog's thread with each run whose deadline has passed.
    """

    def __init__(self, expired: Callable[[Run], None]) -> None:
        self._expired = expired
        self._runs: dict[Run, bool] = {}
        self._wake_at = inf
        self._alarm: SimpleQueue[bool] = SimpleQueue()
        self._thread = threading.Thread(target=self._live, name="watchdog", daemon=True)

    def begin(self, worker: Worker, frame: Frame, limit: float) -> Run:
        """Note that a run begins, which must end within `limit` seconds."""
        now = monotonic()
        run = Run(worker, frame, now, now + limit)
        self._runs[run] = True
        # Looked at only after the run is noted: the watchdog looks for runs only after it has set this to infinity.
        if run.deadline < self._wake_at:
            self._alarm.put(True)
        return run

    def end(self, run: Run) -> bool:
        """Note the end of a run, and return whether it was in time."""
        return self._runs.pop(run, False)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the thread's end."""
        if self._thread is not threading.current_thread():
            self._thread.join()

    def stop(self) -> None:
        """Let the thread end."""
        self._alarm.put(False)

    def _live(self) -> None:
        while self._sleep():
            now = monotonic()
            for run in list(self._runs):
                if run.deadline <= now and self.end(run):
                    self._expired(run)

    def _sleep(self) -> bool:
        """Sleep until a deadline or an alarm; False when it is time to end."""
        self._wake_at = inf
        next_ = self._wake_at = min((run.deadline for run in list(self._runs)), default=inf)
        try:
            return self._alarm.get(timeout=None if next_ == inf else max(0.0, next_ - monotonic()))
        except Empty:
            return True
