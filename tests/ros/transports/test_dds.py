"""DDS on loopback: transport within the process, and the node between processes with an independent peer."""

from __future__ import annotations

import gc
import json
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import InputError
from pipeline.ros.configuration import Quality
from pipeline.ros.messages import cdr
from pipeline.ros.transports.base import choose_domain
from tests.ros.conftest import HEIGHT, WIDTH
from tests.support.ros import onnx_bundle
from tests.support.ros.expected import boxes
from tests.support.ros.samples import picture

pytest.importorskip("cyclonedds")

from pipeline.ros.transports.dds import Dds
from pipeline.ros.transports.dds_types import describe_type

IMAGE = "sensor_msgs/msg/Image"
PATIENCE_S = 60


def subscribe(transport: Any, topic: str, count: int) -> tuple[list[bytes], threading.Event]:
    payloads: list[bytes] = []
    arrival = threading.Event()

    def receive(payload: bytes) -> None:
        payloads.append(payload)
        if len(payloads) == count:
            arrival.set()

    transport.subscribe(topic, IMAGE, Quality(depth=100), receive)
    return payloads, arrival


def payload_of(length: int) -> bytes:
    return bytes(cdr.encode(picture(np.full((1, length, 1), length, np.uint8), 5, encoding="mono8"), IMAGE))


def kinds(name: str, **options: bool) -> dict[str, Any]:
    """Return the kinds of a type's members, and of their elements, as peers are told of them."""
    from cyclonedds.idl._typesupport.DDS import XTypes

    kind_names = {value: key for key, value in vars(XTypes).items() if key.startswith("TK_")}
    describe_type(name, **options).__idl__.fill_type_data()
    pairs = describe_type(name, **options).__idl__.get_type_mapping().identifier_object_pair_complete
    structs = [pair.type_object.complete.struct_type for pair in pairs]
    typename = f"{name.replace('/msg/', '::msg::dds_::')}_"
    (struct,) = (array for array in structs if array.header.detail.type_name == typename)
    payloads = {}
    for member in struct.member_seq:
        kind = member.common.member_type_id
        elements = getattr(kind.value, "element_identifier", None)
        payloads[member.detail.name] = kind_names.get((elements or kind).discriminator)
    return payloads


def test_peers_are_told_the_types_that_ros_2_generates() -> None:
    """Programs that use DDS itself compare them: with ``octet`` for ``uint8`` they would never match."""
    image = kinds(IMAGE)
    assert (image["is_bigendian"], image["data"], image["step"]) == ("TK_UINT8", "TK_UINT8", "TK_UINT32")
    assert kinds("sensor_msgs/msg/CompressedImage")["data"] == "TK_UINT8"
    assert kinds("soc_pipeline_msgs/msg/Tensor")["data"] == "TK_UINT8"
    assert kinds("std_msgs/msg/Int8MultiArray")["data"] == "TK_INT8"
    assert kinds("std_msgs/msg/UInt8MultiArray")["data"] == "TK_UINT8"
    # What ROS calls a byte is IDL's octet.
    assert kinds("diagnostic_msgs/msg/DiagnosticStatus")["level"] == "TK_BYTE"
    assert {kinds(IMAGE, octets=True)[name] for name in ("is_bigendian", "data")} == {"TK_BYTE"}
    assert kinds("std_msgs/msg/Int8MultiArray", octets=True)["data"] == "TK_BYTE"


def test_messages_come_as_they_were_sent(domain: int) -> None:
    # Of lengths that are and are not multiples of four, which DDS fills up.
    messages = [payload_of(length) for length in range(1, 51)]
    with Dds(domain, localhost=True) as transport:
        payloads, arrival = subscribe(transport, "/there", len(messages))
        send = transport.publisher("/there", IMAGE, Quality(depth=100))
        for payload in messages:
            send(payload, 5)
        assert arrival.wait(PATIENCE_S)
    assert [array[: len(payload)] for array, payload in zip(payloads, messages, strict=True)] == messages
    assert all(len(array) - len(payload) < 4 for array, payload in zip(payloads, messages, strict=True))


def test_messages_that_find_no_place_are_told(domain: int) -> None:
    gate, last, received, lost = threading.Event(), threading.Event(), list[bytes](), list[bytes]()

    def receive(data: bytes) -> None:
        received.append(data)
        assert gate.wait(PATIENCE_S)
        if data == messages[-1]:
            last.set()

    messages = [payload_of(4 * length) for length in range(1, 21)]
    with Dds(domain, localhost=True) as transport:
        transport.subscribe("/there", IMAGE, Quality(depth=3), receive, lost.append)
        send = transport.publisher("/there", IMAGE, Quality(depth=100))
        for payload in messages:
            send(payload, 5)
        while len(received) + len(lost) < len(messages) - 3:
            time.sleep(0.01)
        gate.set()
        assert last.wait(PATIENCE_S)
    assert lost == [payload for payload in messages if payload not in received]
    assert len(received) + len(lost) == len(messages)


