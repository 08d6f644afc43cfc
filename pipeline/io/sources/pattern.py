"""Pattern: a moving test picture in place of a camera."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import numpy as np

from pipeline.errors import InputError
from pipeline.io.source_frame import SECOND, SourceFrame
from pipeline.io.sources.base import FrameSource, SourceKind, SourceOptions
from pipeline.io.uri import Uri, parse_size
from pipeline.picture.pixels import Pixels


class Pattern(FrameSource):
    """Endless colours, moving left by one pixel per frame.

    `fps`: frames per second, at which it is live as a camera is; without it frames come as fast as they are taken.
    """

    owns_memory = True
    pixels: Pixels

    def __init__(self, width: int, height: int, fps: float | None = None) -> None:
        self.pixels = Pixels("rgb24", width, height)
        self.live = fps is not None
        self._fps = fps
        ramp = np.linspace(0, 1, width)
        picture = np.empty((height, width, 3))
        picture[..., 0] = ramp
        picture[..., 1] = np.linspace(0, 1, height)[:, None]
        picture[..., 2] = abs(2 * ramp - 1)
        tile = (picture * 255).astype(np.uint8)
        # Twice, side by side, so that each frame is one slice.
        self._strip = np.concatenate([tile, tile], axis=1)

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the frames."""
        # Due times count from here, so that delays do not add up.
        begin, width = time.time(), self.pixels.width
        for number in count():
            offset = number % width
            # A copy: the pipeline may keep the frame while the next ones are made.
            picture = np.ascontiguousarray(self._strip[:, offset : offset + width])
            due = self._wait(begin, number)
            yield SourceFrame(f"{number:06d}", picture, round(due * SECOND), due, self.pixels)

    def _wait(self, begin: float, number: int) -> float:
        if self._fps is None:
            return time.time()
        due = begin + number / self._fps
        time.sleep(max(0.0, due - time.time()))
        return due


def parse_pattern(text: str, fps: float | None) -> Pattern:
    """Return the pattern for ``640x480`` or ``640x480@30``, or raise `InputError`."""
    extents, separator, pace = text.partition("@")
    if separator:
        try:
            fps = float(pace)
        except ValueError:
            # Refused below, with what is no number of frames as well.
            fps = 0.0
        if not 0 < fps < float("inf"):
            raise InputError(f"'pattern:{text}': {pace!r} is no number of frames per second")
    return Pattern(*parse_size(extents), fps)


def _open(uri: Uri, options: SourceOptions) -> Pattern:
    if options.speed is not None or (options.fps is not None and "@" in uri.location):
        raise InputError(f"{uri.text!r}: a pattern has one pace, as in 'pattern:640x480@30', and no other")
    return parse_pattern(uri.location, options.fps)


KINDS = (SourceKind(("pattern",), _open, "pattern:640x480@30", takes_fps=True),)
