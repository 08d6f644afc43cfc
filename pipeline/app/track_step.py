"""TrackStep: a tracker as a node, with one state for each stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from pipeline.app.steps import Condition, Step
from pipeline.app.tracks.byte_track import ByteTrack, ByteTrackOptions
from pipeline.app.tracks.iou_track import IouTrack, IouTrackOptions
from pipeline.app.tracks.regions import RegionOptions, Regions
from pipeline.core.card_file import convert_table
from pipeline.errors import AppError, InputError
from pipeline.io.results import Detections

if TYPE_CHECKING:
    from pipeline.app.app_frame import AppFrame
    from pipeline.app.nodes import Track


class Tracker(Protocol):
    """Follows the boxes of one stream."""

    def update(self, found: Any, previous: Any, /) -> Detections:
        """Return the boxes of the next frame with their tracks; `previous` is what the frame before fed back."""


METHODS: Mapping[str, tuple[Callable[[Any], Tracker], type[msgspec.Struct]]] = {
    "bytetrack": (ByteTrack, ByteTrackOptions),
    "iou": (IouTrack, IouTrackOptions),
    "regions": (Regions, RegionOptions),
}
"""Trackers and their options, by the name of the method."""


class TrackStep(Step):
    """Gives the boxes of each stream their tracks; those that do not fulfil `where` are left out."""

    def __init__(self, name: str, node: Track, where: Condition | None) -> None:
        self._node, self._where = node, where
        make, options_type = METHODS[node.method]
        try:
            options = convert_table(node.options, options_type, f"track.{name}.options.")
        except InputError as error:
            raise AppError(str(error)) from None
        self._make: Callable[[], Tracker] = partial(make, options)
        self._trackers: dict[str, Tracker] = {}

    def compute(self, frame: AppFrame) -> Detections:
        """Return the boxes of a frame with their tracks."""
        boxes = frame.results.get(self._node.reads[0])
        # Regions need no detector where something is followed.
        if boxes is not None and not isinstance(boxes, Detections):
            raise InputError(f"{self._node.reads[0]!r} gives no boxes that could be followed")
        if boxes is not None and self._where is not None:
            boxes = self._where.choose(frame, boxes)
        tracker = self._trackers.get(frame.stream)
        if tracker is None:
            tracker = self._trackers[frame.stream] = self._make()
        return tracker.update(boxes, frame.previous.get(self._node.feedback))

    def forget(self, stream: str) -> None:
        """Begin a stream anew."""
        self._trackers.pop(stream, None)
        if self._where is not None:
            self._where.forget(stream)
