"""A node of ROS 2 with Fast DDS: publishes pictures, takes what `soc-pipeline node` answers, prints JSON.

python rclpy_peer.py COUNT HEIGHT WIDTH, in the environment that `make ros-peers` makes.
"""

import json
import sys
import time
from typing import Any

import numpy as np
import rclpy
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image

PATIENCE_S = 100.0


def message(number: int, height: int, width: int, name: str = "frame") -> Any:
    pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), np.uint8)
    image = Image(height=height, width=width, encoding="rgb8", step=3 * width)
    image.header.stamp.sec, image.header.stamp.nanosec = 1700000000 + number, number
    image.header.frame_id = f"{name} {number}"
    image.data = pixels.tobytes()
    return image


def main(count: int, height: int, width: int) -> None:
    rclpy.init()
    node = rclpy.create_node("peer")
    quality = QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=400, reliability=ReliabilityPolicy.RELIABLE)
    received: list[Any] = []
    publisher = node.create_publisher(Image, "camera", quality)
    subscription = node.create_subscription(Image, "inverted", received.append, quality)
    assert subscription is not None  # it lives as long as this
    end = time.monotonic() + PATIENCE_S
    # Only an answer shows that the other side has heard of both: what is sent before is lost.
    while not received and time.monotonic() < end:
        publisher.publish(message(0, height, width, "trial"))
        rclpy.spin_once(node, timeout_sec=0.2)

    def answers() -> list[Any]:
        return [image for image in received if image.header.frame_id.startswith("frame")]

    for number in range(count):
        publisher.publish(message(number, height, width))
        # What is behind by more than the node keeps would be lost.
        while number >= len(answers()) + 5 and time.monotonic() < end:
            rclpy.spin_once(node, timeout_sec=0.05)
    while len(answers()) < count and time.monotonic() < end:
        rclpy.spin_once(node, timeout_sec=0.05)
    rows = [
        [image.header.stamp.sec, image.header.stamp.nanosec, image.header.frame_id, image.height, image.width,
         bytes(image.data).hex()]
        for image in answers()
    ]  # fmt: skip
    print(json.dumps(rows))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
