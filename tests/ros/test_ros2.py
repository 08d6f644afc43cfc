"""The node among nodes of ROS 2: its releases, over our own DDS and as a managed node of rclpy.

`make test-ros` installs the releases, from the package index, and runs this.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.ros import onnx_bundle
from tests.support.ros.ros2 import RELEASES, Ros2Peer, find_python, settings

pytestmark = pytest.mark.slow
pytest.importorskip("cyclonedds")

IMAGE = "sensor_msgs/msg/Image"
HEIGHT, WIDTH = 24, 32
PATIENCE_S = 150
RELIABLE = {"reliable": True, "depth": 100}


class Running:
    """The node as a process, with the lines that it prints to its user."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.child, self.lines = child, list[str]()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.child.stderr is not None
        for line in self.child.stderr:
            self.lines.append(line.rstrip())

    def wait_for(self, words: str) -> str:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for line in tuple(self.lines):
                if words in line:
                    return line
            time.sleep(0.02)
        raise AssertionError(f"{words!r} is not among {self.lines}")

    def end(self) -> dict[str, Any]:
        self.child.send_signal(signal.SIGTERM)
        self.child.wait(PATIENCE_S)
        assert self.child.stdout is not None
        assert self.child.returncode == 0, self.lines
        return json.loads(self.child.stdout.read())  # type: ignore[no-any-return]


@pytest.fixture(params=RELEASES)
def python(request: pytest.FixtureRequest, root: Path) -> Path:
    """Interpreter of a release."""
    return find_python(root, request.param)


@pytest.fixture(params=["dds", "rclpy"])
def start(  # noqa: PLR0917 - fixtures
    request: pytest.FixtureRequest, python: Path, domain: int, bundle: Path, tmp_path: Path,
    process: Callable[..., subprocess.Popen[str]],
) -> Callable[..., Running]:  # fmt: skip
    """Start the node over a transport."""
    return starter(request.param, python, domain, bundle, tmp_path, process)


@pytest.fixture
def managed(
    python: Path, domain: int, bundle: Path, tmp_path: Path, process: Callable[..., subprocess.Popen[str]]
) -> Callable[..., Running]:
    """Start the node over rclpy."""
    return starter("rclpy", python, domain, bundle, tmp_path, process)


def starter(  # noqa: PLR0917
    transport: str, python: Path, domain: int, bundle: Path, folder: Path, process: Callable[..., Any]
) -> Callable[..., Running]:
    def begin(*arguments: str, wait: bool = True, **changes: Any) -> Running:
        content = {
            "bundle": str(bundle),
            "transport": transport,
            "domain": domain,
            "localhost": True,
            "subscribe": {"topic": "camera", "qos": RELIABLE},
            "publish": {"inverted": {"topic": "inverted", "type": IMAGE, "output": "image", "qos": RELIABLE}},
            **changes,
        }
        path = folder / "node.yaml"
        path.write_text(json.dumps(content))
        interpreter = python if transport == "rclpy" else sys.executable
        line = (interpreter, "-m", "pipeline.cli", "node", "--json", "--config", path, *arguments)
        running = Running(process(*line, **settings(content["domain"], folder)))
        if wait:
            running.wait_for("->")
        return running

    return begin


@pytest.fixture
def peer(python: Path, domain: int, tmp_path: Path) -> Iterator[Callable[..., Ros2Peer]]:
    """Start nodes of ROS 2, which end with the test."""
    peers: list[Ros2Peer] = []

    def begin(name: str = "peer", other_domain: int | None = None) -> Ros2Peer:
        peers.append(Ros2Peer(python, settings(other_domain or domain, tmp_path), name))
        return peers[-1]

    yield begin
    for each in peers:
        each.kill()


def exchange(node: Ros2Peer, first: int, count: int, rate: float = 100) -> list[Any]:
    node.images(topic="/camera", first=first, count=count, height=HEIGHT, width=WIDTH, rate=rate)
    return node.take(topic="/inverted", count=count)  # type: ignore[no-any-return]


PROBES = ("frame 98", "frame 99")
"""Frames by which both ends come to know of each other."""

DIAGNOSTICS = "diagnostic_msgs/msg/DiagnosticArray"


