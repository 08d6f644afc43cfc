"""App: an application as a value: streams, nodes that read them, and sinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pipeline.app.app_checks import check
from pipeline.app.expressions import Expression
from pipeline.app.nodes import NODE_KINDS, Node, SinkNode, Stream
from pipeline.errors import AppError

if TYPE_CHECKING:
    from pipeline.core.plan.plan import Plan

IN_FLIGHT = 2
"""Frames of a stream inside, beside those that its models' stages work on."""


@dataclass(frozen=True)
class App:
    """An application: which streams are read by which models, functions, trackers, triggers and sinks.

    Raises
    ------
    AppError
        If a name is unknown or taken twice, reads form a circle, or an expression is wrong.

    Examples
    --------
    >>> App({"door": Stream(source="door.mp4")}, {"people": Model(file="yolox.onnx")}).order
    ('people',)
    """

    streams: Mapping[str, Stream]
    nodes: Mapping[str, Node] = field(default_factory=dict)
    """By name, in any order."""
    zones: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    lines: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    """Polygons and lines that expressions name, as (x, y): shares of the picture's sides where all are at most 1, else
    pixels."""
    name: str = ""
    """Name for people."""

    def __post_init__(self) -> None:
        check(self)

    def kinds(self, kind: type[Node]) -> Iterator[tuple[str, Any]]:
        """Yield the nodes of a kind, with their names."""
        return ((name, node) for name, node in self.nodes.items() if isinstance(node, kind))

    def reads(self, name: str) -> tuple[str, ...]:
        """Return what a node reads: all streams by default."""
        return self.nodes[name].reads or tuple(self.streams)

    def describe(self, name: str) -> tuple[str, str]:
        """Return the kind of a stream or node, and what it is: a source, file, function, method or address."""
        if name in self.streams:
            return "stream", self.streams[name].source
        node = self.nodes[name]
        kind = next(kind for kind, node_type in NODE_KINDS.items() if isinstance(node, node_type))
        facts = (getattr(node, key) for key in ("file", "call", "method", "to") if hasattr(node, key))
        return kind, next((text if isinstance(text, str) else ", ".join(text) for text in facts), "")

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Nodes in an order where each comes after those that it reads."""
        done: dict[str, None] = {}
        remaining = list(self.nodes)
        while remaining:
            ready = [
                name for name in remaining if all(read in done or read in self.streams for read in self.reads(name))
            ]
            # A circle, which the checks refuse.
            if not ready:
                break
            done.update(dict.fromkeys(ready))
            remaining = [name for name in remaining if name not in done]
        return tuple(done)

    @cached_property
    def _parsed(self) -> dict[tuple[str, str], Expression]:
        return {}

    def condition(self, name: str, key: str) -> Expression | None:
        """Return a node's condition, ``"when"`` or ``"where"``; None without one, `AppError` if it is wrong."""
        text = getattr(self.nodes[name], key, "")
        if text and (name, key) not in self._parsed:
            try:
                self._parsed[name, key] = Expression.parse(
                    text, zones=self.zones, lines=self.lines, names=tuple(self.nodes), rows=key == "where"
                )
            except AppError as error:
                raise AppError(f"{name}.{key}: {error}") from None
        return self._parsed.get((name, key))

    @cached_property
    def stream_names(self) -> Mapping[str, frozenset[str]]:
        """Streams whose frames come to each node.

        A node that reads several others gets frames that all of them get; a sink those that any does.
        """
        names: dict[str, frozenset[str]] = {}
        for name in self.order:
            reads = self.reads(name)
            streams = frozenset(read for read in reads if read in self.streams)
            others = [names[read] for read in reads if read in names]
            if isinstance(self.nodes[name], SinkNode):
                names[name] = streams.union(*others)
            else:
                sets = [*others, *([streams] if streams else [])]
                names[name] = frozenset.intersection(*sets)
        return names

    def readers(self, name: str) -> tuple[str, ...]:
        """Return the nodes that read a node."""
        return tuple(reader for reader in self.order if name in self.reads(reader))

    def room(self, stream: str, plans: Mapping[str, Plan]) -> int:
        """Return how many frames of a stream may be inside, by the plans of models."""
        inside = sum(plan.frames_in_flight for name, plan in plans.items() if stream in self.stream_names[name])
        return self.streams[stream].in_flight or IN_FLIGHT + inside
