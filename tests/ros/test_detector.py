"""The demo's detector as a node: scenes in, `vision_msgs/Detection2DArray` in their pixels out."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from pipeline.executor.bundle import Bundle
from pipeline.io.results import Detections
from pipeline.ros.configuration import Configuration, Publication, Topic
from pipeline.ros.messages import cdr
from pipeline.ros.node import RosNode
from tests.support.ros.functions import Local
from tests.support.ros.samples import picture

pytest.importorskip("sklearn")

IMAGE, DETECTIONS = "sensor_msgs/msg/Image", "vision_msgs/msg/Detection2DArray"


def test_boxes_of_the_models_decoder_are_published(detector_bundle: Bundle) -> None:
    from pipeline.demo.detector import match
    from pipeline.demo.scenes import scenes

    truths = list(islice(scenes(11, 320, 240), 6))
    # Neither a preparation nor an output has to be named: the model's card has them.
    configuration = Configuration(
        "", Topic("/camera", IMAGE), [Publication("/boxes", DETECTIONS, score=0.3)], admission="block"
    )
    transport = Local()
    with RosNode(configuration, detector_bundle, transport):
        for number, scene in enumerate(truths):
            transport.send("/camera", cdr.encode(picture(scene.picture, number, "camera"), IMAGE))
    messages = [cdr.decode(payload, DETECTIONS) for payload, _ in transport.published["/boxes"]]
    assert len(messages) == len(truths)
    hits = total = 0
    for message, scene in zip(messages, truths, strict=True):
        boxes = [
            (box.center.position.x, box.center.position.y, box.size_x, box.size_y)
            for box in (detection.bbox for detection in message.detections)
        ]
        x, y, width, height = np.array(boxes, np.float32).reshape(-1, 4).T
        classes = [int(detection.results[0].hypothesis.class_id) for detection in message.detections]
        corners = np.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], 1)
        result = Detections(corners, np.ones(len(classes)), np.array(classes, np.int64))
        truth = Detections(scene.boxes, np.ones(len(scene.boxes)), scene.classes)
        hits, total = hits + int(match(truth, result).sum()), total + len(truth)
    assert hits >= 0.8 * total > 0