def find(node: Ros2Peer) -> None:
    node.advertise(topic="/camera", type=IMAGE)
    node.subscribe(topic="/inverted", type=IMAGE)
    assert node.wait(topic="/camera")
    assert node.wait(topic="/inverted")


def meet(node: Ros2Peer, images: str = "/camera", answers: str = "/inverted") -> list[str]:
    """Send probes until their answers come, and return what else came meanwhile.

    What is sent before both ends know of each other is lost, as with any node of ROS 2, and neither end sees when the
    other one does.
    """

    def send(number: int) -> None:
        node.images(topic=images, first=number, count=1, height=HEIGHT, width=WIDTH)

    messages: list[Any] = []
    end = time.monotonic() + PATIENCE_S
    while not any(each["header"]["frame_id"] in PROBES for each in messages):
        assert time.monotonic() < end, "no answer"
        send(98)
        messages += node.take(topic=answers)
    send(99)
    # Answers come in order.
    messages += node.take(topic=answers, last=PROBES[-1])
    return [frame for each in messages if (frame := each["header"]["frame_id"]) not in PROBES]


def connect(node: Ros2Peer) -> None:
    find(node)
    assert meet(node) == []


def count_messages(node: Ros2Peer) -> dict[str, int]:
    """Return the counts by the node's diagnostics, of a second in which no message comes."""
    node.subscribe(topic="/diagnostics", type=DIAGNOSTICS)
    # The first one may be of a moment in which an answer was on its way.
    status = node.take(topic="/diagnostics", count=2)[-1]["status"][0]
    values = {each["key"]: each["value"] for each in status["values"]}
    return {name: int(values[name]) for name in ("received", "refused", "published", "unpublished")}


def check(answers: list[Any], first: int, count: int) -> None:
    assert [each["header"] for each in answers] == [
        {"stamp": {"sec": 1700000000 + number, "nanosec": number}, "frame_id": f"frame {number}"}
        for number in range(first, first + count)
    ]
    for number, each in enumerate(answers, start=first):
        pixels = np.random.default_rng(number).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
        assert bytes.fromhex(each["data"]) == onnx_bundle.inverted(pixels).tobytes()


def check_counts(running: Running, before: dict[str, int], count: int) -> None:
    """Check that so many messages more were received and answered, and none was refused or lost ever."""
    received, published = (before[name] + count for name in ("received", "published"))
    assert before["received"] == before["published"]
    counts = running.end()["counts"]
    assert counts == {"received": received, "refused": 0, "dropped": 0, "published": published, "unpublished": 0}


def test_300_images_are_answered_in_order_with_stamp_and_frame(
    start: Callable[..., Running], peer: Callable[..., Ros2Peer]
) -> None:
    running, camera = start(), peer()
    connect(camera)
    before = count_messages(camera)
    check(exchange(camera, 0, 300), 0, 300)
    check_counts(running, before, 300)


def test_the_first_picture_of_many_pieces_is_answered(
    start: Callable[..., Running], peer: Callable[..., Ros2Peer], large: Path
) -> None:
    """Cyclone forgot it: Fast DDS says where a publisher begins before Cyclone knows of the publisher."""
    start(bundle=str(large))
    camera = peer()
    find(camera)
    # Neither end sees when the other one is ready.
    time.sleep(2)
    camera.images(topic="/camera", first=0, count=3, height=480, width=640, rate=2)
    assert [each["header"]["frame_id"] for each in camera.take(topic="/inverted", last="frame 2")] == [
        "frame 0", "frame 1", "frame 2",
    ]  # fmt: skip


