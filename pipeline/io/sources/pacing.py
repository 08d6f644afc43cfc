"""Pacing: plays a recording at a camera's pace."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

from pipeline.io.source_frame import SourceFrame
from pipeline.io.sources.base import FrameSource


class PacedSource(FrameSource):
    """Frames of a recording, due at its pace.

    Parameters
    ----------
    source : FrameSource
        Closed with this one.
    fps : float, optional
        Frames per second.
    speed : float, optional
        Instead of `fps`: the frames' own pace times this.
    """

    def __init__(self, source: FrameSource, fps: float | None = None, speed: float | None = None) -> None:
        self._source, self._fps, self._speed = source, fps, speed
        self.live, self.owns_memory, self.pixels = source.live, source.owns_memory, source.pixels

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield due frames; a late reader sees its delay."""
        begin, first = time.time(), None
        for number, frame in enumerate(self._source):
            # Recordings begin at any time; the first frame is due at once.
            first = frame.timestamp if first is None else first
            since = (frame.timestamp - first) / self._speed if self._speed else number / (self._fps or 1.0)
            # From the beginning and not from the frame before, so that delays do not add up.
            due = begin + since
            time.sleep(max(0.0, due - time.time()))
            yield dataclasses.replace(frame, ready=due)

    def close(self) -> None:
        """Close the recording."""
        self._source.close()
