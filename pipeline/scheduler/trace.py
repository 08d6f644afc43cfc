"""Trace: times of stages' work on frames."""

from __future__ import annotations

import sys
from collections import deque
from itertools import islice
from typing import NamedTuple

from pipeline.core import arguments


class TraceEvent(NamedTuple):
    """Time span of a frame at a stage."""

    stage: str
    """Name of the stage, or of the step."""
    frame: int
    """Sequence number of the frame."""
    kind: str
    """``"queue"`` (it waited), ``"copy"`` (it changed its memory), ``"run"``, or ``"failed"`` (the stage raised an
    error, or exceeded its limit); ``"step"``, within a run, while a step of a stage had its device."""
    start: float
    end: float
    """Seconds of `time.perf_counter`."""
    replica: int = 0
    """Number of the stage's worker, from 0."""
    device: str = ""
    """Device of a step; else empty."""


class Trace:
    """Newest events of all pipelines using it.

    Parameters
    ----------
    limit : int
        Events to keep, at least 1.  A frame makes two to four per stage, and one per step.

    Raises
    ------
    ArgumentError
        If the limit is no such number.
    """

    def __init__(self, limit: int = 100_000) -> None:
        # Plain tuples: they are made ten times as fast, and the garbage collector does not go through them again.
        self._events: deque[tuple[str, int, str, float, float, int, str]] = deque(
            maxlen=min(arguments.count("limit", limit, 1), sys.maxsize)
        )

    def __len__(self) -> int:
        return len(self._events)

    @property
    def full(self) -> bool:
        """True at capacity: older events are gone."""
        return len(self._events) == self._events.maxlen

    def add(  # noqa: PLR0913, PLR0917 - the fields of an event
        self, stage: str, frame: int, kind: str, start: float, end: float, replica: int = 0, device: str = ""
    ) -> None:
        """Note one event; safe from any thread."""
        # One call in C: workers need no lock between them, and the oldest event goes by itself.
        self._events.append((stage, frame, kind, start, end, replica, device))

    def events(self) -> tuple[TraceEvent, ...]:
        """Return the events kept, by start."""
        # Copied in one step: iterating over a deque fails when a worker adds to it.
        return tuple(sorted(map(TraceEvent._make, self._events.copy()), key=lambda event: event.start))

    def newest(self, count: int) -> list[TraceEvent]:
        """Return the newest `count` events, latest first, skipping the others."""
        while True:
            try:
                return list(map(TraceEvent._make, tuple(islice(reversed(self._events), count))))
            except RuntimeError:  # noqa: PERF203 - a worker noted another one meanwhile
                continue

    def clear(self) -> None:
        """Forget all events."""
        self._events.clear()
