"""Frames of an application as sinks take them: one result for those of several nodes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.io.results import FrameResults, Result
from pipeline.io.source_frame import StreamFrame

if TYPE_CHECKING:
    from pipeline.app.app_frame import AppFrame


def stream_frame(frame: AppFrame, reads: Sequence[str]) -> StreamFrame:
    """Return a frame with what nodes have found on it."""
    results = {name: frame.results[name] for name in reads if name in frame.results}
    seconds = time.time() - frame.frame.ready
    return StreamFrame(frame.frame, {}, frame.index, seconds, result=combine(results), stream=frame.stream)


def combine(results: Mapping[str, Any]) -> Result | FrameResults | None:
    """Return one result of those of several nodes; None without any."""
    decoded = {name: result for name, result in results.items() if hasattr(result, "facts")}
    if len(decoded) == 1:
        return next(iter(decoded.values()))  # type: ignore[no-any-return]
    return FrameResults(decoded) if decoded else None
