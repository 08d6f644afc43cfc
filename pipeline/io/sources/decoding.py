"""Decoding: pictures from PyAV's containers."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from typing import Any

from pipeline.errors import InputError
from pipeline.io.gstreamer import BUSY
from pipeline.picture.pixels import library


def open_container(target: Any, name: str, media: str = "video", **options: Any) -> Any:
    """Open a file, address, device or object with `read`, by FFmpeg, with options of ``av.open``.

    Media are ``"video"`` or ``"audio"``, of which there has to be some; `name` is for messages. Raises `InputError` if
    it is not there, or has no such media.
    """
    av = library()
    try:
        container = av.open(target, **options)
    except (av.FFmpegError, ValueError, OSError) as error:
        raise InputError(f"cannot open {name!r}: {reason(error)}") from None
    if not getattr(container.streams, media):
        # Nobody else would: the caller gets an error instead of the container.
        container.close()
        raise InputError(f"{name!r} has no {media} in it")
    return container


def reason(error: BaseException) -> str:
    """Return FFmpeg's message without number and file name."""
    text = getattr(error, "strerror", None) or str(error)
    text = str(text)[:1].lower() + str(text)[1:]
    return f"{text}; {BUSY}" if getattr(error, "errno", None) == errno.EBUSY else text


class PictureDecoder:
    """Yields the pictures of a container's first video stream.

    Whoever opened the container closes it. Decoding runs in FFmpeg's own threads, one per core for 0, or without the
    interpreter's lock. `on_damage` is called with each error of the decoder; errors that it does not raise are skipped.
    With `live` a picture is wanted as soon as it is there, instead of many pictures per second.
    """

    def __init__(
        self, container: Any, on_damage: Callable[[Exception], None], *, live: bool = False, threads: int = 0
    ) -> None:
        self._container, self._on_damage = container, on_damage
        self.stream = container.streams.video[0]
        # Threads that work on several pictures at once deliver each of them later.
        self.stream.thread_type = "SLICE" if live else "AUTO"
        # None of a codec that FFmpeg does not know, which ends with the first picture.
        if threads and self.stream.codec_context is not None:
            self.stream.codec_context.thread_count = threads

    def __iter__(self) -> Iterator[Any]:
        for packet in self._container.demux(self.stream):
            yield from self._pictures(packet)

    def _pictures(self, packet: Any) -> list[Any]:
        pictures: list[Any] = []
        with self._report_damage():
            pictures += packet.decode()
            # FFmpeg marks pictures with missing parts, and delivers them all the same.
            if any(picture.is_corrupt for picture in pictures):
                raise ValueError("a picture is incomplete")
        return [picture for picture in pictures if not picture.is_corrupt]

    @contextlib.contextmanager
    def _report_damage(self) -> Iterator[None]:
        try:
            yield
        except (library().FFmpegError, ValueError) as error:
            self._on_damage(error)
