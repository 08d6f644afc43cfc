"""Detections: rows of a detector as `vision_msgs/Detection2DArray`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.errors import InputError
from pipeline.io.geometry import Geometry
from pipeline.io.ros.messages import TYPES


@dataclass(frozen=True)
class Detections:
    """How rows become detections.

    Attributes
    ----------
    score : float
        Rows below are left out.
    labels : sequence of str
        Names of classes; numbers without.
    place : Geometry or None
        Where the picture lies in the model's input.
    """

    score: float = 0.5
    labels: Sequence[str] = ()
    place: Geometry | None = None

    def message(self, rows: np.ndarray, header: Any) -> Any:
        """Return the message.

        Parameters
        ----------
        rows : array
            [..., 6] of left, top, right, bottom, score, class, in the model's pixels.
        header : object
            A `std_msgs/Header`.

        Raises
        ------
        InputError
            If there are no 6 numbers in a row.
        """
        check(rows.shape)
        found = [self._one(row, header) for row in rows.reshape(-1, 6).tolist() if row[4] >= self.score]
        return TYPES["vision_msgs/msg/Detection2DArray"](header, found)

    def _one(self, row: Sequence[float], header: Any) -> Any:
        left, top, right, bottom, score, number = row
        if self.place is not None:
            left, top = self.place.back(left, top)
            right, bottom = self.place.back(right, bottom)
        hypothesis = TYPES["vision_msgs/msg/ObjectHypothesis"](self._label(int(number)), score)
        position = TYPES["vision_msgs/msg/Point2D"]((left + right) / 2, (top + bottom) / 2)
        box = TYPES["vision_msgs/msg/BoundingBox2D"](
            TYPES["vision_msgs/msg/Pose2D"](position, 0.0), abs(right - left), abs(bottom - top)
        )
        result = TYPES["vision_msgs/msg/ObjectHypothesisWithPose"](hypothesis, _POSE)
        return TYPES["vision_msgs/msg/Detection2D"](header, [result], box, "")

    def _label(self, number: int) -> str:
        return self.labels[number] if 0 <= number < len(self.labels) else str(number)


def check(shape: Sequence[int]) -> None:
    """Check that an output of that shape has rows of detections.

    Raises
    ------
    InputError
        If there are no 6 numbers in a row.
    """
    if not shape or shape[-1] != 6:
        raise InputError(
            f"detections are rows of left, top, right, bottom, score, class, but the output is {list(shape)}"
        )


# Nothing is known of it; its quaternion turns by nothing.
_POSE = TYPES["geometry_msgs/msg/PoseWithCovariance"]()
_POSE.pose.orientation.w = 1.0
