"""Options of ``soc-pipeline run``, and their meanings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.commands.shared import card_options, cluster, console, model_options, trace_option, updates, values, view
from pipeline.errors import InputError, PlanError

if TYPE_CHECKING:
    from pipeline.core.model_card import Preparation
    from pipeline.core.plan.plan import Plan
    from pipeline.executor.bundle import Bundle
    from pipeline.io.sources.base import FrameSource, SourceOptions
    from pipeline.scheduler.options import PipelineKeywords


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "bundle",
        metavar="MODEL",
        help="a bundle, as 'soc-pipeline build' writes it, or a model, as 'plan' reads it: built on its first run, and "
        "kept in ~/.cache/soc-pipeline",
    )
    parser.add_argument(
        "--device",
        metavar="NAME=DEVICE",
        type=values.device,
        action="append",
        default=[],
        help="what stands for a device of the plan here, such as gpu=cuda:1 or board=remote://127.0.0.1:9123/cpu; may "
        "be repeated",
    )
    parser.add_argument(
        "--server",
        metavar="ADDRESS",
        default="",
        help="servers that run the bundle as one program ('serve --run'), such as remote://127.0.0.1:9123/bundle, or "
        "pool:ADDRESS,ADDRESS for several that share the frames",
    )
    signature_argument(parser)
    _source_arguments(parser)
    _sink_arguments(parser)
    card_options.arguments(parser)
    model_options.arguments(parser)
    _pipeline_arguments(parser)
    updates.arguments(parser)
    cluster.arguments(parser)
    trace_option.argument(parser)
    view.argument(parser)
    parser.add_argument(
        "--metrics",
        metavar="PORT",
        type=values.port,
        help="serve metrics for Prometheus on this machine's loopback address; 0 takes a free port and says which",
    )
    parser.add_argument("--json", action="store_true", help="print the statistics as JSON")


def signature_argument(parser: argparse.ArgumentParser) -> None:
    """Declare who must have signed a bundle."""
    parser.add_argument(
        "--require-signature",
        metavar="ALLOWED",
        type=Path,
        help="refuse a bundle that nobody in this file of OpenSSH's allowed signers has signed",
    )


def _source_arguments(parser: argparse.ArgumentParser) -> None:
    source_group = parser.add_mutually_exclusive_group(required=True)
    source_group.add_argument(
        "--source",
        metavar="SOURCE",
        action="append",
        default=[],
        help="camera:/dev/video0 (?size=640x480&encoding=mjpeg), rtsp://..., gst:PIPELINE of GStreamer, exec:COMMAND "
        "that writes pictures (?size=640x480&format=yuv420p), a video file, bag:PATH (?topic=TOPIC) of ROS 2, "
        "pattern:640x480@30, watch:FOLDER for files that others put there, or what --input takes; several share the "
        "model, and each has its sinks by {stream} in --sink",
    )
    source_group.add_argument(
        "--input",
        metavar="PATH",
        action=values.Once,
        nargs="+",
        help=".npy (one frame, or frames along a new first axis), .npz (inputs by name), images, or folders of these",
    )
    parser.add_argument(
        "--fps",
        metavar="N",
        type=values.positive,
        help="what a camera is set to, or the pace at which a recording is played",
    )
    parser.add_argument(
        "--speed",
        metavar="X",
        type=values.positive,
        help="play a recording at X times its own pace, instead of as fast as it goes",
    )
    parser.add_argument("--frames", metavar="N", type=values.count, help="end after N frames of the source")
    parser.add_argument(
        "--reconnect",
        metavar="SECONDS",
        type=values.positive,
        help="how long to try again when a camera or stream is lost (default: not at all)",
    )


def _sink_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sink",
        "--output",
        metavar="SINK",
        action="append",
        default=[],
        help="one .npz with all outputs stacked, a folder for one .npz per frame, FILE.jsonl, - for JSON lines on "
        "standard output, bag:PATH (?storage=sqlite3), mjpeg:PORT for browsers, gst:PIPELINE, a "
        "photo (.jpg .png .webp; the next ones are numbered; photo:FOLDER for one per frame), or a video file: the "
        "source's pictures with the decoded results (?labels=FILE&least=SCORE; ?show=label or ?show=boxes for a bundle "
        "without a decoder), else the pictures that the model makes; ?encoder=hardware or an encoder of FFmpeg's, "
        "&preset=NAME, &bitrate=4M, &threads=N; ?encoder=ffv1 loses nothing; may be repeated; "
        "without it results are printed; whatever ends the stream, what was recorded until then is kept",
    )


def _pipeline_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what happens to frames")
    group.add_argument(
        "--admission",
        metavar="POLICY",
        help="of a frame that finds no room: block (default for recordings), latest (default for what is live), "
        "drop-oldest, or deadline",
    )
    group.add_argument(
        "--waiting", metavar="N", type=values.count, help="how many frames may wait, where frames are dropped"
    )
    group.add_argument(
        "--deadline",
        metavar="SECONDS",
        type=values.positive,
        help="from capture to the result, for --admission deadline",
    )
    group.add_argument(
        "--on-error", metavar="WHAT", default="stop", help="stop (default) at the first frame that fails, or skip it"
    )
    group.add_argument(
        "--stage-timeout",
        metavar="[STAGE=]SECONDS",
        type=values.stage_seconds,
        action="append",
        default=[],
        help="how long a stage may run on one frame; may be repeated, for several stages",
    )
    group.add_argument(
        "--on-timeout", metavar="WHAT", default="fail-frame", help="fail-frame (default) or fail-pipeline"
    )
    group.add_argument(
        "--compile",
        metavar="MODEL",
        help="what the bundle was built from: makes builds for frames of new sizes meanwhile, and keeps them",
    )


def check_sources(options: argparse.Namespace) -> None:
    """Raise `InputError` for sources that cannot be, before a model is built for them."""
    from pipeline.io.sources import files, registry

    if options.fps is not None and options.speed is not None:
        raise InputError("--fps and --speed both give a pace; give one of them")
    if options.input and options.reconnect:
        raise InputError("--reconnect is for what is live; files cannot be lost")
    files.find([Path(path) for path in options.input or ()])
    for text in options.source:
        registry.check_source(text, _source_options(options))


def source(options: argparse.Namespace, bundle: Bundle, preparation: Preparation) -> FrameSource:
    """Open the options' source, or raise `InputError`."""
    from pipeline.io.sources import base, registry
    from pipeline.io.sources.files import Files

    fps, speed, plan = options.fps, options.speed, bundle.plan
    if options.input:
        paths = [Path(path) for path in options.input]
        files = Files(paths, plan.inputs, preparation, plan.quantization, bundle.pictures)
        # Files have no pace of their own unless they are given one.
        return base.PacedSource(files, fps, speed) if fps or speed else files
    facts = {"quantizations": plan.quantization, "pictures": bundle.pictures}
    opened_options = _source_options(options, specs=plan.inputs, preparation=preparation, **facts)
    return registry.open_source(options.source[0], opened_options)


