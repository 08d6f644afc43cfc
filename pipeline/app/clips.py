"""Clips: recordings of the seconds around an event."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pipeline.app.nodes import Clip
    from pipeline.io.sinks.base import Sink
    from pipeline.io.source_frame import StreamFrame

LARGEST = 512 << 20
"""Bytes of pictures that are kept of a stream, at most: 5 s of 1080p at 30 frames/s as YUV 4:2:0 take 467 MB."""


class ClipRecorder:
    """Keeps the last seconds of a stream, and writes them and those after an event.

    An event during a clip prolongs it.
    """

    def __init__(self, clip: Clip, open_sink: Callable[[str], Sink]) -> None:
        self._clip, self._open_sink = clip, open_sink
        self._ring: deque[StreamFrame] = deque()
        self._bytes = 0
        self._sink: Sink | None = None
        self._end_s = 0.0

    def add(self, frame: StreamFrame, text: str = "") -> None:
        """Take a frame; with a text, of the sink, an event that begins or prolongs a clip."""
        if text:
            self._end_s = frame.timestamp + self._clip.after
            if self._sink is None:
                self._sink = self._open_sink(text)
                for earlier in self._ring:
                    self._sink.add(earlier)
                self._ring.clear()
                self._bytes = 0
        if self._sink is None:
            self._keep(frame)
            return
        self._sink.add(frame)
        if frame.timestamp >= self._end_s:
            self.close()

    @property
    def is_open(self) -> bool:
        """True while a clip is written."""
        return self._sink is not None

    def close(self) -> None:
        """Complete the clip that is written."""
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.finish()

    def _keep(self, frame: StreamFrame) -> None:
        self._ring.append(frame)
        self._bytes += _size(frame)
        oldest = frame.timestamp - self._clip.before
        while self._ring and (self._ring[0].timestamp < oldest or self._bytes > LARGEST):
            self._bytes -= _size(self._ring.popleft())


def _size(frame: StreamFrame) -> int:
    inputs = frame.frame.inputs
    return inputs.nbytes if isinstance(inputs, np.ndarray) else 0
