"""Video sinks: source pictures with detections, or the model's pictures."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import InputError
from pipeline.io.sinks.base import Sink, SinkKind, SinkOptions
from pipeline.io.sinks.overlay import BestLabel, Boxes, Reading, draw
from pipeline.io.source_frame import SECOND, FrameResult
from pipeline.io.sources.decoding import reason
from pipeline.io.sources.video import SUFFIXES
from pipeline.io.uri import Uri, has_suffix
from pipeline.picture.geometry import Geometry
from pipeline.picture.pixels import Pixels, library
from pipeline.system.files import check_regular, scratch_folder

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

    def add(self, result: FrameResult) -> None:
        """Encode one picture."""
        pixels, array = self._picture(result)
        with self._plain():
            if self._stream is None:
                # With the first picture, since the size is not known before.
                self._begin(pixels, result.frame.stamp)
            # One conversion from the camera's format to the codec's, without RGB in between.
            frame = pixels.wrap(array).reformat(format=self._stream.codec_context.pix_fmt)
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

    def _picture(self, result: FrameResult) -> tuple[Pixels, np.ndarray]:
        frame = result.frame
        if self._reading is None:
            output = as_picture(next(iter(result.outputs.values())))
            if output is not None:
                return Pixels("gray" if output.ndim == 2 else "rgb24", output.shape[1], output.shape[0]), output
        if frame.pixels is None or not isinstance(frame.inputs, np.ndarray):
            raise InputError(f"{frame.name}: neither the source nor the model gives a picture for {str(self._path)!r}")
        if self._reading is None:
            return frame.pixels, frame.inputs
        overlay = draw(frame.pixels.rgb(frame.inputs), self._reading(result))
        return Pixels("rgb24", frame.pixels.width, frame.pixels.height), overlay

    def _begin(self, pixels: Pixels, stamp: int) -> None:
        self._first, self._last = stamp, -1
        self._stream = self._container.add_stream(self._codec, width=pixels.width, height=pixels.height)
        self._stream.codec_context.time_base = TICK
        self._stream.pix_fmt = self._format(pixels)

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


def as_picture(array: Any) -> np.ndarray | None:
    """Return an output as uint8 [height, width] or [height, width, 3], else None.

    Parameters
    ----------
    array : array
        Picture, channels first or last: bytes, or floats from 0 to 1.
    """
    picture: Any = np.asarray(array)
    picture = picture[0] if picture.ndim == 4 and len(picture) == 1 else picture
    # Channels first, unless they could be last as well.
    if picture.ndim == 3 and picture.shape[0] in (1, 3) and picture.shape[2] not in (1, 3):
        picture = picture.transpose(1, 2, 0)
    # Below 8 pixels it is rather a feature map than a picture.
    if picture.ndim != 3 or picture.shape[2] not in (1, 3) or min(picture.shape[:2]) < 8:
        return None
    if picture.dtype.kind == "f":
        # Floats count from 0 to 1, as networks that make pictures give them.
        picture = (picture.clip(0, 1) * 255).round().astype(np.uint8)
    return (
        np.ascontiguousarray(picture[..., 0] if picture.shape[2] == 1 else picture)
        if picture.dtype == np.uint8
        else None
    )


def _open(uri: Uri, sink_options: SinkOptions) -> Video:
    options = uri.check_options("codec", "labels", "least", "show")
    reading = _choose_reading(options, sink_options.geometry)
    if reading is not None:
        for output in sink_options.outputs[:1]:
            reading.check(output)
    return Video(uri.path, options.get("codec"), reading)


def _choose_reading(options: Mapping[str, str], geometry: Geometry | None) -> BestLabel | Boxes | None:
    show = options.get("show")
    if show not in (None, "label", "boxes"):
        raise InputError(f"show is {show!r}; it must be 'label' or 'boxes'")
    if show is None and options.keys() & {"labels", "least"}:
        raise InputError("labels and least belong to show=label or show=boxes")
    labels = _read_labels(options.get("labels"))
    if show == "boxes":
        return Boxes(geometry, labels, _parse_score(options.get("least", "0.5")))
    return BestLabel(labels) if show else None


def _read_labels(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        check_regular(Path(path))
        # An editor may have left blank lines at the end.
        return Path(path).read_text(encoding="utf-8").rstrip().splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"no labels, one per line, in {path!r}: {error}") from None


def _parse_score(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"least is {text!r}; it must be a score") from None


KINDS = (SinkKind("video", _open, f"a video file ({' '.join(SUFFIXES)})", has_suffix(*SUFFIXES)),)
