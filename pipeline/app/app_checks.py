"""Checks of an application: names, reads, circles and expressions.

They take a `pipeline.app.application.App`, which imports them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pipeline.app.nodes import FOR_EACH, TRACKERS, Model, Node, SinkNode, Track, Trigger
from pipeline.errors import AppError, near

NAME = "letters, digits, - and _"

_LEAST_TIMES = dict.fromkeys(("fps", "speed", "stage_timeout"), 1e-3)
_LEAST_COUNTS = dict.fromkeys(("reconnect", "in_flight", "rest", "before", "after", "margin", "overlap"), 0)
LEAST = {**_LEAST_TIMES, **_LEAST_COUNTS, "most": 1, "tile": 1}
"""Lower bounds on the numbers of streams, nodes and clips."""


def check(app: Any) -> None:
    """Raise `AppError` for the first fault of an application."""
    if not app.streams:
        raise AppError("an application needs a stream: [stream.NAME] with its source")
    for name in (*app.streams, *app.nodes):
        if not name.replace("-", "_").isidentifier():
            raise AppError(f"the name {name!r} has to be of {NAME}, and to begin with a letter")
    for name, part in (*app.streams.items(), *app.nodes.items()):
        _check_numbers(name, part)
        _check_numbers(name, getattr(part, "clip", None))
    for name, node in app.nodes.items():
        _check_reads(app, name, node)
    if circle := [name for name in app.nodes if name not in app.order]:
        raise AppError(f"{', '.join(circle)} read each other in a circle; a node reads what comes before it")
    for name, node in app.nodes.items():
        if not app.stream_names[name]:
            raise AppError(f"{name!r} reads nodes of different streams; no frame comes to all of them")
        _check_kind(app, name, node)
        for key in ("when", "where"):
            _check_order(app, name, key)


def _check_reads(app: Any, name: str, node: Node) -> None:
    known = (*app.streams, *app.nodes)
    for read in node.reads:
        if read not in known:
            raise AppError(f"{name!r} reads {read!r}, which is no stream or node{near(read, known)}")
        if read in app.nodes and isinstance(app.nodes[read], SinkNode):
            raise AppError(f"{name!r} reads the sink {read!r}; it has nothing to be read")


def _check_numbers(name: str, part: Any) -> None:
    for key, least in LEAST.items():
        value = getattr(part, key, None)
        if value is not None and not (min(value) if key == "tile" else value) >= least:
            raise AppError(f"{name!r}: {key} is {value}; it must be at least {least:g}")


def _check_kind(app: Any, name: str, node: Node) -> None:
    match node:
        case Model():
            _check_model(app, name, node)
        case Track():
            _check_track(app, name, node)
        case Trigger() if node.on not in ("start", "frame"):
            raise AppError(f"{name!r}: on is {node.on!r}; it must be 'start' or 'frame'")
        case SinkNode() if len(app.stream_names[name]) > 1 and not _takes_streams(node.to):
            raise AppError(f"{name!r} takes several streams; put {{stream}} into {node.to!r}, or give it one stream")


def _takes_streams(text: str) -> bool:
    """Test for a sink of JSON lines, or one for each stream."""
    return "{stream}" in text or text == "-" or text.endswith((".jsonl", ".ndjson")) or text.startswith("jsonl:")


def _check_model(app: Any, name: str, node: Model) -> None:
    nodes = [read for read in app.reads(name) if read in app.nodes]
    if node.for_each not in ("", *FOR_EACH):
        raise AppError(f"{name!r}: for_each is {node.for_each!r}; it must be {' or '.join(map(repr, FOR_EACH))}")
    if node.for_each == "boxes" and len(nodes) != 1:
        raise AppError(f"{name!r} runs for each box; it has to read the one node that finds them")
    if node.for_each != "boxes" and any(not isinstance(app.nodes[read], Trigger) for read in nodes):
        raise AppError(f'{name!r} reads {nodes[0]!r}; say for_each = "boxes" to run on its boxes')
    if node.overlap >= 1:
        raise AppError(f"{name!r}: overlap is {node.overlap:g}; it must be below 1")
    if node.upright and not re.fullmatch(r"\d+-\d+", node.upright):
        raise AppError(f"{name!r}: upright is {node.upright!r}; it must be two key points, such as '0-9'")


def _check_track(app: Any, name: str, node: Track) -> None:
    if node.method not in TRACKERS:
        raise AppError(f"{name!r}: method is {node.method!r}; it must be one of {', '.join(TRACKERS)}")
    if len([read for read in app.reads(name) if read in app.nodes]) != 1:
        raise AppError(f"{name!r} has to read the one node whose boxes it follows")
    if (node.method == "regions") != bool(node.feedback):
        raise AppError(f'{name!r}: feedback names the node of landmarks for method = "regions"')
    if node.feedback and node.feedback not in app.nodes:
        raise AppError(f"{name!r}: there is no node {node.feedback!r}{near(node.feedback, tuple(app.nodes))}")


def _check_order(app: Any, name: str, key: str) -> None:
    """Raise `AppError` if a condition is wrong, or names a node whose result is not there yet."""
    condition = app.condition(name, key)
    if condition is None:
        return
    before = set(app.reads(name))
    while new := {read for node in before if node in app.nodes for read in app.reads(node)} - before:
        before |= new
    for node in sorted(condition.reads - condition.previous):
        if node not in before:
            raise AppError(
                f"{name}.{key}: it names {node!r}, which {name!r} does not read; add it to reads, or ask "
                f"previous({node})"
            )


def check_boxes(app: Any, decoders: Mapping[str, str]) -> None:
    """Raise `AppError` for a node that reads boxes where there are none.

    `decoders`: those of the models that give no boxes, by node; empty without one.
    """
    for name in app.order:
        for read in sorted(_box_reads(app, name)):
            if isinstance(app.nodes[read], Trigger):
                raise AppError(f"{name!r} reads boxes of {read!r}, which is a trigger; read the node that finds them")
            if read in decoders:
                cause = f"its decoder is {decoders[read]!r}" if decoders[read] else "its card has no decoder"
                raise AppError(
                    f"{name!r} reads boxes of {read!r}, which gives none: {cause}; name one of boxes in its card"
                )


def _box_reads(app: Any, name: str) -> set[str]:
    """Return the nodes whose boxes a node reads."""
    node = app.nodes[name]
    reads = app.reads(name) if isinstance(node, Track) or getattr(node, "for_each", "") == "boxes" else ()
    conditions = [app.condition(name, key) for key in ("when", "where")]
    return set(app.nodes).intersection(reads).union(*[condition.boxes for condition in conditions if condition])