def test_sound_is_a_tensor_of_std_msgs(
    start: Callable[..., Running], peer: Callable[..., Ros2Peer], tmp_path: Path
) -> None:
    onnx_bundle.save_peak(tmp_path / "peak.bundle", 1600)
    peak = {"topic": "peak", "type": "std_msgs/msg/Float32MultiArray", "qos": RELIABLE}
    sound = {"topic": "sound", "type": "std_msgs/msg/Int16MultiArray", "qos": RELIABLE}
    start(bundle=str(tmp_path / "peak.bundle"), subscribe=sound, publish={"peak": peak})
    microphone = peer()
    microphone.advertise(topic="/sound", type=sound["type"])
    microphone.subscribe(topic="/peak", type=peak["type"])
    assert microphone.wait(topic="/sound")
    assert microphone.wait(topic="/peak")
    samples = [round(20000 * math.sin(number / 7)) for number in range(1600)]
    messages: list[Any] = []
    end = time.monotonic() + PATIENCE_S
    while not messages and time.monotonic() < end:
        microphone.send(topic="/sound", type=sound["type"], values={"data": samples})
        messages = microphone.take(topic="/peak")
    assert messages[0]["data"] == [max(samples)]


def test_masks_are_an_image_of_the_numbers_of_boxes(
    start: Callable[..., Running], peer: Callable[..., Ros2Peer], tmp_path: Path
) -> None:
    onnx_bundle.save_segmenter(tmp_path / "segmenter.bundle")
    start(
        bundle=str(tmp_path / "segmenter.bundle"),
        decode="yolov8-seg",
        labels=["cat"],
        publish={"masks": {"topic": "masks", "type": IMAGE, "part": "masks", "qos": RELIABLE}},
    )
    camera = peer()
    camera.advertise(topic="/camera", type=IMAGE)
    camera.subscribe(topic="/masks", type=IMAGE)
    assert camera.wait(topic="/camera")
    assert camera.wait(topic="/masks")
    messages: list[Any] = []
    end = time.monotonic() + PATIENCE_S
    while not messages and time.monotonic() < end:
        camera.images(topic="/camera", first=7, count=1, height=32, width=32)
        messages = camera.take(topic="/masks")
    assert (messages[0]["header"]["frame_id"], messages[0]["encoding"]) == ("frame 7", "mono16")
    expected = np.zeros((32, 32), np.uint16)
    expected[8:16, 8:24] = 1
    np.testing.assert_array_equal(
        np.frombuffer(bytes.fromhex(messages[0]["data"]), np.uint16).reshape(32, 32), expected
    )


def test_a_peer_and_a_node_that_were_killed_find_each_other_again(
    start: Callable[..., Running], peer: Callable[..., Ros2Peer]
) -> None:
    running, camera = start(), peer()
    connect(camera)
    check(exchange(camera, 0, 10), 0, 10)
    camera.kill()
    camera = peer("second")
    find(camera)
    # It may get what the first one was sent and had not confirmed.
    assert set(meet(camera)) <= {f"frame {number}" for number in range(10)}
    check(exchange(camera, 10, 10), 10, 10)
    running.child.kill()
    running.child.wait()
    running = start()
    assert meet(camera) == []
    check(exchange(camera, 20, 10), 20, 10)


@pytest.mark.parametrize(
    ("topic", "type_name", "options", "words"),
    [
        ("/camera", "sensor_msgs/msg/CompressedImage", {},
         "topic '/camera': a peer publishes sensor_msgs/msg/CompressedImage, but this participant subscribes to"),
        ("/camera", IMAGE, {"reliable": False},
         "topic '/camera': a peer publishes it as best effort, but this participant subscribes to it reliably"),
        ("/inverted", IMAGE, {"latched": True},
         "topic '/inverted': a peer subscribes to it as transient local, but this participant publishes it as vol"),
        ("/inverted", "sensor_msgs/msg/CompressedImage", {},
         "topic '/inverted': a peer subscribes to sensor_msgs/msg/CompressedImage, but this participant publishes"),
    ],
    ids=["type", "best-effort", "latched", "type-of-subscriber"],
)  # fmt: skip
def test_a_peer_that_never_matches_is_told_of_in_one_line(  # noqa: PLR0917 - parameters
    start: Callable[..., Running], peer: Callable[..., Ros2Peer], topic: str, type_name: str, options: dict[str, Any],
    words: str,
) -> None:  # fmt: skip
    running, other = start(), peer()
    (other.advertise if topic == "/camera" else other.subscribe)(topic=topic, type=type_name, **options)
    assert running.wait_for(words).endswith("nothing passes between them")
    running.end()
    assert sum(words in line for line in running.lines) == 1


