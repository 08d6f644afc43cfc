"""IouTrack: boxes followed by their overlap from frame to frame.

E. Bochinski, V. Eiselein and T. Sikora, "High-Speed Tracking-by-Detection Without Using Image Information", AVSS 2017.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from pipeline.app.tracks.assignment import overlaps
from pipeline.io.results import Detections


class IouTrackOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of an overlap tracker."""

    overlap: float = 0.3
    """Intersection over union of a box with its former one, at least."""
    lost: int = 5
    """Frames for which a track that is not seen is kept."""


class IouTrack:
    """Tracker of one stream."""

    def __init__(self, options: IouTrackOptions = IouTrackOptions()) -> None:  # noqa: B008 - it is immutable
        self._options, self._next = options, 0
        self._boxes, self._numbers, self._missed = np.empty((0, 4)), np.empty(0, np.int64), np.empty(0, np.int64)

    def update(self, detections: Detections, _: object = None) -> Detections:
        """Return the boxes of the next frame with their tracks."""
        boxes = detections.boxes.astype(np.float64)
        numbers = np.full(len(boxes), -1, np.int64)
        shares = overlaps(self._boxes, np.nan_to_num(boxes))
        self._missed += 1
        # The best pairs first; each box and each track once.
        for pair in np.argsort(-shares, axis=None, kind="stable"):
            track, box = divmod(int(pair), len(boxes))
            if shares[track, box] < self._options.overlap:
                break
            if self._missed[track] and numbers[box] < 0:
                numbers[box], self._missed[track], self._boxes[track] = self._numbers[track], 0, boxes[box]
        is_new = (numbers < 0) & np.isfinite(boxes).all(1)
        numbers[is_new] = np.arange(self._next, self._next + is_new.sum())
        self._next += int(is_new.sum())
        keep = self._missed <= self._options.lost
        self._boxes = np.concatenate([self._boxes[keep], boxes[is_new]])
        self._numbers = np.concatenate([self._numbers[keep], numbers[is_new]])
        self._missed = np.concatenate([self._missed[keep], np.zeros(is_new.sum(), np.int64)])
        return replace(detections, tracks=numbers)
