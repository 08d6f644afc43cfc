"""Feedback: results of a frame for nodes that look at the next one of its stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from pipeline.app.nodes import Track

if TYPE_CHECKING:
    from pipeline.app.app_frame import AppFrame
    from pipeline.app.application import App


class Feedback:
    """Hands results back, one for each frame: a node that asks for them waits for the frame before.

    Frames of other streams wait behind it meanwhile, for no longer than that frame takes.
    """

    def __init__(self, app: App) -> None:
        self._asked = {name: _asked_nodes(app, name) for name in app.nodes}
        self._lines: Mapping[tuple[str, str, str], SimpleQueue[Any]] = {
            (reader, node, stream): SimpleQueue()
            for reader, nodes in self._asked.items()
            for node in nodes
            for stream in app.stream_names[reader]
        }
        self._readers = {node: [reader for reader, nodes in self._asked.items() if node in nodes] for node in app.nodes}

    def put(self, node: str, frame: AppFrame) -> None:
        """Note that a node has finished with a frame."""
        for reader in self._readers.get(node, ()):
            self._lines[reader, node, frame.stream].put(frame.results.get(node))

    def take(self, reader: str, frame: AppFrame) -> None:
        """Wait for what a node asks of the frame before, and keep it in the frame."""
        if frame.index:
            for node in self._asked[reader]:
                frame.previous[node] = self._lines[reader, node, frame.stream].get()


def _asked_nodes(app: App, name: str) -> Iterable[str]:
    node = app.nodes[name]
    asked: set[str] = {node.feedback} if isinstance(node, Track) and node.feedback else set()
    condition = app.condition(name, "when")
    return sorted(asked if condition is None else asked | condition.previous)