def test_samples_without_data_are_skipped(domain: int) -> None:
    with Dds(domain, localhost=True) as transport:
        payloads, arrival = subscribe(transport, "/there", 2)
        # What subscribers are told of a publisher that leaves is a sample that has no data.
        # It joins the domain that the process has already, with its settings.
        with Dds(domain) as peer:
            peer.publisher("/there", IMAGE, Quality())(payload_of(4), 0)
        gc.collect()
        transport.publisher("/there", IMAGE, Quality())(payload_of(8), 0)
        assert arrival.wait(PATIENCE_S)
    assert payloads == [payload_of(4), payload_of(8)]


def test_a_participant_outlives_the_first_of_its_domain(domain: int) -> None:
    first = Dds(domain, localhost=True)
    with Dds(domain, localhost=True) as second:
        first.stop()
        first.close()
        gc.collect()
        payloads, arrival = subscribe(second, "/there", 1)
        second.publisher("/there", IMAGE, Quality())(payload_of(8), 0)
        assert arrival.wait(PATIENCE_S)
    assert payloads == [payload_of(8)]


@pytest.mark.parametrize("subscribes", [True, False])
def test_a_peer_with_another_type_is_warned_of_once(domain: int, subscribes: bool) -> None:
    """DDS itself never matches the two, and says nothing."""
    compressed = "sensor_msgs/msg/CompressedImage"
    verbs = ("publishes", "subscribes to") if subscribes else ("subscribes to", "publishes")
    words = rf"topic '/there': a peer {verbs[0]} {compressed}, but this participant {verbs[1]} {IMAGE}; nothing passes"

    def connect(transport: Dds, kind: str, *, as_subscriber: bool) -> None:
        if as_subscriber:
            transport.subscribe("/there", kind, Quality(), lambda _: None)
        else:
            transport.publisher("/there", kind, Quality())

    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        with Dds(domain, localhost=True) as transport, Dds(domain) as peer:
            connect(transport, IMAGE, as_subscriber=subscribes)
            for _ in range(2):
                connect(peer, compressed, as_subscriber=not subscribes)
            deadline = time.monotonic() + PATIENCE_S
            # Both are told, each of the other.
            while len(records) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
        messages = [str(record.message) for record in records]
    assert sum(re.match(words, message) is not None for message in messages) == 1
    assert len(messages) == 2


def test_nothing_is_received_after_stop_and_no_thread_is_left(domain: int) -> None:
    previous_threads = set(threading.enumerate())
    transport = Dds(domain, localhost=True)
    payloads, _ = subscribe(transport, "/there", 1)
    transport.stop()
    transport.publisher("/there", IMAGE, Quality())(payload_of(4), 0)
    transport.close()
    assert payloads == []
    assert set(threading.enumerate()) == previous_threads


@pytest.mark.parametrize("text", ["233", "-1", "x"])
def test_a_wrong_domain_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_DOMAIN_ID", text)
    with pytest.raises(InputError, match="a number from 0 to 232"):
        choose_domain(None)
    monkeypatch.setenv("ROS_DOMAIN_ID", "7")
    assert (choose_domain(None), choose_domain(3)) == (7, 3)


def configuration(folder: Path, bundle: Path, domain: int, **changes: Any) -> Path:
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
        **changes,
    }  # fmt: skip
    path.write_text(json.dumps(content))  # which is YAML as well
    return path


def test_every_frame_is_answered_in_order_with_its_own_stamp(
    bundle: Path, domain: int, tmp_path: Path, node: Callable[..., Any], process: Callable[..., Any]
) -> None:
    count = 300
    running = node("--config", configuration(tmp_path, bundle, domain), "--json")
    peer = process(sys.executable, "-m", "tests.support.ros.independent", domain, count, HEIGHT, WIDTH)
    out, err = peer.communicate(timeout=2 * PATIENCE_S)
    assert peer.returncode == 0, err
    images, detections = json.loads(out)
    pictures = [np.random.default_rng(number).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8) for number in range(count)]
    headers = [[1700000000 + number, number, f"frame {number}"] for number in range(count)]
    assert images == [
        [*header, "rgb8", HEIGHT, WIDTH, onnx_bundle.inverted(array).tobytes().hex()]
        for header, array in zip(headers, pictures, strict=True)
    ]
    assert detections == [[*header, boxes(array)] for header, array in zip(headers, pictures, strict=True)]
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, err) == (0, "")
    report = json.loads(out)
    counts = {"received": count, "refused": 0, "dropped": 0, "published": count, "unpublished": 0}
    assert report["counts"] == counts
    assert report["statistics"]["delivered"] == count


@pytest.mark.parametrize("messages", [signal.SIGINT, signal.SIGHUP])
def test_interrupted_before_the_first_message_it_ends_well(
    bundle: Path, domain: int, tmp_path: Path, node: Callable[..., subprocess.Popen[str]], messages: signal.Signals
) -> None:
    running = node("--config", configuration(tmp_path, bundle, domain))
    running.send_signal(messages)
    out, err = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, err) == (0, "")
    assert "0 messages, 0 answered" in out
