"""Cameras and network streams as live sources."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from pipeline.errors import SourceLost
from pipeline.io.source_frame import SECOND, SourceFrame
from pipeline.io.sources.base import FrameSource, SourceKind, SourceOptions
from pipeline.io.sources.decoding import PictureDecoder, open_container, reason
from pipeline.io.uri import Uri
from pipeline.picture.pixels import Pixels, choose_pixels, library

# Drivers deliver within a second or so; streams count from zero or a random number, far from the present.
NEAR = 10.0
"""Largest distance in seconds of a stamp by this machine's clock."""

# Ten seconds at 30 pictures per second, in which quartz clocks drift apart by less than a millisecond.
WINDOW = 300
"""Newest stamps compared, so that clocks may drift apart."""


class CaptureClock:
    """Turns a stream's own stamps into times of `time.time`.

    Drivers of cameras stamp pictures by this machine's clock, and these stamps stay.  Senders of streams begin
    anywhere: of the newest pictures, the one that came quickest is taken to have come at once, so that what others
    needed longer counts as their delay.
    """

    def __init__(self, read_clock: Callable[[], float] = time.time) -> None:
        self._read_clock = read_clock
        self._offsets: deque[float] = deque(maxlen=WINDOW)
        self._last = 0.0

    def capture_time(self, stamp: float | None) -> float:
        """Return the capture time of the picture just arrived, in seconds."""
        read_clock = self._read_clock()
        # Some formats carry no time at all.
        if stamp is None:
            return read_clock
        if read_clock - NEAR < stamp <= read_clock:
            return stamp
        if stamp < self._last:  # the sender has begun anew
            self._offsets.clear()
        self._last = stamp
        self._offsets.append(read_clock - stamp)
        # The smallest difference is that of the picture with the least delay.
        return stamp + min(self._offsets)


# Of opening, and of each picture; FFmpeg itself would wait for ever.
SILENCE = 5.0
"""Seconds without a picture until a stream counts as lost."""

LATE = {"fflags": "nobuffer", "flags": "low_delay"}
"""Keeps FFmpeg from collecting pictures before it hands out the first one."""


class Capture(FrameSource):
    """Live pictures from a camera or network stream.

    FFmpeg opens the `target`, a device or address, as the input `kind`, such as ``"v4l2"``, with its own `options`.
    Messages and frames have the `name`. Raises `InputError` if it cannot be opened.
    """

    live = True
    owns_memory = True
    pixels: Pixels

    def __init__(
        self, target: str, name: str, kind: str | None = None, options: Mapping[str, str] | None = None
    ) -> None:
        self._name, self._clock, self._count = name, CaptureClock(), 0
        # Those of the caller last, so that they win.
        all_options = {**LATE, **(options or {})}
        self._container = open_container(target, name, format=kind, options=all_options, timeout=SILENCE)
        try:
            # What the network has lost or spoilt is gone: the next picture counts.
            self._pictures = iter(PictureDecoder(self._container, lambda _: None, live=True))
            # Only the first picture says size and format: what the driver promised may be otherwise.
            first = self._next()
            self.pixels = choose_pixels(first)
        except BaseException:
            self.close()
            raise
        self._first = self._frame(first)

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the pictures, without end."""
        return chain([self._first], self._later_frames())

    def close(self) -> None:
        """Close the device or connection."""
        self._container.close()

    def _later_frames(self) -> Iterator[SourceFrame]:
        while True:
            yield self._frame(self._next())

    def _next(self) -> Any:
        try:
            return next(self._pictures)
        except StopIteration:
            raise SourceLost(f"{self._name} has ended after {self._count} frames") from None
        except (library().FFmpegError, OSError) as error:
            raise SourceLost(f"{self._name} is lost after {self._count} frames: {reason(error)}") from None

    def _frame(self, picture: Any) -> SourceFrame:
        moment = self._clock.capture_time(picture.time)
        self._count += 1
        stamp = round(moment * SECOND)
        return SourceFrame(f"{self._count - 1:06d}", self.pixels.array(picture), stamp, moment, self.pixels)


def open_camera(device: str, size: str | None = None, fps: float | None = None, encoding: str | None = None) -> Capture:
    """Open a camera of Video4Linux, such as ``"/dev/video0"``, by default with its present setting.

    A size is such as ``"640x480"``. Encodings have FFmpeg's names: ``"yuyv422"``, ``"mjpeg"``, ``"nv12"``. Raises
    `InputError` if it is not there, or refuses what is asked.
    """
    settings = {"video_size": size, "framerate": fps and f"{fps:g}", "input_format": encoding}
    options = {name: value for name, value in settings.items() if value}
    # Stamps by the clock of `time.time`, whatever the driver's is.
    return Capture(device, f"camera {device}", "v4l2", {"timestamps": "abs", **options})


def open_stream(url: str, options: Mapping[str, str] | None = None) -> Capture:
    """Open a network stream, such as ``rtsp://camera/path``.

    Raises `InputError` if nobody answers, or it has no pictures.

    `options`: FFmpeg's options for it; RTSP runs over TCP by default, which passes firewalls and loses nothing.
    """
    defaults = {"rtsp_transport": "tcp"} if url.startswith("rtsp") else {}
    return Capture(url, url, options={**defaults, **(options or {})})


def _open_camera(uri: Uri, options: SourceOptions) -> Capture:
    return open_camera(uri.location, fps=options.fps, **uri.options)


def _open_stream(uri: Uri, _: SourceOptions) -> Capture:
    # What looks like options is part of the address.
    return open_stream(uri.text)


OPTIONS = ("size", "encoding")
# Network protocols of FFmpeg.
PROTOCOLS = ("http", "https", "rtmp", "rtsp", "rtsps", "srt", "udp")
KINDS = (
    SourceKind(("camera",), _open_camera, "camera:/dev/video0", live=True, takes_fps=True, options=OPTIONS),
    SourceKind(PROTOCOLS, _open_stream, "rtsp://...", live=True, options=None),
)
