"""A node of ROS 2 that does what it is told: a call as JSON per line of its input, the answer per line of its output.

python rclpy_peer.py NAME, in an environment of a release of ROS 2, without this project.
"""

import json
import sys
import threading
import time
from importlib import import_module
from typing import Any

import numpy as np
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

PATIENCE_S = 150.0


def kind(name: str) -> Any:
    package, group, message = name.split("/")
    return getattr(import_module(f"{package}.{group}"), message)


def quality(reliable: bool, latched: bool = False, depth: int = 400) -> QoSProfile:
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


def plain(value: Any) -> Any:
    """Return a message as JSON has it, bytes as hexadecimal digits."""
    if hasattr(value, "get_fields_and_field_types"):
        return {name: plain(getattr(value, name)) for name in value.get_fields_and_field_types()}
    if isinstance(value, bytes) or getattr(value, "typecode", "") == "B":
        return bytes(value).hex()
    if isinstance(value, list | tuple) or hasattr(value, "tolist"):
        return [plain(each) for each in value]
    return value


def fill(message: Any, values: dict[str, Any]) -> Any:
    """Set the fields of a message, of messages inside by their own."""
    for name, value in values.items():
        inner = getattr(message, name)
        if isinstance(value, dict) and hasattr(inner, "get_fields_and_field_types"):
            fill(inner, value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            type_name = message.get_fields_and_field_types()[name].partition("<")[2].rstrip(">")
            element = kind(type_name.replace("/", "/msg/", 1))
            setattr(message, name, [fill(element(), each) for each in value])
        else:
            setattr(message, name, bytes.fromhex(value) if isinstance(inner, bytes) else value)
    return message


class Peer:
    def __init__(self, name: str) -> None:
        rclpy.init()
        self.node = rclpy.create_node(name)
        self.publishers: dict[str, Any] = {}
        self.subscribers: dict[str, Any] = {}
        self.received: dict[str, list[Any]] = {}
        executor = SingleThreadedExecutor()
        executor.add_node(self.node)
        threading.Thread(target=executor.spin, daemon=True).start()

    def advertise(self, topic: str, type: str, reliable: bool = True, latched: bool = False) -> None:  # noqa: A002
        self.publishers[topic] = self.node.create_publisher(kind(type), topic, quality(reliable, latched))

    def subscribe(self, topic: str, type: str, reliable: bool = True, latched: bool = False) -> None:  # noqa: A002
        messages = self.received.setdefault(topic, [])
        self.subscribers[topic] = self.node.create_subscription(
            kind(type), topic, messages.append, quality(reliable, latched)
        )

    def wait(self, topic: str) -> bool:
        """Wait until somebody is at the other end."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if topic in self.publishers and self.publishers[topic].get_subscription_count():
                return True
            if topic in self.subscribers and self.node.count_publishers(topic):
                return True
            time.sleep(0.02)
        return False

    def images(self, topic: str, *, first: int, count: int, height: int, width: int, rate: float = 100) -> None:
        for number in range(first, first + count):
            pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), np.uint8)
            image = kind("sensor_msgs/msg/Image")(height=height, width=width, encoding="rgb8", step=3 * width)
            image.header.stamp.sec, image.header.stamp.nanosec = 1700000000 + number, number
            image.header.frame_id = f"frame {number}"
            image.data = pixels.tobytes()
            self.publishers[topic].publish(image)
            time.sleep(1 / rate)

    def send(self, topic: str, type: str, values: dict[str, Any]) -> None:  # noqa: A002
        self.publishers[topic].publish(fill(kind(type)(), values))

    def take(self, topic: str, count: int = 0, last: str = "") -> Any:
        """Return what has come, after waiting for so many, or for that of a frame."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            messages = self.received[topic]
            if len(messages) >= count and (not last or (messages and messages[-1].header.frame_id == last)):
                break
            time.sleep(0.02)
        messages, self.received[topic][:] = list(self.received[topic]), []
        return [plain(message) for message in messages]

    def call(self, service: str, type: str, values: dict[str, Any]) -> Any:  # noqa: A002
        client = self.node.create_client(kind(type), service)
        assert client.wait_for_service(PATIENCE_S), f"no service {service}"
        future = client.call_async(fill(kind(type).Request(), values))
        end = time.monotonic() + PATIENCE_S
        while not future.done() and time.monotonic() < end:
            time.sleep(0.01)
        return plain(future.result())


def main(name: str) -> None:
    peer = Peer(name)
    for line in sys.stdin:
        method, arguments = json.loads(line)
        print(json.dumps(getattr(peer, method)(**arguments)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
