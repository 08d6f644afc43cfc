"""Record a source as a bag, without ROS: python examples/record_bag.py pattern:640x480@30 recording."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path

from pipeline.core.plan.plan import TensorSpec
from pipeline.io.source_frame import StreamFrame
from pipeline.io.sources.base import SourceOptions
from pipeline.io.sources.registry import open_source
from pipeline.ros.bag_sink import BagSink

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("source", help="as for 'soc-pipeline run': camera:/dev/video0, drive.mp4, pattern:640x480@30, ...")
parser.add_argument("bag", type=Path, help="the bag's folder; its topic is /image")
parser.add_argument("--frames", type=int, default=150)
options = parser.parse_args()

with open_source(options.source, SourceOptions(allow_commands=True)) as frames:
    if frames.pixels is None:
        parser.error(f"{options.source} has no pictures that are all alike")
    picture = TensorSpec("image", (frames.pixels.height, frames.pixels.width, 3), "uint8")
    with BagSink(options.bag, [picture]) as bag:
        for frame in islice(frames, options.frames):
            bag.add(StreamFrame(frame, {"image": frames.pixels.rgb(frame.inputs)}))
