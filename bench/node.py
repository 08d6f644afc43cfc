"""Cost of the node for ROS 2 beside the pipeline itself.

A recorded bag of 640x480 images is played over DDS on loopback, the node lets a bundle of two stages work, and a
receiver takes what it publishes; each is a process of its own.

round_trip_ms_*  from when the recorded bytes are handed to the bus until those of the answer are received
pipeline_ms_p50  of that within the pipeline, from submission to result, by its own statistics
overhead_ms_p50  the difference: the node's codecs, the bus twice, and its queues (target: at most 3)
bus_ms_p50       of that, the bus alone: the same images there and back through a program that only sends them on
codec_ms_p50     of that, decoding and encoding one image
sent, received, dropped, published: what became of the images; ordered: whether the answers have the recorded stamps,
each at most once and in order; balanced: whether the node's books are

digits: images are prepared for the demo's network, and scores published; inverter: images in and images out.
At ten times real time the quality decides: of sensor data the newest is answered, of a reliable topic every image that
the middleware kept, which forgets the oldest where more than the topic's depth wait.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from bag_player import (
    DOMAIN,
    FPS,
    HEIGHT,
    IMAGE,
    PATIENCE_S,
    WIDTH,
    Play,
    Times,
    echo,
    exchange,
    image,
    record,
    round_trips,
)
from onnx import TensorProto, helper
from report import Row, parser, percentile, report

import pipeline
from pipeline.ros.configuration import Quality
from pipeline.ros.messages import cdr

TENSOR = "soc_pipeline_msgs/msg/Tensor"
DIGITS = Path(pipeline.__file__).parent / "demo" / "digits.onnx"
DEPTH = {True: 100, False: 5}
"""Whether it is reliable -> messages that a topic keeps for who is behind."""
MILLI = 1e3


@dataclass(frozen=True)
class Case:
    model: str
    kind: str
    reliable: bool
    speed: int = 1

    @property
    def output(self) -> str:
        """Name of the output to publish; empty for the only one."""
        return "image" if self.kind == IMAGE else ""

    @property
    def quality(self) -> Quality:
        """Quality of service of both topics."""
        return Quality(self.reliable, DEPTH[self.reliable])

    def play(self, folder: Path) -> Play:
        """Return how the bag is played for it."""
        return Play(folder / "bag", self.quality, self.kind, self.speed)


CASES = (
    Case("digits", TENSOR, reliable=True),
    Case("digits", TENSOR, reliable=False),
    Case("inverter", IMAGE, reliable=True),
    Case("inverter", IMAGE, reliable=False),
    Case("inverter", IMAGE, reliable=True, speed=10),
    Case("inverter", IMAGE, reliable=False, speed=10),
)


def main() -> None:
    options = parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stamps = record(folder / "bag", FPS * (5 if options.quick else 20))
        bundles = {"digits": bundle(DIGITS, folder), "inverter": bundle(inverter(folder), folder)}
        bus, codec = bus_ms(folder), codec_ms()
        rows = []
        for case in CASES:
            result = measure(case, bundles[case.model], folder, stamps)
            # Only images at their own pace have a like with which the bus was measured alone.
            bus_time = bus[case.reliable] if case.kind == IMAGE and case.speed == 1 else None
            rows.append({**result, "bus_ms_p50": bus_time, "codec_ms_p50": codec})
    report("The node's cost beside the pipeline", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def bundle(model: Path, folder: Path) -> Path:
    """Build and save a model in two stages."""
    graph, path = pipeline.read(model), folder / f"{model.stem}.bundle"
    pipeline.build(graph, pipeline.plan(graph, stages=2), check=False).save(path)
    return path


def inverter(folder: Path) -> Path:
    """Save a model that subtracts a picture from white."""
    shape, path = (HEIGHT, WIDTH, 3), folder / "inverter.onnx"
    nodes = [
        helper.make_node("Cast", ["picture"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Neg", ["real"], ["negative"]),
        helper.make_node("Cast", ["negative"], ["whole"], to=TensorProto.INT32),
        helper.make_node("Cast", ["whole"], ["image"], to=TensorProto.UINT8),
        # What is read twice can be cut.
        helper.make_node("ReduceMean", ["real"], ["mean"], keepdims=1),
    ]
    picture, image = (helper.make_tensor_value_info(name, TensorProto.UINT8, shape) for name in ("picture", "image"))
    mean = helper.make_tensor_value_info("mean", TensorProto.FLOAT, (1, 1, 1))
    graph = helper.make_graph(nodes, "inverter", [picture], [image, mean])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def measure(case: Case, path: Path, folder: Path, stamps: list[int]) -> Row:
    """Return the row of one case."""
    quality = {"reliable": case.reliable, "depth": case.quality.depth}
    # JSON is YAML, too.
    content = {
        "bundle": str(path), "domain": DOMAIN, "localhost": True, "subscribe": {"topic": "/camera", "qos": quality},
        "publish": [{"topic": "/answers", "type": case.kind, "output": case.output, "qos": quality}],
    }  # fmt: skip
    configuration = folder / "node.yaml"
    configuration.write_text(json.dumps(content))
    line = [sys.executable, "-m", "pipeline.cli", "node", "--config", str(configuration), "--json"]
    node = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert node.stderr is not None
    node.stderr.readline()  # it has subscribed
    send_times, answer_times = exchange(case.play(folder))
    # A node that is asked to end prints its counts.
    node.send_signal(signal.SIGTERM)
    out, trouble = node.communicate(timeout=PATIENCE_S)
    assert node.returncode == 0, trouble
    summary = json.loads(out)
    return row(case, send_times, answer_times, stamps, summary)


def bus_ms(folder: Path) -> dict[bool, float]:
    """Return the time there and back where nothing else is done, for both qualities."""
    medians = {}
    for reliable in (True, False):
        play = Case("", IMAGE, reliable).play(folder)
        with echo(play):
            medians[reliable] = percentile(round_trips(*exchange(play)), 0.5) * MILLI
    return medians


def row(case: Case, send_times: Times, answer_times: Times, stamps: list[int], summary: dict[str, Any]) -> Row:
    counts, statistics = summary["counts"], summary["statistics"]
    times, pipeline_s = round_trips(send_times, answer_times), statistics["latency_s"]["p50"]
    lost_frames = counts["refused"] + statistics["failed"] + statistics["cancelled"] + counts["unpublished"]
    dropped_frames = sum(statistics["dropped"].values())
    answered_stamps = [stamp for stamp, _ in answer_times]
    answer_set = set(answered_stamps)
    return {
        "model": case.model,
        "quality": "reliable" if case.reliable else "sensor_data",
        "speed": case.speed,
        "round_trip_ms_p50": percentile(times, 0.5) * MILLI,
        "round_trip_ms_p99": percentile(times, 0.99) * MILLI,
        "pipeline_ms_p50": pipeline_s * MILLI,
        "overhead_ms_p50": (percentile(times, 0.5) - pipeline_s) * MILLI,
        "sent": len(send_times),
        "received": counts["received"],
        "dropped": dropped_frames,
        "published": counts["published"],
        "ordered": answered_stamps == [stamp for stamp in stamps if stamp in answer_set],
        "balanced": counts["received"] == counts["published"] + dropped_frames + lost_frames,
    }


def codec_ms() -> float:
    """Return the time for encoding and decoding one image."""
    message, times = image(np.zeros((HEIGHT, WIDTH, 3), np.uint8), 1), []
    for _ in range(100):
        begin = time.perf_counter()
        cdr.decode(cdr.encode(message, IMAGE), IMAGE)
        times.append(time.perf_counter() - begin)
    return percentile(times, 0.5) * MILLI


if __name__ == "__main__":
    main()
