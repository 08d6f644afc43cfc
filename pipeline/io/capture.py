"""Cameras and network streams as sources: what is live."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from pipeline.errors import SourceLost
from pipeline.io.clock import Clock
from pipeline.io.decoding import Decoding, opened, reason
from pipeline.io.frame import SECOND, Frame
from pipeline.io.pixels import Pixels, library, of
from pipeline.io.source import Source

SILENCE = 5.0
"""Seconds without a picture after which a stream counts as lost."""

LATE = {"fflags": "nobuffer", "flags": "low_delay"}
"""Keeps FFmpeg from collecting pictures before it hands out the first one."""


class Capture(Source):
    """Pictures from a camera or a network stream, as they come.

    Parameters
    ----------
    what : str
        Device or address, as FFmpeg calls it.
    name : str
        What messages and frames call it.
    kind : str, optional
        FFmpeg's name of the input, such as ``"v4l2"``.
    options : mapping of str to str, optional
        FFmpeg's options for it.

    Raises
    ------
    InputError
        If it cannot be opened.
    """

    live = True
    fresh = True
    pixels: Pixels

    def __init__(self, what: str, name: str, kind: str | None = None, options: Mapping[str, str] | None = None) -> None:
        self._name, self._clock, self._count = name, Clock(), 0
        self._container = opened(what, name, format=kind, options={**LATE, **(options or {})}, timeout=SILENCE)
        try:
            # What the network has lost or spoilt is gone: the next picture counts.
            self._pictures = iter(Decoding(self._container, lambda _: None, live=True))
            first = self._next()
            self.pixels = of(first)
        except BaseException:
            self.close()
            raise
        self._first = self._frame(first)

    def __iter__(self) -> Iterator[Frame]:
        """Yield the pictures, without end."""
        return chain([self._first], self._rest())

    def close(self) -> None:
        """Close the device or connection."""
        self._container.close()

    def _rest(self) -> Iterator[Frame]:
        while True:
            yield self._frame(self._next())

    def _next(self) -> Any:
        try:
            return next(self._pictures)
        except StopIteration:
            raise SourceLost(f"{self._name} has ended after {self._count} frames") from None
        except (library().FFmpegError, OSError) as error:
            raise SourceLost(f"{self._name} is lost after {self._count} frames: {reason(error)}") from None

    def _frame(self, picture: Any) -> Frame:
        captured = self._clock.captured(picture.time)
        self._count += 1
        stamp = round(captured * SECOND)
        return Frame(f"{self._count - 1:06d}", self.pixels.array(picture), stamp, captured, self.pixels)


def camera(device: str, size: str | None = None, fps: float | None = None, encoding: str | None = None) -> Capture:
    """Open a camera of Video4Linux.

    Parameters
    ----------
    device : str
        Such as ``"/dev/video0"``.
    size : str, optional
        Such as ``"640x480"``; by default what the camera is set to, as for the others.
    fps : float, optional
        Pictures per second.
    encoding : str, optional
        What the camera sends, by FFmpeg's name: ``"yuyv422"``, ``"mjpeg"``, ``"nv12"``.

    Raises
    ------
    InputError
        If it is not there, or refuses what is asked.
    """
    wanted = {"video_size": size, "framerate": fps and f"{fps:g}", "input_format": encoding}
    options = {name: value for name, value in wanted.items() if value}
    # Stamps by the clock of `time.time`, whatever the driver's is.
    return Capture(device, f"camera {device}", "v4l2", {"timestamps": "abs", **options})


def stream(url: str, options: Mapping[str, str] | None = None) -> Capture:
    """Open a network stream, such as ``rtsp://camera/path``.

    Parameters
    ----------
    url : str
    options : mapping of str to str, optional
        FFmpeg's options for it; RTSP runs over TCP by default, which passes firewalls and loses nothing.

    Raises
    ------
    InputError
        If nobody answers, or it has no pictures.
    """
    own = {"rtsp_transport": "tcp"} if url.startswith("rtsp") else {}
    return Capture(url, url, options={**own, **(options or {})})