def _source_options(options: argparse.Namespace, **facts: Any) -> SourceOptions:
    from pipeline.io.sources.base import SourceOptions

    pace = {"fps": options.fps, "speed": options.speed, "reconnect": options.reconnect or 0.0}
    # What is on the command line is the user's own.
    return SourceOptions(**pace, **facts, notice=console.notice, allow_commands=True)


def pipeline_options(options: argparse.Namespace, stream: FrameSource, plan: Plan) -> PipelineKeywords:
    """Return the options of the pipeline itself, or raise `PlanError`."""
    from pipeline.io.stream import POLICIES
    from pipeline.scheduler.admission import Admission
    from pipeline.scheduler.options import Supervision
    from pipeline.scheduler.switch_interval import choose_interval

    numbers = {"waiting": options.waiting, "deadline": options.deadline}
    try:
        # Made before the bundle is loaded into a pipeline.
        admission = Admission(
            options.admission or POLICIES[stream.live],
            **{name: value for name, value in numbers.items() if value is not None},
        )
        supervision = Supervision(options.on_error, _limits(options.stage_timeout), options.on_timeout)
        supervision.check(stage.name for stage in plan.stages)
    except ValueError as error:
        raise PlanError(str(error)) from None
    interval = choose_interval(plan)
    return {"admission": admission, "supervision": supervision, "switch_interval": interval}


def _limits(pairs: Sequence[tuple[str, float]]) -> float | dict[str, float]:
    """Return the limit of all stages, or limits by name."""
    limits = dict(pairs)
    # The empty name stands for all stages.
    if "" not in limits:
        return limits
    if len(limits) > 1:
        raise PlanError("--stage-timeout gives a limit for all stages, and others by name; give one or the other")
    return limits[""]
