"""Play a topic of a bag over DDS, where there is no ROS: python examples/play_bag.py recording."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rosbags.highlevel import AnyReader

from pipeline.ros.configuration import Quality
from pipeline.ros.transports.base import choose_domain
from pipeline.ros.transports.dds import Dds

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("bag", type=Path)
parser.add_argument("--topic", default="/image")
parser.add_argument("--rate", type=float, default=1.0, help="how many times faster than recorded")
parser.add_argument("--localhost", action="store_true", help="this machine only, without multicast")
options = parser.parse_args()

with AnyReader([options.bag]) as reader, Dds(choose_domain(None), localhost=options.localhost) as transport:
    connections = [each for each in reader.connections if each.topic == options.topic]
    if not connections:
        parser.error(f"no {options.topic} in {options.bag}; there are {', '.join(reader.topics)}")
    send = transport.publisher(options.topic, connections[0].msgtype, Quality())
    time.sleep(1.0)  # until subscribers know of it
    begin = time.time()
    for _, stamp, payload in reader.messages(connections):
        time.sleep(max(0.0, begin + (stamp - reader.start_time) / 1e9 / options.rate - time.time()))
        send(payload, stamp)
