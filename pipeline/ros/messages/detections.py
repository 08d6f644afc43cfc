"""Results as messages of `vision_msgs`: boxes and classes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from pipeline.errors import InputError
from pipeline.io.decoders.rows import COLUMNS
from pipeline.io.results import Classes, Detections
from pipeline.picture.geometry import Geometry
from pipeline.ros.messages.types import create_message

DETECTIONS, CLASSIFICATION = "vision_msgs/msg/Detection2DArray", "vision_msgs/msg/Classification"


def read_rows(rows: np.ndarray, geometry: Geometry | None) -> Detections:
    """Return the detections in a named output, [..., 6] of left, top, right, bottom, score, class.

    The geometry is the position of the picture in the model's input. Raises `InputError` if there are no 6 numbers in a
    row.
    """
    check_rows(rows.shape)
    table = rows.reshape(-1, 6).astype(np.float64)
    corners = table[:, :4].reshape(-1, 2, 2)
    # The model saw a resized picture; receivers know the camera's own.
    corners = corners if geometry is None else geometry.back_points(corners)
    # Corners of some detectors come in the other order.
    corners = np.sort(corners, axis=1)
    return Detections(corners.reshape(-1, 4), table[:, 4], table[:, 5].astype(np.int64))


def check_rows(shape: Sequence[int], name: str = "") -> None:
    """Raise `InputError` unless an output has rows of boxes."""
    if tuple(shape[-1:]) != (len(COLUMNS),):
        subject = f"the output {name!r}" if name else "the output"
        raise InputError(
            f"boxes are rows of {', '.join(COLUMNS)}, such as [1, 100, {len(COLUMNS)}], but {subject} is "
            f"{list(shape)}; give a model that selects its boxes (non-maximum suppression), or decode: its decoder"
        )


def detection_array(detections: Detections, header: Any, score: float, labels: Sequence[str]) -> Any:
    """Return a `Detection2DArray` of boxes with at least this score."""
    # Their own names, unless others are given.
    labels = labels or detections.labels
    count = len(detections)
    angles = np.zeros(count) if detections.angles is None else detections.angles
    tracks = [""] * count if detections.tracks is None else map(str, detections.tracks.tolist())
    rows = zip(
        detections.boxes.tolist(), detections.scores.tolist(), detections.classes.tolist(), angles.tolist(), tracks,
        strict=True,
    )  # fmt: skip
    messages = [
        _detection(box, angle, _hypothesis(number, value, labels), track, header)
        for box, value, number, angle, track in rows
        if value >= score
    ]
    return create_message(DETECTIONS, header, messages)


def classification(classes: Classes, header: Any, score: float, labels: Sequence[str]) -> Any:
    """Return a `Classification` of the classes with at least this score, the best first."""
    labels = labels or classes.labels
    rows = zip(classes.classes.tolist(), classes.scores.tolist(), strict=True)
    hypotheses = [_hypothesis(number, value, labels) for number, value in rows if value >= score]
    return create_message(CLASSIFICATION, header, hypotheses)


def _hypothesis(number: int, score: float, labels: Sequence[str]) -> Any:
    name = labels[number] if 0 <= number < len(labels) else str(number)
    return create_message("vision_msgs/msg/ObjectHypothesis", name, score)


def _detection(box: Sequence[float], angle: float, hypothesis: Any, track: str, header: Any) -> Any:
    left, top, right, bottom = box
    position = create_message("vision_msgs/msg/Point2D", (left + right) / 2, (top + bottom) / 2)
    pose = create_message("vision_msgs/msg/Pose2D", position, angle)
    room = create_message("vision_msgs/msg/BoundingBox2D", pose, right - left, bottom - top)
    # There is no pose in two dimensions, but the message has a place for it.
    result = create_message("vision_msgs/msg/ObjectHypothesisWithPose", hypothesis, _unknown_pose())
    return create_message("vision_msgs/msg/Detection2D", header, [result], room, track)


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
