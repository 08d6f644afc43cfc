"""Sources by their text, such as ``camera:/dev/video0`` or ``drive.mp4``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.errors import InputError
from pipeline.io.address import Address, parse
from pipeline.io.bag import Bag, is_bag
from pipeline.io.capture import camera, stream
from pipeline.io.files import ARRAYS, IMAGES, Files
from pipeline.io.pacing import Paced
from pipeline.io.pattern import pattern
from pipeline.io.prepare import Preparation
from pipeline.io.reconnect import Reconnecting
from pipeline.io.source import Source
from pipeline.io.video import SUFFIXES, VideoFile
from pipeline.plans import TensorSpec

STREAMS = ("http", "https", "rtmp", "rtsp", "rtsps", "srt", "udp")
"""Network protocols of FFmpeg."""

KINDS = ("bag", "camera", "files", "pattern", "video", *STREAMS)

SUPPORTED = (
    "camera:/dev/video0, rtsp://..., FILE.mp4 and other video files, bag:PATH, pattern:640x480@30, and files or "
    f"folders of {' '.join(ARRAYS + IMAGES)}"
)


def _silent(_: str) -> None:
    pass


@dataclass(frozen=True)
class Options:
    """How a source is opened.

    Attributes
    ----------
    specs : sequence of TensorSpec
        The model's inputs.
    preparation : Preparation
        For images, which differ in size and so are prepared as they are read.
    fps : float, optional
        Frames per second: what a camera is set to, or the pace at which a recording is played.
    speed : float, optional
        Plays a recording at its own pace times this.
    reconnect : float
        Seconds for which a camera or stream that was lost is tried again.
    notice : callable
        Told of losses.
    """

    specs: Sequence[TensorSpec] = ()
    preparation: Preparation = field(default_factory=Preparation)
    fps: float | None = None
    speed: float | None = None
    reconnect: float = 0.0
    notice: Callable[[str], None] = _silent


def source(text: str, options: Options) -> Source:
    """Open the source that `text` means.

    Parameters
    ----------
    text : str
        ``camera:DEVICE?size=640x480&encoding=mjpeg``, a network address, ``bag:PATH?topic=TOPIC``,
        ``pattern:640x480@30``, ``video:FILE?damaged=skip``, or a path.
    options : Options

    Raises
    ------
    InputError
        If there is no such source, or an option is not for it.
    MissingExtra
        If it needs a package that is not installed.
    """
    address = parse(text, KINDS)
    if address.kind == "camera" or address.kind in STREAMS:
        return _live(address, options)
    if options.reconnect:
        raise InputError(f"{text!r} is not live, so that it cannot be lost; leave out what shall be done then")
    if address.kind == "pattern":
        address.only(())
        if options.speed is not None or (options.fps is not None and "@" in address.place):
            raise InputError(f"{text!r}: a pattern has one pace, as in 'pattern:640x480@30', and no other")
        return pattern(address.place, options.fps)
    found = _recording(address, options)
    paced = options.fps is not None or options.speed is not None
    return Paced(found, options.fps, options.speed) if paced else found


def _live(address: Address, options: Options) -> Source:
    if options.speed is not None or (options.fps is not None and address.kind != "camera"):
        raise InputError(f"{address.text!r} is live: its pace is its own")
    if address.kind == "camera":
        asked = address.only(("size", "encoding"))
        opening: Callable[[], Source] = functools.partial(camera, address.place, fps=options.fps, **asked)
    else:
        # What looks like options is part of the address.
        opening = functools.partial(stream, address.text)
    return Reconnecting(opening, options.reconnect, options.notice) if options.reconnect else opening()


def _recording(address: Address, options: Options) -> Source:
    path = Path(address.place)
    if address.kind == "bag" or (not address.kind and is_bag(path)):
        return Bag(path, options.specs, address.only(("topic",)).get("topic"))
    if address.kind == "video" or (not address.kind and path.suffix.lower() in SUFFIXES):
        return VideoFile(path, **address.only(("damaged",)))
    if not address.kind and not path.exists():
        raise InputError(f"no source at {address.text!r}; supported are {SUPPORTED}")
    if path.is_file() and path.suffix.lower() not in ARRAYS + IMAGES:
        raise InputError(f"cannot read {address.text!r}; supported are {SUPPORTED}")
    return Files([path], options.specs, options.preparation)
