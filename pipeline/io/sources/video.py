"""Video files as sources."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from pipeline.errors import InputError
from pipeline.io.source_frame import SECOND, SourceFrame
from pipeline.io.sources.base import FrameSource, SourceKind, SourceOptions
from pipeline.io.sources.decoding import PictureDecoder, open_container, reason
from pipeline.io.uri import Uri, has_suffix, parse_count
from pipeline.picture.pixels import Pixels, choose_pixels, library

# Those by which a path is a video without `video:` in front; FFmpeg goes by the content.
SUFFIXES = (".avi", ".h264", ".m4v", ".mjpeg", ".mkv", ".mov", ".mp4", ".mpg", ".ts", ".webm", ".y4m")
DAMAGED = ("refuse", "skip")


class VideoFile(FrameSource):
    """Pictures of a video file, timed from its beginning.

    Pictures that cannot be decoded end in an error that says where, with `damaged` as ``"refuse"``, or are left out,
    with ``"skip"``. Many decoders hide damage instead of reporting it. The decoder has a thread per core for 0. Raises
    `InputError` if the file is missing, damaged, or holds no video.
    """

    owns_memory = True
    pixels: Pixels

    def __init__(self, path: str | Path, damaged: str = "refuse", threads: int = 0) -> None:
        if damaged not in DAMAGED:
            raise InputError(f"damaged is {damaged!r}; it must be {' or '.join(map(repr, DAMAGED))}")
        self._path, self._skip, self._count = Path(path), damaged == "skip", 0
        if not self._path.is_file():
            raise InputError(f"no video file at {str(path)!r}")
        self._container = open_container(str(path), str(path))
        self._decoding = PictureDecoder(self._container, self._damage, threads=threads)
        try:
            # The first picture is decoded at once: the stage that prepares them has to be made for its size.
            self._pictures = self._peek()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the pictures."""
        for picture in self._pictures:
            name = f"{self._path.stem}-{self._count:06d}"
            yield SourceFrame(name, self.pixels.array(picture), self._stamp(picture), pixels=self.pixels)
            self._count += 1

    def close(self) -> None:
        """Close the file."""
        self._container.close()

    def _peek(self) -> Iterator[Any]:
        """Decode the first picture, the model of all others."""
        pictures = self._read()
        first = next(pictures, None)
        if first is None:
            raise InputError(f"{str(self._path)!r} holds no picture")
        self.pixels = choose_pixels(first)
        return chain([first], pictures)

    def _read(self) -> Iterator[Any]:
        try:
            yield from self._decoding
        except library().FFmpegError as error:
            raise self._damage_error(error) from None

    def _stamp(self, picture: Any) -> int:
        # In units of the stream, which are exact fractions of a second.
        if picture.pts is not None:
            seconds = float(picture.pts * picture.time_base)
        else:
            # Bare streams, such as .h264, have a rate at best.
            seconds = self._count / float(self._decoding.stream.average_rate or 30)
        return round(seconds * SECOND)

    def _damage(self, error: Exception) -> None:
        # The error leaves the decoder, and ends the stream where the damage is.
        if not self._skip:
            raise self._damage_error(error) from None

    def _damage_error(self, error: Exception) -> InputError:
        return InputError(
            f"{str(self._path)!r} is damaged behind its picture {self._count}: {reason(error)}; "
            f"'video:{self._path}?damaged=skip' leaves out what cannot be read"
        )


def _open(uri: Uri, _: SourceOptions) -> VideoFile:
    return VideoFile(uri.path, uri.options.get("damaged", DAMAGED[0]), parse_count(uri.options, "threads"))


EXAMPLE = "FILE.mp4 and other video files"
KINDS = (SourceKind(("video",), _open, EXAMPLE, has_suffix(*SUFFIXES), is_file=True, options=("damaged", "threads")),)
