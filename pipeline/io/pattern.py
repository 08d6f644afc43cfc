"""Pattern: a moving test picture, where there is no camera."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import numpy as np

from pipeline.errors import InputError
from pipeline.io.address import size
from pipeline.io.frame import SECOND, Frame
from pipeline.io.pixels import Pixels
from pipeline.io.source import Source


class Pattern(Source):
    """Colours that move to the left by one pixel with each frame, without end.

    Parameters
    ----------
    width, height : int
    fps : float, optional
        Frames per second, at which it is live as a camera is; without it frames come as fast as they are taken.
    """

    fresh = True
    pixels: Pixels

    def __init__(self, width: int, height: int, fps: float | None = None) -> None:
        self.pixels = Pixels("rgb24", width, height)
        self.live = fps is not None
        self._fps = fps
        across = np.linspace(0, 1, width)
        picture = np.empty((height, width, 3))
        picture[..., 0] = across
        picture[..., 1] = np.linspace(0, 1, height)[:, None]
        picture[..., 2] = abs(2 * across - 1)
        once = (picture * 255).astype(np.uint8)
        # Twice, side by side, so that each frame is one slice.
        self._strip = np.concatenate([once, once], axis=1)

    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames."""
        begin, width = time.time(), self.pixels.width
        for number in count():
            left = number % width
            picture = np.ascontiguousarray(self._strip[:, left : left + width])
            due = self._wait(begin, number)
            yield Frame(f"{number:06d}", picture, round(due * SECOND), due, self.pixels)

    def _wait(self, begin: float, number: int) -> float:
        if self._fps is None:
            return time.time()
        due = begin + number / self._fps
        time.sleep(max(0.0, due - time.time()))
        return due


def pattern(place: str, fps: float | None) -> Pattern:
    """Return the pattern for ``640x480`` or ``640x480@30``.

    Raises
    ------
    InputError
        If it is no size, or no pace.
    """
    extents, at, pace = place.partition("@")
    if at:
        try:
            fps = float(pace)
        except ValueError:
            fps = 0.0
        if not 0 < fps < float("inf"):
            raise InputError(f"'pattern:{place}': {pace!r} is no number of frames per second")
    return Pattern(*size(extents), fps)