def test_a_topic_without_a_publisher_is_told_of_with_what_could_be_meant(
    start: Callable[..., Running], peer: Callable[..., Ros2Peer]
) -> None:
    other = peer()
    other.advertise(topic="/front/image_raw", type=IMAGE)
    running = start(patience=3)
    line = running.wait_for(f"no publisher of '/camera' ({IMAGE}) for 3 s")
    assert "of that type there are /front/image_raw" in line
    # Again, once one was there and has gone.
    connect(other)
    check(exchange(other, 0, 3), 0, 3)


def test_a_publisher_in_another_domain_is_hinted_at(
    start: Callable[..., Running], peer: Callable[..., Ros2Peer], domain: int
) -> None:
    other_domain = (domain + 7) % 100 + 1
    peer(other_domain=other_domain).advertise(topic="/camera", type=IMAGE)
    line = start(patience=3).wait_for("no publisher of '/camera'")
    assert f"in domain {domain}; on this machine there are nodes in domain" in line
    assert str(other_domain) in line.partition("nodes in domain")[2]


def test_names_and_parameters_are_those_that_ros2_launch_hands_over(
    start: Callable[..., Running], peer: Callable[..., Ros2Peer], tmp_path: Path
) -> None:
    parameters = tmp_path / "parameters.yaml"
    parameters.write_text("/**:\n  ros__parameters:\n    diagnostics: status\n    publish.inverted.topic: ~/result\n")
    names = ["-r", "__node:=detector", "-r", "__ns:=/robot", "-r", "camera:=/front/image"]
    start("--ros-args", *names, "--params-file", str(parameters), "-p", "patience:=2.0")
    other = peer()
    other.advertise(topic="/front/image", type=IMAGE)
    other.subscribe(topic="/robot/detector/result", type=IMAGE)
    other.subscribe(topic="/robot/status", type=DIAGNOSTICS)
    assert other.wait(topic="/front/image")
    assert other.wait(topic="/robot/detector/result")
    assert meet(other, "/front/image", "/robot/detector/result") == []
    other.images(topic="/front/image", first=0, count=3, height=HEIGHT, width=WIDTH)
    check(other.take(topic="/robot/detector/result", count=3), 0, 3)
    status = other.take(topic="/robot/status", count=2)[-1]["status"]
    assert status[0]["name"] == "detector: pipeline"


def test_the_clock_of_a_simulation_is_the_nodes(start: Callable[..., Running], peer: Callable[..., Ros2Peer]) -> None:
    start(use_sim_time=True)
    other = peer()
    other.advertise(topic="/clock", type="rosgraph_msgs/msg/Clock", reliable=False)
    other.subscribe(topic="/diagnostics", type=DIAGNOSTICS)
    connect(other)
    assert other.wait(topic="/clock")
    stamps: list[int] = []
    end = time.monotonic() + PATIENCE_S
    while 77 not in stamps and time.monotonic() < end:
        other.send(topic="/clock", type="rosgraph_msgs/msg/Clock", values={"clock": {"sec": 77}})
        stamps = [each["header"]["stamp"]["sec"] for each in other.take(topic="/diagnostics")]
        time.sleep(0.1)
    assert 77 in stamps
    check(exchange(other, 0, 5), 0, 5)


NODE = "/soc_pipeline"


def change_state(other: Ros2Peer, transition: int) -> tuple[bool, str]:
    answer = other.call(
        service=f"{NODE}/change_state", type="lifecycle_msgs/srv/ChangeState", values={"transition": {"id": transition}}
    )
    return answer["success"], state(other)


def state(other: Ros2Peer) -> str:
    answer = other.call(service=f"{NODE}/get_state", type="lifecycle_msgs/srv/GetState", values={})
    return answer["current_state"]["label"]  # type: ignore[no-any-return]


def trigger(other: Ros2Peer, name: str) -> tuple[bool, str]:
    answer = other.call(service=f"{NODE}/{name}", type="std_srvs/srv/Trigger", values={})
    return answer["success"], answer["message"]


def set_parameter(other: Ros2Peer, name: str, **value: Any) -> tuple[bool, str]:
    (result,) = other.call(
        service=f"{NODE}/set_parameters",
        type="rcl_interfaces/srv/SetParameters",
        values={"parameters": [{"name": name, "value": value}]},
    )["results"]
    return result["successful"], result["reason"]


