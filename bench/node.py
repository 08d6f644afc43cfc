"""What does the node for ROS 2 cost, beside the pipeline itself?

A camera publishes 640x480 images over DDS on loopback, the node lets a bundle of two stages work, and a receiver takes
what it publishes; each is a process of its own.

round_trip_ms_*  from the stamp, before the image is encoded, until the receiver has decoded the answer
pipeline_ms_p50  of that within the pipeline, from submission to result, by its own statistics
overhead_ms_p50  the difference: two codecs on each way, the bus twice, and two queues (target: at most 3)
codec_ms_p50     of that, encoding and decoding one image
sent, received, dropped, published: what became of the images; balanced: whether the node's books are

digits: images are prepared for the demo's network, and scores published; inverter: images in and images out.
At 300 frames/s, ten times real time, the subscription's quality decides: sensor data drops, reliable holds back.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from report import Row, parser, percentile, report

import pipeline
from pipeline.io.ros import cdr
from pipeline.io.ros.configuration import Quality
from pipeline.io.ros.messages import TYPES
from pipeline.io.ros.over_dds import Dds

HEIGHT, WIDTH = 480, 640
IMAGE, TENSOR = "sensor_msgs/msg/Image", "soc_pipeline_msgs/msg/Tensor"
DIGITS = Path(pipeline.__file__).parent / "demo" / "digits.onnx"
DOMAIN = 20 + os.getpid() % 200
"""Of this process; others are told."""
MILLI = 1e3
PATIENCE_S = 60


@dataclass(frozen=True)
class Case:
    model: str
    kind: str
    reliable: bool
    fps: int

    @property
    def output(self) -> str:
        """What is published of the model's outputs."""
        return "image" if self.kind == IMAGE else ""


CASES = (
    Case("digits", TENSOR, reliable=True, fps=30),
    Case("digits", TENSOR, reliable=False, fps=30),
    Case("inverter", IMAGE, reliable=True, fps=30),
    Case("inverter", IMAGE, reliable=False, fps=30),
    Case("inverter", IMAGE, reliable=True, fps=300),
    Case("inverter", IMAGE, reliable=False, fps=300),
)


def main() -> None:
    options = parser(__doc__).parse_args()
    seconds = 4 if options.quick else 20
    codec = codec_ms()
    with tempfile.TemporaryDirectory() as folder:
        bundles = {"digits": bundle(DIGITS, Path(folder)), "inverter": bundle(inverter(Path(folder)), Path(folder))}
        rows = [{**measure(case, bundles[case.model], Path(folder), seconds), "codec_ms_p50": codec} for case in CASES]
    report("The node's cost beside the pipeline", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def bundle(model: Path, folder: Path) -> Path:
    """Build and save it in two stages."""
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


def measure(case: Case, path: Path, folder: Path, seconds: int) -> Row:
    """Return the row of one case."""
    quality = {"reliable": case.reliable, "depth": 10}
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
    round_trips, sent = exchange(case, seconds)
    node.send_signal(signal.SIGTERM)
    ended = json.loads(node.communicate(timeout=PATIENCE_S)[0])
    return row(case, round_trips, sent, ended)


def exchange(case: Case, seconds: int) -> tuple[list[float], int]:
    """Return the times of all round trips in seconds, and how many images were sent."""
    context = multiprocessing.get_context("spawn")
    stop, ready = context.Event(), context.Event()
    mine, theirs = context.Pipe()
    receiver = context.Process(target=receive, args=(DOMAIN, case, ready, stop, theirs))
    camera = context.Process(target=publish, args=(DOMAIN, case, seconds, ready, theirs))
    receiver.start()
    camera.start()
    sent = mine.recv()
    camera.join()
    time.sleep(1.0)  # for the last answers
    stop.set()
    found = mine.recv()
    receiver.join()
    return found, sent


def publish(domain: int, case: Case, seconds: int, ready: Event, result: Connection) -> None:
    """Be the camera."""
    pixels = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    with Dds(domain, localhost=True) as transport:
        send = transport.publisher("/camera", IMAGE, Quality(case.reliable, 10))
        ready.wait(PATIENCE_S)
        time.sleep(1.0)  # until all know each other
        begin, count = time.perf_counter(), seconds * case.fps
        for number in range(count):
            stamp = time.time_ns()
            send(cdr.encode(image(pixels, stamp), IMAGE), stamp)
            time.sleep(max(0.0, begin + (number + 1) / case.fps - time.perf_counter()))
    result.send(count)


def receive(domain: int, case: Case, ready: Event, stop: Event, result: Connection) -> None:
    """Take the answers."""
    found: list[float] = []

    def take(payload: bytes) -> None:
        stamp = cdr.decode(payload, case.kind).header.stamp
        found.append(time.time() - stamp.sec - stamp.nanosec / 1e9)

    with Dds(domain, localhost=True) as transport:
        transport.subscribe("/answers", case.kind, Quality(case.reliable, 10), take)
        ready.set()
        stop.wait()
    result.send(found)


def image(pixels: np.ndarray, stamp: int) -> Any:
    header = TYPES["std_msgs/msg/Header"](TYPES["builtin_interfaces/msg/Time"](*divmod(stamp, 10**9)), "camera")
    return TYPES[IMAGE](header, HEIGHT, WIDTH, "rgb8", 0, 3 * WIDTH, pixels.reshape(-1))


def row(case: Case, round_trips: list[float], sent: int, ended: dict[str, Any]) -> Row:
    counts, statistics = ended["counts"], ended["statistics"]
    # The first ones find cold caches, and the pipeline not yet open.
    steady = round_trips[case.fps :] or round_trips or [float("nan")]
    inside = statistics["latency_s"]["p50"]
    lost = counts["refused"] + statistics["failed"] + statistics["cancelled"] + counts["unpublished"]
    dropped = sum(statistics["dropped"].values())
    return {
        "model": case.model,
        "quality": "reliable" if case.reliable else "sensor_data",
        "frames_per_s": case.fps,
        "round_trip_ms_p50": percentile(steady, 0.5) * MILLI,
        "round_trip_ms_p99": percentile(steady, 0.99) * MILLI,
        "pipeline_ms_p50": inside * MILLI,
        "overhead_ms_p50": (percentile(steady, 0.5) - inside) * MILLI,
        "sent": sent,
        "received": counts["received"],
        "dropped": dropped,
        "published": counts["published"],
        "balanced": counts["received"] == counts["published"] + dropped + lost,
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
