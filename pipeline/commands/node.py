"""``soc-pipeline node``: run a bundle as a node of ROS 2."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipeline.commands.shared import console, termination, view
from pipeline.commands.shared.run_options import signature_argument
from pipeline.errors import InputError
from pipeline.system.service_manager import ready_service

if TYPE_CHECKING:
    from pipeline.picture.geometry import Geometry
    from pipeline.picture.pixels import Pixels
    from pipeline.ros.configuration import Configuration
    from pipeline.ros.messages.diagnostics import Condition
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.scheduler.waiting import Latch

HELP = "Run a bundle as a node of ROS 2: images in, results out, with stamps and frame ids; needs no ROS here."
EXAMPLE = "soc-pipeline node --config node.yaml --set subscribe.topic=/camera/image_raw"

# Read by a test as a configuration.
SAMPLE = """\
# A node for 'soc-pipeline node --config node.yaml'. Paths are relative to this file.
bundle: model.bundle
# devices: {gpu: "cuda:1"}     # what stands here for devices of its plan
name: soc_pipeline
# namespace: /robot
transport: dds                # dds, zenoh (rmw_zenoh), or rclpy (a ROS installation)
autostart: true               # false: others configure and activate the node; rclpy only
use_sim_time: false           # true: the time of /clock
# domain: 0                   # default: ROS_DOMAIN_ID
localhost: false              # true: this machine only, without multicast
octets: false                 # true: call uint8 octet, for programs (not ROS nodes) with Cyclone DDS 0.10
subscribe:
  topic: /camera/image_raw
  type: sensor_msgs/msg/Image # or sensor_msgs/msg/CompressedImage, std_msgs/msg/Float32MultiArray, ...
  qos: sensor_data            # or reliable, or {reliable: true, depth: 20}
publish:
  - topic: /detections
    type: vision_msgs/msg/Detection2DArray  # of the model's decoder; or Classification, and Image for masks
    # output: boxes           # without a decoder: rows of left, top, right, bottom, score, class
    score: 0.5
    qos: reliable
# - topic: /mask
#   type: sensor_msgs/msg/Image
#   encoding: mono8
# - topic: /annotated         # drawn while somebody subscribes
#   type: sensor_msgs/msg/Image
#   part: annotated           # or masks: numbers of boxes, or points: key points as a tensor
# - topic: /features
#   type: soc_pipeline_msgs/msg/Tensor      # any array, with a header; or std_msgs/msg/Float32MultiArray
# admission: latest           # default: latest for sensor_data, block for reliable
# deadline: 0.1               # seconds, for the admission deadline
# # card: model.toml            # instead of the model's own
labels: [person, bicycle, car] # or a file with one name per line; default: the model's
# decode: yolox               # default: the decoder of the model's card
prepare: {resize: letterbox, mean: [0.5], std: [0.5], channels: bgr}  # otherwise than in the model's card
diagnostics: /diagnostics     # once a second; "" for none
# statistics: /statistics     # age and period of messages, as statistics_msgs
# dropped: /dropped           # headers of messages that the admission dropped
# camera_info: /camera/camera_info  # passed on by a publication of type sensor_msgs/msg/CameraInfo
patience: 10                  # seconds without a publisher until that is told
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    action_group = parser.add_mutually_exclusive_group()
    action_group.add_argument(
        "--config", metavar="FILE", default="", help="YAML: bundle, topics, policy; may be a ROS 2 parameter file"
    )
    action_group.add_argument(
        "--sample", action="store_true", help="print a configuration to start from, every key commented"
    )
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="changes",
        help="otherwise than in the file, such as publish.0.score=0.3; may be repeated",
    )  # fmt: skip
    signature_argument(parser)
    view.argument(parser)
    parser.add_argument("--json", action="store_true", help="print the statistics as JSON in the end")
    parser.add_argument(
        "--ros-args",
        nargs=argparse.REMAINDER,
        metavar="ARGUMENT",
        help="last of all, as ros2 launch gives them: --params-file FILE, -p NAME:=VALUE, -r FROM:=TO, -r __ns:=/robot",
    )


def run(options: argparse.Namespace) -> int:
    """Answer messages until Ctrl-C, SIGTERM or SIGHUP."""
    if options.sample:
        sys.stdout.write(SAMPLE)
        return 0
    if not options.config and options.ros_args is None:
        raise InputError("give --config FILE, --sample, or --ros-args")
    from pipeline.executor.bundle import Bundle
    from pipeline.io.frame_view import FrameView
    from pipeline.io.result_reader import make_reader
    from pipeline.ros.configuration_file import read_configuration
    from pipeline.ros.lifecycle import Lifecycle
    from pipeline.ros.ros_arguments import RosArguments
    from pipeline.ros.transports.base import connect

    config = read_configuration(options.config or "", options.changes, RosArguments.parse(options.ros_args or ()))

    def load(config: Configuration) -> Bundle:
        return Bundle.load(config.bundle, config.devices, require_signature=options.require_signature)

    # The signals first: none may tear what opens the transport.
    with _interruption() as stop, view.serve_view(options.view) as (server, trace), connect(config) as transport:

        def show(running: Pipeline, pixels: Pixels | None, geometry: Geometry | None) -> None:
            if server is not None:
                bundle = load(lifecycle.configuration)
                reader = make_reader(bundle.plan, lifecycle.configuration.complete_card(bundle))
                server.show(running, pixels.rgb if pixels else None, FrameView(reader, geometry, pixels))

        with Lifecycle(config, load, transport, _Reports(), on_open=show, trace=trace) as lifecycle:
            transport.manage(lifecycle)
            console.notice(_topic_text(config))
            with ready_service():
                lifecycle.run(stop)
        # Behind the block, so that the answers of its end are counted.
        _report(lifecycle.condition(), options)
    return 0


@contextlib.contextmanager
def _interruption() -> Iterator[Latch]:
    """Yield a latch for Ctrl-C, SIGTERM and SIGHUP; a repeated Ctrl-C interrupts."""
    from pipeline.scheduler.waiting import Latch

    # A `threading.Event` that a handler sets may be locked by the very thread that it interrupts.
    stop = Latch()

    def ask(number: int, _: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    with termination.handlers(ask):
        yield stop


class _Reports:
    """Reports errors, but not repeated ones."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, error: Exception) -> None:
        kind = f"{type(error).__name__}: {error}" if not isinstance(error, InputError) else str(error)
        if kind != self._last:
            console.notice(f"soc-pipeline: {kind}")
        self._last = kind


def _topic_text(config: Configuration) -> str:
    out = ", ".join(f"{publication.topic} ({publication.type})" for publication in config.publish)
    source = config.subscribe
    facts = f"{source.topic} ({source.type}) -> {out}; admission {config.policy}; end with Ctrl-C"
    return facts if config.autostart else f"waits for configure and activate: {facts}"


def _report(condition: Condition, options: argparse.Namespace) -> None:
    if options.json:
        console.print_json(condition)
        return
    counts, statistics = condition.counts, condition.statistics
    out = console.console()
    out.print(
        f"{counts.received} messages, {counts.published} answered, {condition.dropped} dropped, "
        f"{condition.lost} without an answer by error"
    )
    if statistics is not None and statistics.delivered:
        latency = statistics.latency_s
        out.print(
            f"pipeline: {statistics.frames_per_s:.1f} frames/s, latency p50 {latency.p50 * 1e3:.2f} ms, "
            f"p99 {latency.p99 * 1e3:.2f} ms"
        )
