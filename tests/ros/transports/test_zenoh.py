"""Zenoh on loopback: two sessions at a router, as nodes on rmw_zenoh are."""

from __future__ import annotations

import socket
import struct
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pipeline.errors import InputError
from pipeline.ros.configuration import Quality
from pipeline.ros.messages import cdr
from tests.support.ros.samples import picture

zenoh = pytest.importorskip("zenoh")

from pipeline.ros.transports.zenoh import Zenoh, key  # noqa: E402 - it may be missing

IMAGE = "sensor_msgs/msg/Image"
KEY = "7/camera/front/sensor_msgs::msg::dds_::Image_/"
HASH = "RIHS01_d31d41a9a4c4bc8eae9be757b0beed306564f7526c88ea6a4588fb9582527d47"
PATIENCE_S = 60


def free_port() -> int:
    with socket.socket() as payloads:
        payloads.bind(("127.0.0.1", 0))
        return int(payloads.getsockname()[1])


@pytest.fixture
def router() -> Iterator[str]:
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    settings = zenoh.Config()
    settings.insert_json5("mode", '"router"')
    settings.insert_json5("listen/endpoints", f'["{endpoint}"]')
    settings.insert_json5("scouting/multicast/enabled", "false")
    with zenoh.open(settings):
        yield endpoint


def peer(endpoint: str) -> Any:
    settings = zenoh.Config()
    settings.insert_json5("mode", '"client"')
    settings.insert_json5("connect/endpoints", f'["{endpoint}"]')
    settings.insert_json5("scouting/multicast/enabled", "false")
    return zenoh.open(settings)


def payload(number: int) -> bytes:
    return bytes(cdr.encode(picture(np.full((2, 2, 3), number, np.uint8), number), IMAGE))


def test_what_is_published_has_the_key_and_the_attachment_of_rmw_zenoh(router: str) -> None:
    samples: list[Any] = []
    arrival = threading.Event()

    def collect(sample: Any) -> None:
        samples.append(sample)
        if len(samples) == 3:
            arrival.set()

    with peer(router) as peer_session, Zenoh(7, localhost=True, endpoints=(router,)) as transport:
        subscriber = peer_session.declare_subscriber(KEY + "*", collect)
        send = transport.publisher("/camera/front", IMAGE, Quality())
        # Until the router has told of the subscriber, nothing is sent to it.
        while not arrival.wait(0.05):
            send(payload(1), 1700000000000000001)
        subscriber.undeclare()
    assert {str(each.key_expr) for each in samples} == {KEY + HASH}
    assert {each.payload.to_bytes() for each in samples} == {payload(1)}
    attachments = [struct.unpack("<qqB16s", each.attachment.to_bytes()) for each in samples]
    assert [each[0] - attachments[0][0] for each in attachments] == list(range(len(samples)))
    assert {each[1:3] for each in attachments} == {(1700000000000000001, 16)}
    assert len({each[3] for each in attachments}) == 1


def test_messages_come_in_order_and_none_is_lost_if_it_is_reliable(router: str) -> None:
    payloads: list[bytes] = []
    beginning, arrival = threading.Event(), threading.Event()

    def receive(data: bytes) -> None:
        beginning.set()
        if data != payload(255):
            payloads.append(data)
        if len(payloads) == 100:
            arrival.set()

    with peer(router) as peer_session, Zenoh(7, localhost=True, endpoints=(router,)) as transport:
        transport.subscribe("/camera/front", IMAGE, Quality(depth=3), receive)
        while not beginning.wait(0.05):
            peer_session.put(KEY + HASH, payload(255))
        for number in range(100):
            peer_session.put(KEY + HASH, payload(number), congestion_control=zenoh.CongestionControl.BLOCK)
        assert arrival.wait(PATIENCE_S)
    assert payloads == [payload(number) for number in range(100)]


def test_a_receiver_of_sensor_data_that_is_behind_gets_the_newest(router: str) -> None:
    payloads: list[bytes] = []
    beginning, gate, last = threading.Event(), threading.Event(), threading.Event()

    def receive(data: bytes) -> None:
        beginning.set()
        assert gate.wait(PATIENCE_S)
        payloads.append(data)
        if data == payload(99):
            last.set()

    with peer(router) as peer_session, Zenoh(7, localhost=True, endpoints=(router,)) as transport:
        transport.subscribe("/camera/front", IMAGE, Quality(reliable=False, depth=3), receive)
        while not beginning.wait(0.05):
            peer_session.put(KEY + HASH, payload(255))
        for number in range(100):
            peer_session.put(KEY + HASH, payload(number), congestion_control=zenoh.CongestionControl.BLOCK)
        gate.set()
        assert last.wait(PATIENCE_S)
    assert payloads[-1] == payload(99)


def test_without_a_router_the_error_says_how_to_start_one() -> None:
    with pytest.raises(InputError, match=r"no Zenoh router at tcp/127\.0\.0\.1"):
        Zenoh(7, localhost=True, endpoints=(f"tcp/127.0.0.1:{free_port()}",))


def test_keys_are_those_of_rmw_zenoh() -> None:
    assert key(7, "/camera/front", IMAGE, HASH) == KEY + HASH


TOKEN = "@ros2_lv/{domain}/f00/0/3/{entity}/%/%/camera_driver/%camera%front/{kind}/" + HASH + "/2::,5:,:,:,,"
COMPRESSED = "sensor_msgs::msg::dds_::CompressedImage_"


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


def test_peers_are_found_by_the_tokens_of_rmw_zenoh_and_other_types_and_domains_told(router: str) -> None:
    with peer(router) as peer_session, warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        liveliness = peer_session.liveliness()
        with Zenoh(7, localhost=True, endpoints=(router,), name="node", namespace="/robot") as transport:
            endpoint = transport.subscribe("/camera/front", IMAGE, Quality(), lambda _: None)
            # The peer sees the node, its topic and its quality, as `ros2 topic list` does.
            replies = {str(reply.ok.key_expr) for reply in liveliness.get("@ros2_lv/7/**") if reply.ok}
            assert {key.split("/", 4)[4].partition("/")[2] for key in replies} == {
                "NN/%/%robot/node",
                f"MS/%/%robot/node/%camera%front/sensor_msgs::msg::dds_::Image_/{HASH}/::,10:,:,:,,",
            }
            assert endpoint.peers() == 0
            elsewhere = liveliness.declare_token(
                TOKEN.format(domain=9, entity="MP", kind="sensor_msgs::msg::dds_::Image_")
            )
            wait_for(lambda: "in domain 7; there are publishers in domain 9" in transport.find_similar(IMAGE))
            # Of another type; qualities are not compared, since Zenoh brings messages to any.
            token = liveliness.declare_token(TOKEN.format(domain=7, entity="MP", kind=COMPRESSED))
            wait_for(lambda: records)
            matching = liveliness.declare_token(
                TOKEN.format(domain=7, entity="MP", kind="sensor_msgs::msg::dds_::Image_")
            )
            wait_for(endpoint.peers)
            for each in (elsewhere, token, matching):
                each.undeclare()
            wait_for(lambda: not endpoint.peers())
    (record,) = records
    assert str(record.message) == (
        f"topic '/camera/front': a peer publishes sensor_msgs/msg/CompressedImage, but this participant subscribes to "
        f"{IMAGE}; nothing passes between them"
    )
