"""SinkStep: frames with their results into a sink."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pipeline.app.steps import Step
from pipeline.app.stream_frames import stream_frame
from pipeline.io.sinks.base import Sink, SinkGroup

if TYPE_CHECKING:
    from pipeline.app.app_frame import AppFrame
    from pipeline.app.nodes import SinkNode
    from pipeline.app.permissions import Permissions


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