CONFIGURE, CLEANUP, ACTIVATE, DEACTIVATE = 1, 2, 3, 4


def test_others_configure_and_activate_a_node_that_does_not_start_itself(
    managed: Callable[..., Running], peer: Callable[..., Ros2Peer]
) -> None:
    running, other = managed(autostart=False), peer()
    assert "waits for configure and activate" in running.lines[0]
    assert state(other) == "unconfigured"
    assert change_state(other, CONFIGURE) == (True, "inactive")
    assert change_state(other, ACTIVATE) == (True, "active")
    connect(other)
    check(exchange(other, 0, 5), 0, 5)
    assert change_state(other, DEACTIVATE) == (True, "inactive")
    other.images(topic="/camera", first=90, count=3, height=HEIGHT, width=WIDTH)
    assert change_state(other, ACTIVATE) == (True, "active")
    assert other.wait(topic="/camera")
    assert meet(other) == []
    check(exchange(other, 5, 5), 5, 5)
    assert change_state(other, DEACTIVATE) == (True, "inactive")
    assert change_state(other, CLEANUP) == (True, "unconfigured")
    # An error goes by the state for errors, and the node can be configured again.
    before = other.call(
        service=f"{NODE}/get_parameters", type="rcl_interfaces/srv/GetParameters", values={"names": ["bundle"]}
    )["values"][0]["string_value"]
    assert set_parameter(other, "bundle", type=4, string_value="/nowhere.bundle") == (True, "")
    assert change_state(other, CONFIGURE) == (False, "unconfigured")
    running.wait_for("'/nowhere.bundle' does not exist")
    assert set_parameter(other, "bundle", type=4, string_value=before) == (True, "")
    assert change_state(other, CONFIGURE) == (True, "inactive")
    assert change_state(other, ACTIVATE) == (True, "active")


def test_services_pause_resume_and_swap(
    managed: Callable[..., Running], peer: Callable[..., Ros2Peer], bundle: Path, tmp_path: Path
) -> None:
    running, other = managed(), peer()
    assert state(other) == "active"
    connect(other)
    before = count_messages(other)
    assert trigger(other, "pause") == (True, "paused")
    other.images(topic="/camera", first=90, count=3, height=HEIGHT, width=WIDTH)
    assert trigger(other, "resume") == (True, "answering")
    check(exchange(other, 0, 5), 0, 5)
    assert set_parameter(other, "bundle", type=4, string_value="/nowhere.bundle") == (True, "")
    success, message = trigger(other, "swap")
    assert (success, "'/nowhere.bundle' does not exist" in message) == (False, True)
    (tmp_path / "copy.bundle").symlink_to(bundle)
    copy = str(tmp_path / "copy.bundle")
    assert set_parameter(other, "bundle", type=4, string_value=copy) == (True, "")
    assert trigger(other, "swap") == (True, f"running {copy}")
    check(exchange(other, 5, 5), 5, 5)
    check_counts(running, before, 10)


def test_parameters_are_listed_read_and_checked(managed: Callable[..., Running], peer: Callable[..., Ros2Peer]) -> None:
    managed()
    other = peer()
    names = other.call(service=f"{NODE}/list_parameters", type="rcl_interfaces/srv/ListParameters", values={})
    assert {"bundle", "publish.inverted.score", "subscribe.topic", "use_sim_time"} <= {*names["result"]["names"]}
    assert set_parameter(other, "publish.inverted.score", type=3, double_value=0.75) == (True, "")
    (value,) = other.call(
        service=f"{NODE}/get_parameters",
        type="rcl_interfaces/srv/GetParameters",
        values={"names": ["publish.inverted.score"]},
    )["values"]
    assert value["double_value"] == 0.75
    success, reason = set_parameter(other, "publish.inverted.score", type=4, string_value="much")
    assert (success, "Expected `float`, got `str`" in reason) == (False, True)
    success, reason = set_parameter(other, "subscribe.topic", type=4, string_value="/other")
    assert (success, reason) == (False, "subscribe cannot change now: clean up the node first")
