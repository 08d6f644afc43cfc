"""SinkStep: frames with their results into a sink."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.app.steps import Step
from pipeline.io.results import FrameResults, Result
from pipeline.io.sinks.base import Sink, SinkGroup
from pipeline.io.source_frame import StreamFrame

if TYPE_CHECKING:
    from pipeline.app.app_frame import AppFrame
    from pipeline.app.nodes import SinkNode
    from pipeline.app.permissions import Permissions


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


def sink_texts(node: SinkNode, streams: Iterable[str]) -> dict[str, str]:
    """Return the texts of a node's sinks by stream."""
    return {stream: node.to.replace("{stream}", stream) for stream in streams}


class SinkStep(Step):
    """Writes frames to one sink, or one for each stream where the text says so.

    Permissions have the folder of relative paths; a `sink` takes the place of the node's text.
    """

    def __init__(
        self, node: SinkNode, streams: Sequence[str], permissions: Permissions, sink: Sink | None = None
    ) -> None:
        self._reads = node.reads
        if sink is not None:
            self._sinks: dict[str, Sink] = dict.fromkeys(streams, sink)
            return
        texts = sink_texts(node, streams)
        opened = {text: permissions.open_sink(text) for text in dict.fromkeys(texts.values())}
        self._sinks = {stream: opened[text] for stream, text in texts.items()}

    def compute(self, frame: AppFrame) -> None:
        """Write a frame."""
        self._sinks[frame.stream].add(stream_frame(frame, self._reads))

    def close(self) -> None:
        """Complete the sinks."""
        SinkGroup(list(dict.fromkeys(self._sinks.values()))).finish()
