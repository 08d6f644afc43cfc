"""Trace: which stage worked on which frame when."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Event(NamedTuple):
    """One span of time that a frame spent at a stage.

    Attributes
    ----------
    stage : str
        Name of the stage.
    frame : int
        Sequence number of the frame.
    kind : str
        ``"queue"`` (it waited), ``"copy"`` (it changed its memory) or ``"run"``.
    start, end : float
        Seconds of `time.perf_counter`.
    """

    stage: str
    frame: int
    kind: str
    start: float
    end: float


class Trace:
    """The newest events of the pipelines that it is given to.

    Parameters
    ----------
    limit : int
        How many events are kept.  A frame makes two to four per stage.
    """

    def __init__(self, limit: int = 100_000) -> None:
        self._events: deque[Event] = deque(maxlen=limit)

    def __len__(self) -> int:
        return len(self._events)

    def add(self, stage: str, frame: int, kind: str, start: float, end: float) -> None:
        """Note one event; safe from any thread."""
        self._events.append(Event(stage, frame, kind, start, end))

    def events(self) -> tuple[Event, ...]:
        """Return the events kept, by start."""
        return tuple(sorted(self._events.copy(), key=lambda event: event.start))

    def clear(self) -> None:
        """Forget all events."""
        self._events.clear()
