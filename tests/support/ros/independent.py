"""A peer of its own: cyclonedds with the types that its compiler would generate from the messages' IDL.

python -m tests.support.ros.independent DOMAIN COUNT HEIGHT WIDTH: publishes images,
takes what the node answers, prints JSON.
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
from cyclonedds.idl.types import float64, int32, uint8, uint32
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

from pipeline.ros.transports.dds_domain import LOCALHOST


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
    is_bigendian: uint8
    step: uint32
    data: types.sequence[uint8]  # type: ignore[type-arg]


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
    local_domain = Domain(domain, LOCALHOST)
    participant = DomainParticipant(domain)
    readers = [
        DataReader(participant, Topic(participant, f"rt/{name}", kind, qos=QOS), qos=QOS)
        for name, kind in (("inverted", Image), ("detections", Detection2DArray))
    ]
    writer = DataWriter(participant, Topic(participant, "rt/camera", Image, qos=QOS), qos=QOS)
    end = time.monotonic() + PATIENCE_S
    while not (writer.get_matched_subscriptions() and all(map(has_publisher, readers))) and time.monotonic() < end:
        time.sleep(0.01)
    samples: list[list[Any]] = [[], []]
    for number in range(count):
        writer.write(message(number, picture(number, height, width)))
        # What is behind by more than the node keeps would be lost.
        while number >= len(samples[0]) + 5 and time.monotonic() < end:
            take(readers, samples)
    while min(map(len, samples)) < count and time.monotonic() < end:
        take(readers, samples)
    print(json.dumps([[image(sample) for sample in samples[0]], [detections(sample) for sample in samples[1]]]))
    del readers, writer, participant, local_domain


def has_publisher(reader: Any) -> bool:
    return bool(reader.get_matched_publications())


def message(number: int, pixels: np.ndarray) -> Image:
    header = Header(Time(1700000000 + number, number), f"frame {number}")
    return Image(header, pixels.shape[0], pixels.shape[1], "rgb8", 0, pixels.shape[1] * 3, pixels.reshape(-1).tolist())


def take(readers: list[Any], samples: list[list[Any]]) -> None:
    for reader, collection in zip(readers, samples, strict=True):
        collection.extend(reader.take(50))
    time.sleep(0.002)


def header(sample: Any) -> list[Any]:
    return [sample.header.stamp.sec, sample.header.stamp.nanosec, sample.header.frame_id]


def image(sample: Any) -> list[Any]:
    return [*header(sample), sample.encoding, sample.height, sample.width, bytes(sample.data).hex()]


def detections(sample: Any) -> list[Any]:
    rows = []
    for detection in sample.detections:
        box, hypothesis = detection.bbox, detection.results[0].hypothesis
        centre = box.center.position
        rows.append([centre.x, centre.y, box.size_x, box.size_y, hypothesis.score, hypothesis.class_id])
    return [*header(sample), rows]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
