"""Pacing: plays a recording at a pace, as a camera would have delivered it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

from pipeline.io.frame import Frame
from pipeline.io.source import Source


class Paced(Source):
    """The frames of a recording, each when its turn is.

    Parameters
    ----------
    source : Source
        Closed with this one.
    fps : float, optional
        Frames per second.
    speed : float, optional
        Instead of `fps`: the frames' own pace times this.
    """

    def __init__(self, source: Source, fps: float | None = None, speed: float | None = None) -> None:
        self._source, self._fps, self._speed = source, fps, speed
        self.live, self.fresh, self.pixels = source.live, source.fresh, source.pixels

    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames; each is ready when its turn is, so that whoever takes it late sees the delay."""
        begin, first = time.time(), None
        for number, frame in enumerate(self._source):
            first = frame.timestamp if first is None else first
            since = (frame.timestamp - first) / self._speed if self._speed else number / (self._fps or 1.0)
            due = begin + since
            time.sleep(max(0.0, due - time.time()))
            yield dataclasses.replace(frame, ready=due)

    def close(self) -> None:
        """Close the recording."""
        self._source.close()
