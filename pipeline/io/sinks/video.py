"""Video sinks: source pictures with detections, or the model's pictures."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import InputError
from pipeline.io.sinks import encoders
from pipeline.io.sinks.annotation import OPTIONS, Annotator, check_annotator, make_annotator
from pipeline.io.sinks.base import Sink, SinkKind, SinkOptions
from pipeline.io.sinks.encoders import Encoding
from pipeline.io.source_frame import SECOND, StreamFrame
from pipeline.io.sources.decoding import reason
from pipeline.io.sources.video import SUFFIXES
from pipeline.io.uri import Uri, has_suffix
from pipeline.picture.pixels import Pixels, library
from pipeline.scheduler.channel import Channel
from pipeline.scheduler.interrupts import uninterrupted
from pipeline.system.files import scratch_folder

TICK = Fraction(1, 60_000)
"""Tick of time stamps in seconds: whole numbers of it for usual rates, and no finer than MPEG-4 allows."""

QUEUE = 4
"""Pictures that wait for the encoder, whose time differs from picture to picture."""


class Video(Sink):
    """Writes a video file with the pictures' own times, encoded in a thread of its own.

    The suffix says the kind of file, and ``Encoding("ffv1")`` loses nothing. By default results are those of the
    model's decoder. `notice` is called with a line if another encoder than the one that was asked for does the work.
    Raises `InputError` if there is no such encoder or kind of file.
    """

    def __init__(
        self,
        path: Path,
        encoding: Encoding | None = None,
        annotator: Annotator | None = None,
        notice: Callable[[str], object] = lambda _: None,
    ) -> None:
        av = library()
        self._path, self._annotator, self._encoding = path, annotator or Annotator(), encoding or Encoding()
        self._codec = self._encoding.encoder
        with self._plain():
            self._codec = encoders.choose_encoder(self._encoding, notice)
        self._stream: Any = None
        # A file without a picture is no video: finishing it is an error, or removes it.
        self._empty = True
        self._first = self._last = 0
        self._line = Channel[tuple[Pixels, np.ndarray, int, bool]](QUEUE)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._encode_all, name="encoder", daemon=True)
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(scratch_folder(path)) / "new"
            folder.mkdir()
            # FFmpeg goes by the name's end, so the temporary file keeps it.
            self._temporary = folder / path.name
            with self._plain():
                self._container = stack.enter_context(av.open(str(self._temporary), "w"))
            self._stack = stack.pop_all()

    def add(self, result: StreamFrame) -> None:
        """Draw one picture and hand it to the encoder; raise the error of an earlier one."""
        picture = *self._annotator.picture(result), result.frame.stamp, result.result is not None
        if self._thread.ident is None:
            uninterrupted(self._thread.start)()
        self._line.put(picture)
        self._raise_error()

    def finish(self) -> None:
        """Encode what waits, and complete the file."""
        with self._stack, self._plain():
            self._join()
            if self._empty:
                self._raise_error()
                raise InputError(f"no picture for {str(self._path)!r}: no frame was delivered")
            try:
                # The encoder may still hold pictures, whose order it changes.
                self._container.mux(self._stream.encode())
                self._container.close()
            finally:
                # Most kinds of files play without their end, which a full disk may lack.
                self._temporary.replace(self._path)
            self._raise_error()

    def finish_early(self) -> None:
        """Complete the file, or remove it without pictures."""
        self._join()
        if not self._empty:
            self.finish()
            return
        # Closing a file without pictures is an error to FFmpeg.
        with contextlib.suppress(library().FFmpegError):
            self._stack.close()

    def _join(self) -> None:
        self._line.close()
        if self._thread.ident is not None:
            # An interrupt waits for the few pictures: the file must not be closed below an encoder at work.
            uninterrupted(self._thread.join)()

    def _raise_error(self) -> None:
        """Raise the encoder's error once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _encode_all(self) -> None:
        try:
            while (picture := self._line.get()) is not None:
                with self._plain():
                    self._encode(*picture)
                self._empty = False
        except BaseException as error:  # noqa: BLE001 - whatever it is, whoever adds or finishes raises it
            self._error = error
            # Nobody waits for a place any more.
            self._line.close()

    def _encode(self, pixels: Pixels, array: np.ndarray, stamp: int, drawn: bool) -> None:
        if self._stream is None:
            # With the first picture, since the size is not known before.
            self._begin(pixels, stamp, drawn=drawn)
        # One conversion from the camera's format to the encoder's, without RGB in between, or none.
        # Photos differ in size, which a video cannot.
        context = self._stream.codec_context
        frame = pixels.wrap(array).reformat(context.width, context.height, context.pix_fmt)
        frame.pts, frame.time_base = self._pts(stamp), TICK
        self._container.mux(self._stream.encode(frame))

    def _begin(self, pixels: Pixels, stamp: int, *, drawn: bool) -> None:
        self._first, self._last = stamp, -1
        pixel_format = encoders.choose_format(self._codec, pixels)
        # Photos may have any size, and half a chroma sample has no place; what is not drawn on stays exact, or fails.
        odd = int(drawn and pixel_format.startswith(("yuv420", "yuv422", "yuvj42", "nv12")))
        width, height = pixels.width - (pixels.width & odd), pixels.height - (pixels.height & odd)
        self._stream = self._container.add_stream(self._codec, width=max(width, 2), height=max(height, 2))
        context = self._stream.codec_context
        context.time_base, context.pix_fmt = TICK, pixel_format
        if pixel_format == pixels.format:
            # Players guess the colours of a file that does not say them.
            context.colorspace, context.color_range = pixels.colorspace, pixels.color_range
        self._encoding.configure(context, self._codec)

    def _pts(self, stamp: int) -> int:
        """Return a time after the last picture's, as files require."""
        # Clocks of cameras stand still or step back; containers refuse such a time.
        self._last = max(round(Fraction(stamp - self._first, SECOND) / TICK), self._last + 1)
        return self._last

    @contextlib.contextmanager
    def _plain(self) -> Iterator[None]:
        try:
            yield
        except (library().FFmpegError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"cannot write {str(self._path)!r} with the codec {self._codec!r}: {reason(error)}"
            ) from None


def _open(uri: Uri, sink_options: SinkOptions) -> Video:
    annotator = make_annotator(uri.options, sink_options)
    return Video(uri.path, encoders.parse_encoding(uri.options), annotator, sink_options.notice)


def _check(uri: Uri) -> None:
    check_annotator(uri)
    encoders.choose_encoder(encoders.parse_encoding(uri.options), lambda _: None)


EXAMPLE = f"a video file ({' '.join(SUFFIXES)})"
KINDS = (SinkKind("video", _open, EXAMPLE, has_suffix(*SUFFIXES), options=(*encoders.OPTIONS, *OPTIONS), check=_check),)
