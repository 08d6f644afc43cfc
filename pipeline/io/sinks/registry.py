"""Sinks by their text, such as ``results.npz`` or ``out.mp4?show=label``."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.sinks.base import Sink, SinkGroup, SinkKind, SinkOptions
from pipeline.io.uri import Uri, check_allowed, parse_uri
from pipeline.picture.geometry import Geometry

MODULES = (
    "pipeline.io.sinks.arrays",
    "pipeline.io.sinks.gstreamer",
    "pipeline.io.sinks.http_stream",
    "pipeline.io.sinks.json_lines",
    "pipeline.io.sinks.photo",
    "pipeline.io.sinks.video",
    # By its name, as all are: it is in a room above this one, since it has messages to write.
    "pipeline.ros.bag_sink",
    "pipeline.ros.topic_sink",
)
"""Modules with `KINDS`, a sequence of `SinkKind`. The first that recognises a path opens it."""

STANDARD_OUTPUT = ("-", "jsonl:-")
"""Texts of the sink that writes JSON lines to standard output. Nobody else may write there then."""


@cache
def load_kinds() -> tuple[SinkKind, ...]:
    """Return all kinds of sinks."""
    return tuple(kind for name in MODULES for kind in importlib.import_module(name).KINDS)


def open_sink(text: str, outputs: Sequence[TensorSpec], geometry: Geometry | None = None, **facts: Any) -> Sink:
    """Open the sink of a text, with fields of `SinkOptions`.

    A text is ``FILE.npz``, a folder, ``FILE.jsonl`` (``-`` is standard output), ``FILE.jpg``, ``photo:FOLDER``,
    ``bag:PATH?storage=sqlite3``, ``mjpeg:8080``, ``gst:PIPELINE``, ``ros:TOPIC``, or
    ``FILE.mp4?show=label&labels=FILE&encoder=ffv1``. Raises `InputError` if there is no place for it, or an option is
    not for it.
    """
    kind, uri = check_sink(text, allow_commands=facts.get("allow_commands", False))
    return kind.open(uri, SinkOptions(outputs, geometry, **facts))


def check_sink(text: str, *, allow_commands: bool, has_folder: bool = True) -> tuple[SinkKind, Uri]:
    """Return the kind of a sink and its parsed text.

    Raises `InputError` for what is wrong before it is opened. `has_folder`: False where whoever opens it makes the
    folder.
    """
    names = {kind.name: kind for kind in load_kinds()}
    # Else a single dash would be a folder.
    full_text = "jsonl:-" if text in STANDARD_OUTPUT else text
    uri = parse_uri(full_text, names, [name for name, kind in names.items() if kind.is_command])
    kind = names.get(uri.kind)
    if kind and kind.is_command:
        check_allowed(text, allow_commands)
    # Before the first frame, which may come after minutes of waiting for a camera.
    is_file = (kind is None or kind.is_file) and uri.location != "-"
    if has_folder and is_file and not uri.path.absolute().parent.is_dir():
        raise InputError(f"cannot write {text!r}: there is no folder {str(uri.path.parent)!r}")
    kind = kind or _recognise(uri)
    # What is missing of a command, its own reader says.
    if not uri.location and not kind.is_command:
        raise InputError(f"{text!r} names nothing to write; write such as {kind.example}")
    if kind.options is not None:
        uri.check_options(*kind.options)
    kind.check(uri)
    return kind, uri


@contextlib.contextmanager
def open_sinks(
    texts: Sequence[str], outputs: Sequence[TensorSpec], geometry: Geometry | None = None, **facts: Any
) -> Iterator[Sink]:
    """Open a sink per text as `open_sink` does, completing all in any case."""
    sinks: list[Sink] = []
    try:
        sinks += (open_sink(text, outputs, geometry, **facts) for text in texts)
    except BaseException:
        # Those that are open already hold nothing, and remove what they have begun.
        SinkGroup(sinks).finish_early()
        raise
    with SinkGroup(sinks) as group:
        yield group


def _recognise(uri: Uri) -> SinkKind:
    kind = next((kind for kind in load_kinds() if kind.recognise(uri.path)), None)
    if kind is None:
        *examples, last = (kind.example for kind in load_kinds())
        raise InputError(f"cannot write {uri.text!r}; give {', '.join(examples)}, or {last}")
    return kind
