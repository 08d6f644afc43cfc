"""Results as lines for people, one per frame, printed at once."""

from __future__ import annotations

from pipeline.io.sinks.base import Sink
from pipeline.io.source_frame import StreamFrame


class SummaryLines(Sink):
    """Prints name and result of each frame, where `soc-pipeline run` has no sink."""

    def add(self, result: StreamFrame) -> None:
        """Print one line."""
        if result.result is not None:
            # Flushed, since a pipe may have a reader who follows a camera.
            print(f"{result.frame.name}: {result.result.summary() or 'nothing'}", flush=True)
