"""Print the first numbers of each tensor on a topic, as 'ros2 topic echo' would: python examples/listen.py /digits."""

from __future__ import annotations

import argparse
import threading

import numpy as np

from pipeline.ros.configuration import Quality
from pipeline.ros.messages import cdr
from pipeline.ros.transports.base import choose_domain
from pipeline.ros.transports.dds import Dds

TENSOR = "soc_pipeline_msgs/msg/Tensor"

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("topic")
parser.add_argument("--messages", type=int, default=100, help="how many are taken")
parser.add_argument("--localhost", action="store_true", help="this machine only, without multicast")
options = parser.parse_args()
remaining = iter(range(options.messages - 1, -1, -1))
finished = threading.Event()


def show(payload: bytes) -> None:
    message = cdr.decode(payload, TENSOR)
    stamp, values = message.header.stamp, message.data.view(np.dtype(message.dtype))
    print(f"{stamp.sec}.{stamp.nanosec:09d} {message.name} {message.shape.tolist()}: {values[:4]}")
    if next(remaining, 0) == 0:
        finished.set()


with Dds(choose_domain(None), localhost=options.localhost) as transport:
    transport.subscribe(options.topic, TENSOR, Quality(), show)
    finished.wait()
