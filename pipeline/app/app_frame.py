"""AppFrame: a frame on its way through an application's nodes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.io.source_frame import SourceFrame

SKIPPED = object()
"""In place of a result: the node did not run on this frame."""


class AppFrame:
    """One frame, the `index`-th of its stream, with the results of the nodes that have run on it.

    Results of skipped nodes are missing; `previous` are those of the frame before, of nodes that somebody asks for.
    After the first failure, `error`, nodes that have not run are skipped. The `end` that it finds is one of
    `pipeline.app.books.ENDS`.
    """

    def __init__(self, stream: str, index: int, frame: SourceFrame, waits_for: Mapping[str, int]) -> None:
        self.stream, self.index, self.frame = stream, index, frame
        self.results: dict[str, Any] = {}
        self.previous: dict[str, Any] = {}
        self.error: BaseException | None = None
        self.end = "delivered"
        self.lock = threading.Lock()
        # By node, how many of those that it reads have not finished yet; guarded by the lock of the node's worker.
        self.waits_for = dict(waits_for)
        self._picture: np.ndarray | None = None

    @property
    def time_s(self) -> float:
        """Time of capture in seconds."""
        return self.frame.timestamp

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture; (1, 1) of other frames."""
        if self.frame.pixels is not None:
            return self.frame.pixels.width, self.frame.pixels.height
        picture = self.frame.picture
        return (1, 1) if picture is None else (picture.shape[1], picture.shape[0])

    @property
    def picture(self) -> np.ndarray:
        """Picture as uint8 RGB [height, width, 3], converted once; `InputError` without one."""
        with self.lock:
            if self._picture is None:
                pixels, array = self.frame.read_picture()
                self._picture = np.ascontiguousarray(pixels.rgb(array))
            return self._picture

    @property
    def has_picture(self) -> bool:
        """True if the frame is a picture."""
        try:
            self.frame.read_picture()
        except InputError:
            return False
        return True

    def fail(self, error: BaseException, end: str = "failed") -> None:
        """Let the frame end without what has not run yet; the first error counts."""
        with self.lock:
            if self.error is None:
                self.error, self.end = error, end
