"""A peer of its own: cyclonedds with the types that its compiler would generate from the messages' IDL.

python -m tests.ros.independent DOMAIN COUNT HEIGHT WIDTH: publishes images, takes what the node answers, prints JSON.
"""

import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from cyclonedds.core import Policy, Qos
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.idl import IdlStruct, types
from cyclonedds.idl.types import byte, float64, int32, uint32
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from pipeline.io.ros.over_dds import LOCALHOST


@dataclass
class Time(IdlStruct, typename="builtin_interfaces.msg.dds_.Time_"):
    sec: int32
    nanosec: uint32


@dataclass
class Header(IdlStruct, typename="std_msgs.msg.dds_.Header_"):
    stamp: Time
    frame_id: str


@dataclass
class Image(IdlStruct, typename="sensor_msgs.msg.dds_.Image_"):
    header: Header
    height: uint32
    width: uint32
    encoding: str
    is_bigendian: byte
    step: uint32
    data: types.sequence[byte]  # type: ignore[type-arg]


@dataclass
class Point(IdlStruct, typename="geometry_msgs.msg.dds_.Point_"):
    x: float64
    y: float64
    z: float64


@dataclass
class Quaternion(IdlStruct, typename="geometry_msgs.msg.dds_.Quaternion_"):
    x: float64
    y: float64
    z: float64
    w: float64


@dataclass
class Pose(IdlStruct, typename="geometry_msgs.msg.dds_.Pose_"):
    position: Point
    orientation: Quaternion


@dataclass
class PoseWithCovariance(IdlStruct, typename="geometry_msgs.msg.dds_.PoseWithCovariance_"):
    pose: Pose
    covariance: types.array[float64, 36]  # type: ignore[type-arg,valid-type]


@dataclass
class ObjectHypothesis(IdlStruct, typename="vision_msgs.msg.dds_.ObjectHypothesis_"):
    class_id: str
    score: float64


@dataclass
class ObjectHypothesisWithPose(IdlStruct, typename="vision_msgs.msg.dds_.ObjectHypothesisWithPose_"):
    hypothesis: ObjectHypothesis
    pose: PoseWithCovariance


@dataclass
class Point2D(IdlStruct, typename="vision_msgs.msg.dds_.Point2D_"):
    x: float64
    y: float64


@dataclass
class Pose2D(IdlStruct, typename="vision_msgs.msg.dds_.Pose2D_"):
    position: Point2D
    theta: float64


@dataclass
class BoundingBox2D(IdlStruct, typename="vision_msgs.msg.dds_.BoundingBox2D_"):
    center: Pose2D
    size_x: float64
    size_y: float64


@dataclass
class Detection2D(IdlStruct, typename="vision_msgs.msg.dds_.Detection2D_"):
    header: Header
    results: types.sequence[ObjectHypothesisWithPose]  # type: ignore[type-arg]
    bbox: BoundingBox2D
    id: str


@dataclass
class Detection2DArray(IdlStruct, typename="vision_msgs.msg.dds_.Detection2DArray_"):
    header: Header
    detections: types.sequence[Detection2D]  # type: ignore[type-arg]


QOS = Qos(
    Policy.Reliability.Reliable(duration(seconds=10)),
    Policy.History.KeepLast(400),
    Policy.DataRepresentation(use_cdrv0_representation=True),
)
PATIENCE_S = 60.0


def picture(number: int, height: int, width: int) -> np.ndarray:
    """Return the picture with that number."""
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), np.uint8)


def main(domain: int, count: int, height: int, width: int) -> None:
    own = Domain(domain, LOCALHOST)
    participant = DomainParticipant(domain)
    readers = [
        DataReader(participant, Topic(participant, f"rt/{name}", kind, qos=QOS), qos=QOS)
        for name, kind in (("inverted", Image), ("detections", Detection2DArray))
    ]
    writer = DataWriter(participant, Topic(participant, "rt/camera", Image, qos=QOS), qos=QOS)
    end = time.monotonic() + PATIENCE_S
    while not (writer.get_matched_subscriptions() and all(map(matched, readers))) and time.monotonic() < end:
        time.sleep(0.01)
    found: list[list[Any]] = [[], []]
    for number in range(count):
        writer.write(message(number, picture(number, height, width)))
        # What is behind by more than the node keeps would be lost.
        while number >= len(found[0]) + 5 and time.monotonic() < end:
            take(readers, found)
    while min(map(len, found)) < count and time.monotonic() < end:
        take(readers, found)
    print(json.dumps([[image(each) for each in found[0]], [detections(each) for each in found[1]]]))
    del readers, writer, participant, own


def matched(reader: Any) -> bool:
    return bool(reader.get_matched_publications())


def message(number: int, pixels: np.ndarray) -> Image:
    header = Header(Time(1700000000 + number, number), f"frame {number}")
    return Image(header, pixels.shape[0], pixels.shape[1], "rgb8", 0, pixels.shape[1] * 3, pixels.reshape(-1).tolist())


def take(readers: list[Any], found: list[list[Any]]) -> None:
    for reader, kept in zip(readers, found, strict=True):
        kept.extend(reader.take(50))
    time.sleep(0.002)


def header(each: Any) -> list[Any]:
    return [each.header.stamp.sec, each.header.stamp.nanosec, each.header.frame_id]


def image(each: Any) -> list[Any]:
    return [*header(each), each.encoding, each.height, each.width, bytes(each.data).hex()]


def detections(each: Any) -> list[Any]:
    rows = [
        [one.bbox.center.position.x, one.bbox.center.position.y, one.bbox.size_x, one.bbox.size_y,
         one.results[0].hypothesis.score, one.results[0].hypothesis.class_id]
        for one in each.detections
    ]  # fmt: skip
    return [*header(each), rows]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
