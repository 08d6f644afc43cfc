"""DDS on loopback: transport within the process, and the node between processes with an independent peer."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import InputError
from pipeline.io.ros import cdr
from pipeline.io.ros.configuration import Quality
from pipeline.io.ros.transport import domain as chosen
from tests.ros import onnx_bundle
from tests.ros.conftest import HEIGHT, WIDTH
from tests.ros.expected import boxes
from tests.ros.samples import picture

pytest.importorskip("cyclonedds")

from pipeline.io.ros.over_dds import Dds

IMAGE = "sensor_msgs/msg/Image"
PATIENCE_S = 60


def received(transport: Any, topic: str, count: int) -> tuple[list[bytes], threading.Event]:
    found: list[bytes] = []
    done = threading.Event()

    def receive(payload: bytes) -> None:
        found.append(payload)
        if len(found) == count:
            done.set()

    transport.subscribe(topic, IMAGE, Quality(depth=100), receive)
    return found, done


def payload_of(length: int) -> bytes:
    return cdr.encode(picture(np.full((1, length, 1), length, np.uint8), 5, encoding="mono8"), IMAGE)


def test_messages_come_as_they_were_sent(domain: int) -> None:
    # Of lengths that are and are not multiples of four, which DDS fills up.
    sent = [payload_of(length) for length in range(1, 51)]
    with Dds(domain, localhost=True) as transport:
        found, done = received(transport, "/there", len(sent))
        send = transport.publisher("/there", IMAGE, Quality(depth=100))
        for payload in sent:
            send(payload, 5)
        assert done.wait(PATIENCE_S)
    assert [each[: len(payload)] for each, payload in zip(found, sent, strict=True)] == sent
    assert all(len(each) - len(payload) < 4 for each, payload in zip(found, sent, strict=True))


def test_samples_without_data_are_skipped(domain: int) -> None:
    with Dds(domain, localhost=True) as transport:
        found, done = received(transport, "/there", 2)
        send: Any = transport.publisher("/there", IMAGE, Quality())
        send(payload_of(4), 0)
        # What subscribers are told of a publisher that leaves is a sample that has no data.
        transport._writers.clear()
        del send
        gc.collect()
        transport.publisher("/there", IMAGE, Quality())(payload_of(8), 0)
        assert done.wait(PATIENCE_S)
    assert found == [payload_of(4), payload_of(8)]


def test_nothing_is_received_after_stop_and_no_thread_is_left(domain: int) -> None:
    before = set(threading.enumerate())
    transport = Dds(domain, localhost=True)
    found, _ = received(transport, "/there", 1)
    transport.stop()
    transport.publisher("/there", IMAGE, Quality())(payload_of(4), 0)
    transport.close()
    assert found == []
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("text", ["233", "-1", "x"])
def test_a_wrong_domain_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_DOMAIN_ID", text)
    with pytest.raises(InputError, match="a number from 0 to 232"):
        chosen(None)
    monkeypatch.setenv("ROS_DOMAIN_ID", "7")
    assert (chosen(None), chosen(3)) == (7, 3)


def configuration(folder: Path, bundle: Path, domain: int, **more: Any) -> Path:
    path = folder / "node.yaml"
    reliable = {"reliable": True, "depth": 50}
    content = {
        "bundle": str(bundle),
        "domain": domain,
        "localhost": True,
        "subscribe": {"topic": "/camera", "qos": reliable},
        "publish": [
            {"topic": "/inverted", "type": IMAGE, "output": "image", "qos": {"depth": 100}},
            {
                "topic": "/detections", "type": "vision_msgs/msg/Detection2DArray", "output": "rows", "score": 0,
                "qos": {"depth": 400},
            },
        ],
        **more,
    }  # fmt: skip
    path.write_text(json.dumps(content))  # which is YAML as well
    return path


def test_every_frame_is_answered_in_order_with_its_own_stamp(
    bundle: Path, domain: int, tmp_path: Path, node: Callable[..., Any], process: Callable[..., Any]
) -> None:
    count = 300
    running = node("--config", configuration(tmp_path, bundle, domain), "--json")
    peer = process(sys.executable, "-m", "tests.ros.independent", domain, count, HEIGHT, WIDTH)
    out, err = peer.communicate(timeout=2 * PATIENCE_S)
    assert peer.returncode == 0, err
    images, detections = json.loads(out)
    pictures = [np.random.default_rng(number).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8) for number in range(count)]
    headers = [[1700000000 + number, number, f"frame {number}"] for number in range(count)]
    assert images == [
        [*header, "rgb8", HEIGHT, WIDTH, onnx_bundle.inverted(each).tobytes().hex()]
        for header, each in zip(headers, pictures, strict=True)
    ]
    assert detections == [[*header, boxes(each)] for header, each in zip(headers, pictures, strict=True)]
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, err) == (0, "")
    ended = json.loads(out)
    assert ended["counts"] == {"received": count, "refused": 0, "published": count, "unpublished": 0}
    assert ended["statistics"]["delivered"] == count


def test_interrupted_before_the_first_message_it_ends_well(
    bundle: Path, domain: int, tmp_path: Path, node: Callable[..., subprocess.Popen[str]]
) -> None:
    running = node("--config", configuration(tmp_path, bundle, domain))
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, err) == (0, "")
    assert "0 messages, 0 answered" in out
