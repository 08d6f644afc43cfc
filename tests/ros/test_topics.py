"""An application among nodes of ROS 2: its streams and sinks are topics, over DDS on loopback."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.errors import InputError
from pipeline.io.results import Detections
from pipeline.io.sinks.registry import open_sink
from pipeline.ros.configuration import Quality
from pipeline.ros.messages import cdr
from tests.support.ros.samples import picture

pytest.importorskip("cyclonedds")

from pipeline.ros.transports.dds import Dds

IMAGE, DETECTIONS, TEXT = "sensor_msgs/msg/Image", "vision_msgs/msg/Detection2DArray", "std_msgs/msg/String"
COUNT, PATIENCE_S = 5, 60

APP = """
[stream.front]
source = "ros:/camera/front?{options}"
[function.search]
call = "search"
reads = "front"
[sink.boxes]
to = "ros:/boxes?{options}"
reads = "search"
[sink.lines]
to = "ros:/lines?type=std_msgs/msg/String&{options}"
reads = "search"
[sink.pictures]
to = "ros:/pictures?type=sensor_msgs/msg/Image&{options}"
reads = "search"
"""


def search(*_: Any) -> Detections:
    boxes = np.array([[2, 2, 10, 8]], np.float32)
    return Detections(boxes, np.array([0.75], np.float32), np.array([0]), ["cat"], tracks=np.array([17]))


def test_an_application_reads_a_topic_and_answers_on_others(tmp_path: Path, domain: int) -> None:
    pytest.importorskip("PIL")
    (tmp_path / "app.toml").write_text(APP.format(options=f"domain={domain}&localhost=true"))
    answers: dict[str, list[bytes]] = {"/boxes": [], "/lines": [], "/pictures": []}
    done = threading.Event()

    def send(camera: Any) -> None:
        number = 0
        payload = np.full((16, 24, 3), 9, np.uint8)
        while not done.wait(0.05):
            number += 1
            camera(cdr.encode(picture(payload, number * 10**9 + 1, "front"), IMAGE), 0)

    with Dds(domain, localhost=True) as robot:
        for topic, kind in (("/boxes", DETECTIONS), ("/lines", TEXT), ("/pictures", IMAGE)):
            robot.subscribe(topic, kind, Quality(depth=50), answers[topic].append)
        camera = robot.publisher("/camera/front", IMAGE, Quality())
        thread = threading.Thread(target=send, args=[camera])
        thread.start()
        try:
            with pipeline.load_app(tmp_path / "app.toml", functions={"search": search}) as app:
                running = threading.Thread(target=app.run)
                running.start()
                end = time.monotonic() + PATIENCE_S
                while min(map(len, answers.values())) < COUNT and time.monotonic() < end:
                    time.sleep(0.02)
                app.stop()
                running.join()
        finally:
            done.set()
            thread.join()
    boxes = [cdr.decode(payload, DETECTIONS) for payload in answers["/boxes"]]
    assert len(boxes) >= COUNT
    stamps = [each.header.stamp.sec for each in boxes]
    assert stamps == sorted(set(stamps))
    assert {(each.header.frame_id, each.header.stamp.nanosec) for each in boxes} == {("front", 1)}
    (detection,) = boxes[0].detections
    assert (detection.id, detection.results[0].hypothesis.class_id) == ("17", "cat")
    assert (detection.bbox.center.position.x, detection.bbox.size_x) == (6, 8)
    line = json.loads(cdr.decode(answers["/lines"][0], TEXT).data)
    assert (line["stream"], line["results"][0]["label"], line["results"][0]["track"]) == ("front", "cat", 17)
    drawn = cdr.decode(answers["/pictures"][0], IMAGE)
    assert (drawn.height, drawn.width, drawn.encoding) == (16, 24, "rgb8")
    assert (drawn.data != 9).any()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ros:/out?type=sensor_msgs/msg/Imag", "did you mean 'sensor_msgs/msg/Image'"),
        ("ros:/out?qos=best", "qos is sensor_data or reliable"),
        ("ros:/out?transport=udp", "transport is dds, rclpy, zenoh"),
        ("ros:/out?topic=/x", "has the option 'topic'"),
    ],
)
def test_mistakes_in_a_topics_text_are_named(text: str, words: str) -> None:
    with pytest.raises(InputError) as refusal:
        open_sink(text, ())
    assert words in str(refusal.value)
