"""Sources by their text, such as ``camera:/dev/video0`` or ``drive.mp4``."""

from __future__ import annotations

import functools
import importlib
from functools import cache

from pipeline.errors import InputError, near
from pipeline.io.sources.base import FrameSource, PacedSource, SourceKind, SourceOptions
from pipeline.io.sources.reconnect import ReconnectingSource
from pipeline.io.uri import Uri, check_allowed, parse_uri

MODULES = (
    "pipeline.io.sources.camera",
    "pipeline.io.sources.audio",
    "pipeline.io.sources.command",
    "pipeline.io.sources.gstreamer",
    "pipeline.io.sources.video",
    # By its name, as all are: it is in a room above this one, since it has messages to read.
    "pipeline.ros.bag_source",
    "pipeline.ros.topic_source",
    "pipeline.io.sources.pattern",
    "pipeline.io.sources.watch",
    # Last: any folder is one of files, also that of a bag.
    "pipeline.io.sources.files",
)
"""Modules with `KINDS`, a sequence of `SourceKind`. The first that recognises a path opens it."""


@cache
def load_kinds() -> tuple[SourceKind, ...]:
    """Return all kinds of sources."""
    return tuple(kind for name in MODULES for kind in importlib.import_module(name).KINDS)


def open_source(text: str, options: SourceOptions) -> FrameSource:
    """Open the source of a text.

    A text is ``camera:DEVICE?size=640x480&encoding=mjpeg``, a network address, ``bag:PATH?topic=TOPIC``,
    ``pattern:640x480@30``, ``audio:FILE?window=512&hop=256``, ``video:FILE?damaged=skip``, ``gst:PIPELINE``,
    ``exec:COMMAND?size=640x480``, ``ros:TOPIC?type=TYPE``, or a path. Raises `InputError` if there is no such source,
    or an option is not for it; `MissingExtra` if it needs a package that is not installed.
    """
    kind, uri = check_source(text, options)
    if kind.live:
        open_again = functools.partial(kind.open, uri, options)
        return ReconnectingSource(open_again, options.reconnect, options.notice) if options.reconnect else open_again()
    source = kind.open(uri, options)
    # What takes the pace itself, as a pattern does, must not be slowed twice.
    has_pace = not kind.takes_fps and (options.fps is not None or options.speed is not None)
    return PacedSource(source, options.fps, options.speed) if has_pace else source


def check_source(text: str, options: SourceOptions) -> tuple[SourceKind, Uri]:
    """Return what `find_source` does; raise `InputError` for what is wrong before it is opened."""
    kind, uri = find_source(text)
    if kind.is_command:
        check_allowed(text, options.allow_commands)
    if options.reconnect and not kind.live:
        raise InputError(f"{text!r} is not live, so that it cannot be lost; leave out reconnect")
    if kind.live and (options.speed is not None or (options.fps is not None and not kind.takes_fps)):
        raise InputError(f"{uri.text!r}: its pace is its own")
    if kind.options is not None:
        uri.check_options(*kind.options)
    if kind.is_file and not uri.path.exists():
        siblings = [path.name for path in uri.path.parent.iterdir()] if uri.path.parent.is_dir() else []
        raise InputError(f"no source at {text!r}: there is no such file or folder{near(uri.path.name, siblings)}")
    return kind, uri


def find_source(text: str) -> tuple[SourceKind, Uri]:
    """Return the kind of a source and its text taken apart; raise `InputError` if there is none."""
    names = {name: kind for kind in load_kinds() for name in kind.names}
    uri = parse_uri(text, names, [name for name, kind in names.items() if kind.is_command])
    kind = names.get(uri.kind) or _recognise(uri)
    # What is missing of a command, its own reader says.
    if not uri.location and not kind.is_command:
        raise InputError(f"{text!r} names nothing to read; write such as {kind.example}")
    return kind, uri


def _recognise(uri: Uri) -> SourceKind:
    kind = next((kind for kind in load_kinds() if kind.recognise(uri.path)), None)
    if kind is None:
        *examples, last = (kind.example for kind in load_kinds())
        remedy = f"supported are {', '.join(examples)}, and {last}"
        problem = "cannot read" if uri.path.exists() else "no source at"
        raise InputError(f"{problem} {uri.text!r}; {remedy}")
    return kind
