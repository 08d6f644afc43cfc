"""Video sinks: source pictures with detections, or the model's pictures."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from pathlib import Path
from typing import Any

from pipeline.errors import InputError
from pipeline.io.sinks.annotation import OPTIONS, Annotator, make_annotator
from pipeline.io.sinks.base import Sink, SinkKind, SinkOptions
from pipeline.io.source_frame import SECOND, StreamFrame
from pipeline.io.sources.decoding import reason
from pipeline.io.sources.video import SUFFIXES
from pipeline.io.uri import Uri, has_suffix
from pipeline.picture.pixels import Pixels, library
from pipeline.system.files import scratch_folder

TICK = Fraction(1, 60_000)
"""Tick of time stamps in seconds: whole numbers of it for usual rates, and no finer than MPEG-4 allows."""

CODECS = ("libx264", "libopenh264", "mpeg4")
"""Codecs by preference, where none is named."""


class Video(Sink):
    """Writes a video file with the pictures' own times.

    Parameters
    ----------
    path : Path
        File whose suffix says the kind.
    codec : str, optional
        FFmpeg's name of the encoder; ``"ffv1"`` loses nothing.
    annotator : Annotator, optional
        Draws results; by default those of the model's decoder.

    Raises
    ------
    InputError
        If there is no such codec or kind of file.
    """

    def __init__(self, path: Path, codec: str | None = None, annotator: Annotator | None = None) -> None:
        av = library()
        self._path, self._annotator = path, annotator or Annotator()
        # Builds of FFmpeg differ: x264 is missing where its licence does not fit; mpeg4 is FFmpeg's own.
        self._codec = codec or next(codec_name for codec_name in CODECS if codec_name in av.codecs_available)
        self._stream: Any = None
        # A file without a picture is no video: finishing it is an error, or removes it.
        self._empty = True
        self._first = self._last = 0
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(scratch_folder(path)) / "new"
            folder.mkdir()
            # FFmpeg goes by the name's end, so the temporary file keeps it.
            self._temporary = folder / path.name
            with self._plain():
                self._encoder = av.Codec(self._codec, "w")
                self._container = stack.enter_context(av.open(str(self._temporary), "w"))
            self._stack = stack.pop_all()

    def add(self, result: StreamFrame) -> None:
        """Encode one picture."""
        pixels, array = self._annotator.picture(result)
        with self._plain():
            if self._stream is None:
                # With the first picture, since the size is not known before.
                self._begin(pixels, result.frame.stamp, drawn=result.result is not None)
            # One conversion from the camera's format to the codec's, without RGB in between.
            # Photos differ in size, which a video cannot.
            context = self._stream.codec_context
            frame = pixels.wrap(array).reformat(context.width, context.height, context.pix_fmt)
            frame.pts, frame.time_base = self._pts(result.frame.stamp), TICK
            self._container.mux(self._stream.encode(frame))
        self._empty = False

    def finish(self) -> None:
        """Complete the file."""
        with self._stack, self._plain():
            if self._empty:
                raise InputError(f"no picture for {str(self._path)!r}: no frame was delivered")
            try:
                # The encoder may still hold pictures, whose order it changes.
                self._container.mux(self._stream.encode())
                self._container.close()
            finally:
                # Most kinds of files play without their end, which a full disk may lack.
                self._temporary.replace(self._path)

    def finish_early(self) -> None:
        """Complete the file, or remove it without pictures."""
        if not self._empty:
            self.finish()
            return
        # Closing a file without pictures is an error to FFmpeg.
        with contextlib.suppress(library().FFmpegError):
            self._stack.close()

    def _begin(self, pixels: Pixels, stamp: int, *, drawn: bool) -> None:
        self._first, self._last = stamp, -1
        pixel_format = self._format(pixels)
        # Photos may have any size, and half a chroma sample has no place; what is not drawn on stays exact, or fails.
        odd = int(drawn and pixel_format.startswith(("yuv420", "yuv422", "yuvj42", "nv12")))
        width, height = pixels.width - (pixels.width & odd), pixels.height - (pixels.height & odd)
        self._stream = self._container.add_stream(self._codec, width=max(width, 2), height=max(height, 2))
        self._stream.codec_context.time_base = TICK
        self._stream.pix_fmt = pixel_format

    def _format(self, pixels: Pixels) -> str:
        """Return the codec's least lossy format."""
        formats = [str(pixel_format.name) for pixel_format in self._encoder.video_formats or ()]
        # The same content in another arrangement of bytes.
        alike = {"rgb24": "bgr0", "bgr24": "bgr0", "rgba": "bgra", "yuyv422": "yuv422p", "nv12": "yuv420p"}
        preferences: tuple[str | None, ...] = (pixels.format, alike.get(pixels.format), "yuv420p", *formats)
        return next((preference for preference in preferences if preference in formats), "yuv420p")

    def _pts(self, stamp: int) -> int:
        """Return a time after the last picture's, as files require."""
        # Clocks of cameras stand still or step back; containers refuse such a time.
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


def _open(uri: Uri, sink_options: SinkOptions) -> Video:
    options = uri.check_options("codec", *OPTIONS)
    return Video(uri.path, options.get("codec"), make_annotator(options, sink_options))


KINDS = (SinkKind("video", _open, f"a video file ({' '.join(SUFFIXES)})", has_suffix(*SUFFIXES)),)
