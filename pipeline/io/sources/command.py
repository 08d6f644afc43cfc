"""Pictures that a command writes, as ``exec:rpicam-vid -t 0 --codec yuv420 -o -?size=640x480`` does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from pipeline.errors import InputError, SourceLost
from pipeline.io.child_process import ChildProcess
from pipeline.io.source_frame import SECOND, SourceFrame
from pipeline.io.sources.base import FrameSource, SourceKind, SourceOptions
from pipeline.io.sources.camera import SILENCE
from pipeline.io.sources.decoding import PictureDecoder, open_container, reason
from pipeline.io.uri import Uri, parse_size
from pipeline.picture.pixels import FORMATS, Pixels, choose_pixels, cuts_colours, library

# And no `nobuffer`, which throws away what was looked at: the first key frame.
_AT_ONCE = {"flags": "low_delay", "analyzeduration": "1", "formatprobesize": "32768"}
"""Keeps FFmpeg from looking at seconds of pictures before it hands out the first one."""


class CommandOutput(FrameSource):
    """Live pictures from a command's standard output, stamped on arrival.

    Raw pictures have a size, such as ``"640x480"``, and one of `FORMATS`, I420 by default. Without a size pictures are
    decoded by FFmpeg; the encoding is its name, such as ``"mjpeg"`` or ``"h264"``, by default what it looks like.
    Raises `InputError` if the command cannot be run, or ends or is silent before its first picture.
    """

    live = True
    owns_memory = True
    pixels: Pixels

    def __init__(self, command: str, size: str | None = None, encoding: str | None = None) -> None:
        if encoding and (encoding in FORMATS) != (size is not None):
            raise InputError(
                f"format is {encoding!r}; pictures of a size= are raw ({', '.join(FORMATS)}), those without it encoded "
                "(mjpeg, h264 and others)"
            )
        if size:
            self.pixels = Pixels(encoding or "yuv420p", *parse_size(size))
            if cuts_colours(self.pixels.format, *parse_size(size)):
                raise InputError(
                    f"size is {size}; {self.pixels.format} needs an even width and a height divisible by 4"
                )
        self._container: Any = None
        self._count = 0
        self._child = ChildProcess(command, SILENCE)
        try:
            self._frames = self._raw() if size else self._decoded(encoding)
            self._first = self._next()
        except InputError as error:
            # How the command ended says more than what was missing then.
            reason = self._child.describe_failure() or str(error)
            self.close()
            raise InputError(reason) from None
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the pictures until the command ends."""
        yield self._first
        try:
            yield from self._frames
        except InputError as error:
            raise SourceLost(f"{self._child.describe_failure() or error}, after {self._count} frames") from None
        # A command that was told how long to run ends well.
        if failure := self._child.describe_failure():
            raise SourceLost(f"{failure}, after {self._count} frames")

    def close(self) -> None:
        """End the command."""
        self._child.close()
        if self._container is not None:
            self._container.close()

    def _next(self) -> SourceFrame:
        for frame in self._frames:
            return frame
        raise InputError(f"{self._child.name} has ended without a picture")

    def _raw(self) -> Iterator[SourceFrame]:
        size = int(np.prod(self.pixels.shape))
        while data := self._child.read_exactly(size):
            if len(data) < size:
                raise InputError(
                    f"{self._child.name}: its last picture has {len(data)} bytes of {size}; check the size"
                )
            yield self._frame(np.frombuffer(data, np.uint8).reshape(self.pixels.shape))

    def _decoded(self, encoding: str | None) -> Iterator[SourceFrame]:
        self._container = open_container(self._child, self._child.name, format=encoding, options=_AT_ONCE)
        try:
            for picture in PictureDecoder(self._container, lambda _: None, live=True):
                if not self._count:
                    self.pixels = choose_pixels(picture)
                yield self._frame(self.pixels.array(picture))
        except library().FFmpegError as error:
            raise InputError(f"{self._child.name}: {reason(error)}") from None

    def _frame(self, array: np.ndarray) -> SourceFrame:
        # Streams on a pipe have no clock: their own times, if any, count pictures.
        moment = time.time()
        self._count += 1
        return SourceFrame(f"{self._count - 1:06d}", array, round(moment * SECOND), moment, self.pixels)


def _open(uri: Uri, _: SourceOptions) -> CommandOutput:
    return CommandOutput(uri.location, uri.options.get("size"), uri.options.get("format"))


KINDS = (SourceKind(("exec",), _open, "exec:COMMAND", live=True, is_command=True, options=("size", "format")),)
