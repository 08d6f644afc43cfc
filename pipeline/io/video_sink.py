"""Video files as sinks: the source's pictures with what the model found in them, or the pictures that it makes."""

from __future__ import annotations

import contextlib
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import InputError
from pipeline.io.decoding import reason
from pipeline.io.frame import SECOND, Delivered
from pipeline.io.overlay import Reading, draw
from pipeline.io.pixels import Pixels, library
from pipeline.io.sink import Sink

TICK = Fraction(1, 90_000)
"""Seconds in which times are counted: whole numbers of them for all usual rates."""

CODECS = ("libx264", "libopenh264", "mpeg4")
"""The first one that FFmpeg brings is used where none is named."""


class Video(Sink):
    """Writes a video file, each picture with its own time, from the first one's on.

    Parameters
    ----------
    path : Path
        Its suffix says the kind of file.
    codec : str, optional
        FFmpeg's name of the encoder; ``"ffv1"`` loses nothing.
    reading : callable, optional
        Says what is drawn onto the source's picture.  Without it, the model's first output is the picture, or, if
        that is none, the source's picture stays as it is.

    Raises
    ------
    InputError
        If there is no such codec or kind of file.
    """

    def __init__(self, path: Path, codec: str | None = None, reading: Reading | None = None) -> None:
        av = library()
        self._path, self._reading = path, reading
        self._codec = codec or next(each for each in CODECS if each in av.codecs_available)
        self._stream: Any = None
        self._first = self._last = 0
        with contextlib.ExitStack() as stack:
            # FFmpeg goes by the name's end, so the temporary file keeps it.
            folder = tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=f".{path.name}.")
            self._temporary = Path(stack.enter_context(folder)) / path.name
            with self._plain():
                self._encoder = av.Codec(self._codec, "w")
                self._container = stack.enter_context(av.open(str(self._temporary), "w"))
            self._stack = stack.pop_all()

    def add(self, delivered: Delivered) -> None:
        """Encode one picture."""
        pixels, array = self._picture(delivered)
        with self._plain():
            if self._stream is None:
                self._begin(pixels, delivered.frame.stamp)
            frame = pixels.wrap(array).reformat(format=self._stream.codec_context.pix_fmt)
            frame.pts, frame.time_base = self._pts(delivered.frame.stamp), TICK
            self._container.mux(self._stream.encode(frame))

    def finish(self) -> None:
        """Complete the file."""
        with self._stack, self._plain():
            if self._stream is None:
                raise InputError(f"no picture for {str(self._path)!r}: no frame was delivered")
            self._container.mux(self._stream.encode())
            self._container.close()
            self._temporary.replace(self._path)

    def abandon(self) -> None:
        """Remove what was written."""
        # Closing a file without pictures is an error to FFmpeg.
        with contextlib.suppress(library().FFmpegError):
            self._stack.close()

    def _picture(self, delivered: Delivered) -> tuple[Pixels, np.ndarray]:
        frame = delivered.frame
        if self._reading is None:
            made = as_picture(next(iter(delivered.outputs.values())))
            if made is not None:
                return Pixels("gray" if made.ndim == 2 else "rgb24", made.shape[1], made.shape[0]), made
        if frame.pixels is None or not isinstance(frame.inputs, np.ndarray):
            raise InputError(f"{frame.name}: neither the source nor the model gives a picture for {str(self._path)!r}")
        if self._reading is None:
            return frame.pixels, frame.inputs
        drawn = draw(frame.pixels.rgb(frame.inputs), self._reading(delivered))
        return Pixels("rgb24", frame.pixels.width, frame.pixels.height), drawn

    def _begin(self, pixels: Pixels, stamp: int) -> None:
        self._first, self._last = stamp, -1
        self._stream = self._container.add_stream(self._codec, width=pixels.width, height=pixels.height)
        self._stream.codec_context.time_base = TICK
        self._stream.pix_fmt = self._format(pixels)

    def _format(self, pixels: Pixels) -> str:
        """Return the codec's own format that loses least."""
        formats = [str(each.name) for each in self._encoder.video_formats or ()]
        alike = {"rgb24": "bgr0", "bgr24": "bgr0", "rgba": "bgra", "yuyv422": "yuv422p", "nv12": "yuv420p"}
        wanted: tuple[str | None, ...] = (pixels.format, alike.get(pixels.format), "yuv420p", *formats)
        return next((each for each in wanted if each in formats), "yuv420p")

    def _pts(self, stamp: int) -> int:
        """Return a time later than the last picture's, which all files ask for."""
        self._last = max(round(Fraction(stamp - self._first, SECOND) / TICK), self._last + 1)
        return self._last

    @contextlib.contextmanager
    def _plain(self) -> Any:
        try:
            yield
        except (library().FFmpegError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"cannot write {str(self._path)!r} with the codec {self._codec!r}: {reason(error)}"
            ) from None


def as_picture(array: Any) -> np.ndarray | None:
    """Return a model's output as a picture, uint8 [height, width] or [height, width, 3]; None if it is none.

    Parameters
    ----------
    array : array
        One picture, channels first or last: bytes, or floats from 0 to 1.
    """
    found: Any = np.asarray(array)
    found = found[0] if found.ndim == 4 and len(found) == 1 else found
    if found.ndim == 3 and found.shape[0] in (1, 3) and found.shape[2] not in (1, 3):
        found = found.transpose(1, 2, 0)
    if found.ndim != 3 or found.shape[2] not in (1, 3) or min(found.shape[:2]) < 8:
        return None
    if found.dtype.kind == "f":
        found = (found.clip(0, 1) * 255).round().astype(np.uint8)
    return np.ascontiguousarray(found[..., 0] if found.shape[2] == 1 else found) if found.dtype == np.uint8 else None
