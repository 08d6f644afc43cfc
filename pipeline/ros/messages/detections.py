"""Detections: rows of a detector as `vision_msgs/Detection2DArray`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from pipeline.io.output_forms import BOXES
from pipeline.picture.geometry import Geometry
from pipeline.ros.messages.types import create_message


@dataclass(frozen=True)
class Detections:
    """Rules from rows to detections.

    Attributes
    ----------
    score : float
        Rows below are left out.
    labels : sequence of str
        Names of classes; numbers without.
    geometry : Geometry or None
        Position of the picture in the model's input.
    """

    score: float = 0.5
    labels: Sequence[str] = ()
    geometry: Geometry | None = None

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
        BOXES.check(rows.shape)
        detections = [self._detection(row, header) for row in rows.reshape(-1, 6).tolist() if row[4] >= self.score]
        return create_message("vision_msgs/msg/Detection2DArray", header, detections)

    def _detection(self, row: Sequence[float], header: Any) -> Any:
        left, top, right, bottom, score, number = row
        # The model saw a resized picture; receivers know the camera's own.
        if self.geometry is not None:
            left, top = self.geometry.back(left, top)
            right, bottom = self.geometry.back(right, bottom)
        hypothesis = create_message("vision_msgs/msg/ObjectHypothesis", self._label(int(number)), score)
        position = create_message("vision_msgs/msg/Point2D", (left + right) / 2, (top + bottom) / 2)
        pose = create_message("vision_msgs/msg/Pose2D", position, 0.0)
        # Corners of some detectors come in the other order.
        box = create_message("vision_msgs/msg/BoundingBox2D", pose, abs(right - left), abs(bottom - top))
        # There is no pose in two dimensions, but the message has a place for it.
        result = create_message("vision_msgs/msg/ObjectHypothesisWithPose", hypothesis, _unknown_pose())
        return create_message("vision_msgs/msg/Detection2D", header, [result], box, "")

    def _label(self, number: int) -> str:
        return self.labels[number] if 0 <= number < len(self.labels) else str(number)


@cache
def _unknown_pose() -> Any:
    """Return an unknown pose with a neutral quaternion."""
    point, turn = (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0)
    pose = create_message(
        "geometry_msgs/msg/Pose",
        create_message("geometry_msgs/msg/Point", *point),
        create_message("geometry_msgs/msg/Quaternion", *turn),
    )
    return create_message("geometry_msgs/msg/PoseWithCovariance", pose, np.zeros(36))
