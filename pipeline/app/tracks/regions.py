"""Regions: where to look for landmarks, by a detector at first, then by the landmarks of the frame before.

This is how MediaPipe follows faces and hands (V. Bazarevsky et al., "BlazeFace", 2019; F. Zhang et al., "MediaPipe
Hands", 2020): the detector is needed only where nothing is followed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import numpy as np

from pipeline.app.crops import concatenate, upright_angle
from pipeline.app.tracks.assignment import overlaps
from pipeline.io.results import Detections


class RegionOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of regions."""

    keep: float = 0.5
    """Score of landmarks that are followed."""
    overlap: float = 0.3
    """Intersection over union from which a box that was found is one that is followed already."""
    most: int = 4
    """Upper bound on regions."""
    # Two key points of a box that was found, and of landmarks, such as ``"0-2"``: the second is above the first in the
    # region.
    found_upright: str = ""
    # Sides of the region, which is a square, as multiples of the box's longer side.
    found_scale: float = 1.5
    # Multiple of the box's height by which the region is shifted downwards.
    found_shift: float = 0.0
    kept_upright: str = ""
    kept_scale: float = 1.5
    kept_shift: float = 0.0


class Regions:
    """Regions of one stream; numbers stay with what is followed."""

    def __init__(self, options: RegionOptions = RegionOptions()) -> None:  # noqa: B008 - it is immutable
        self._options, self._next = options, 0

    def update(self, found: Detections | None, previous: Detections | None) -> Detections:
        """Return the regions of a frame by the detector's boxes, None if it did not run.

        `previous` are landmarks of the frame before, with the tracks of its regions.
        """
        options, parts = self._options, []
        kept = None if previous is None else previous[previous.scores >= options.keep]
        if kept is not None and len(kept):
            parts.append(_regions(kept, options.kept_upright, options.kept_scale, options.kept_shift))
        if found is not None and len(found):
            new = _regions(found, options.found_upright, options.found_scale, options.found_shift)
            if parts:
                new = new[~(overlaps(new.boxes, parts[0].boxes) > options.overlap).any(1)]
            parts.append(replace(new, tracks=np.arange(self._next, self._next + len(new))))
            self._next += len(new)
        if not parts:
            return _empty()
        regions: Detections = concatenate(parts)[: options.most]
        return regions


def _regions(boxes: Detections, upright: str, scale: float, shift: float) -> Detections:
    """Return turned squares around boxes."""
    rows = []
    for row, (left, top, right, bottom) in enumerate(boxes.boxes.tolist()):
        angle = upright_angle(boxes.points[row], upright) if upright and boxes.points is not None else 0.0
        side, down = max(right - left, bottom - top) * scale / 2, shift * (bottom - top)
        x, y = (left + right) / 2 - down * math.sin(angle), (top + bottom) / 2 + down * math.cos(angle)
        rows.append([x - side, y - side, x + side, y + side, angle])
    table = np.array(rows, np.float32).reshape(-1, 5)
    tracks = np.full(len(boxes), -1) if boxes.tracks is None else boxes.tracks
    return Detections(table[:, :4], boxes.scores, boxes.classes, boxes.labels, angles=table[:, 4], tracks=tracks)


def _empty() -> Detections:
    nothing = np.empty(0, np.float32)
    return Detections(
        np.empty((0, 4), np.float32), nothing, np.empty(0, np.int64), angles=nothing, tracks=np.empty(0, np.int64)
    )
