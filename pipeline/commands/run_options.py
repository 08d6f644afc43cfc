"""The options of ``soc-pipeline run``, and what they mean."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.commands import common, view
from pipeline.errors import InputError, PlanError

if TYPE_CHECKING:
    from pipeline.io.prepare import Preparation
    from pipeline.io.source import Source
    from pipeline.plans import Plan, TensorSpec


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a folder from 'soc-pipeline build'")
    _source_arguments(parser)
    _preparation_arguments(parser)
    _pipeline_arguments(parser)
    common.trace_argument(parser)
    view.argument(parser)
    parser.add_argument(
        "--metrics",
        metavar="PORT",
        help="serve metrics for Prometheus on this machine's loopback address; 0 takes a free port and says which",
    )
    parser.add_argument("--json", action="store_true", help="print the statistics as JSON")


def _source_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--source",
        metavar="SOURCE",
        help="camera:/dev/video0 (?size=640x480&encoding=mjpeg), rtsp://..., a video file, bag:PATH (?topic=TOPIC) of "
        "ROS 2, pattern:640x480@30, or what --input takes",
    )
    where.add_argument(
        "--input",
        metavar="PATH",
        nargs="+",
        help=".npy (one frame, or frames along a new first axis), .npz (inputs by name), images, or folders of these",
    )
    parser.add_argument(
        "--sink",
        "--output",
        metavar="SINK",
        action="append",
        default=[],
        help="one .npz with all outputs stacked, a folder for one .npz per frame, FILE.jsonl (jsonl:- prints), "
        "bag:PATH (?storage=sqlite3), or a video file: the pictures that the model makes, or the source's with what "
        "was found, by ?show=label or ?show=boxes (&labels=FILE); ?codec=ffv1 loses nothing; may be "
        "repeated; without it nothing is saved",
    )
    parser.add_argument(
        "--fps", metavar="N", help="what a camera is set to, or the pace at which a recording is played"
    )
    parser.add_argument(
        "--speed", metavar="X", help="play a recording at X times its own pace, instead of as fast as it goes"
    )
    parser.add_argument("--frames", metavar="N", help="end after N frames of the source")
    parser.add_argument(
        "--reconnect",
        metavar="SECONDS",
        help="how long to try again when a camera or stream is lost (default: not at all)",
    )


def _preparation_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how pictures become the model's input")
    group.add_argument("--resize", default="stretch", help="stretch (default), letterbox or crop")
    group.add_argument(
        "--mean", metavar="R,G,B", default="0", help="what is subtracted, from values of 0 to 1 (default: 0)"
    )
    group.add_argument("--std", metavar="R,G,B", default="1", help="what is divided by then (default: 1)")
    group.add_argument("--channels", default="rgb", help="their order in the model: rgb (default) or bgr")


def _pipeline_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what happens to frames")
    group.add_argument(
        "--admission",
        metavar="POLICY",
        help="of a frame that finds no room: block (default for recordings), latest (default for what is live), "
        "drop-oldest, or deadline",
    )
    group.add_argument("--waiting", metavar="N", help="how many frames may wait, where frames are dropped")
    group.add_argument("--deadline", metavar="SECONDS", help="from capture to the result, for --admission deadline")
    group.add_argument(
        "--on-error", metavar="WHAT", default="stop", help="stop (default) at the first frame that fails, or skip it"
    )
    group.add_argument(
        "--stage-timeout",
        metavar="[STAGE=]SECONDS",
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


def source(options: argparse.Namespace, specs: Sequence[TensorSpec], preparation: Preparation) -> Source:
    """Open the source that the options name.

    Raises
    ------
    InputError
        If there is none.
    """
    from pipeline.io import pacing, sources
    from pipeline.io.files import Files

    fps, speed = (_above_0(name, getattr(options, name)) for name in ("fps", "speed"))
    if fps is not None and speed is not None:
        raise InputError("--fps and --speed both give a pace; give one of them")
    reconnect = _above_0("reconnect", options.reconnect) or 0.0
    if options.input:
        if reconnect:
            raise InputError("--reconnect is for what is live; files cannot be lost")
        found = Files([Path(path) for path in options.input], specs, preparation)
        return pacing.Paced(found, fps, speed) if fps or speed else found
    return sources.source(
        options.source, sources.Options(specs, preparation, fps, speed, reconnect, notice=common.notice)
    )


def preparation(options: argparse.Namespace) -> Preparation:
    """Return how pictures become inputs.

    Raises
    ------
    InputError
        If an option makes no sense.
    """
    from pipeline.io.prepare import Preparation

    mean, std = (_numbers(name, getattr(options, name)) for name in ("mean", "std"))
    return Preparation(options.resize, mean, std, options.channels)


def pipeline_options(options: argparse.Namespace, found: Source, plan: Plan) -> dict[str, Any]:
    """Return the options of the pipeline itself.

    Raises
    ------
    PlanError
        If one is unknown, or does not go with the others.
    """
    from pipeline.io.streaming import POLICIES
    from pipeline.scheduler.admission import Admission
    from pipeline.scheduler.supervision import Supervision

    chosen = {
        "admission": options.admission or POLICIES[found.live],
        "on_error": options.on_error,
        "on_timeout": options.on_timeout,
    }
    deadline = _above_0("deadline", options.deadline)
    numbers = {"waiting": options.waiting and common.whole("--waiting", options.waiting), "deadline": deadline}
    chosen |= {name: value for name, value in numbers.items() if value is not None}
    limits = _limits(options.stage_timeout)
    try:
        Admission(chosen["admission"], chosen.get("waiting", 0), chosen.get("deadline", float("inf")))
        Supervision(options.on_error, {} if limits is None else limits, options.on_timeout).check(
            stage.name for stage in plan.stages
        )
    except ValueError as error:
        raise PlanError(str(error)) from None
    return chosen | ({} if limits is None else {"stage_timeout": limits})


def port(text: str | None) -> int | None:
    """Return the port for metrics, None for none.

    Raises
    ------
    InputError
        If it is none.
    """
    if text is not None and not text.isdecimal():
        raise InputError(f"--metrics is {text!r}; it must be a port, or 0 for one that is free")
    return None if text is None else int(text)


def _above_0(name: str, text: str | None) -> float | None:
    return None if text is None else common.number(f"--{name}", text)


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--{name} is {text!r}; it must be a number, or three such as 0.485,0.456,0.406") from None


def _limits(texts: Sequence[str]) -> float | dict[str, float] | None:
    """Return the limit for all stages, or those by name."""
    pairs = [text.rpartition("=") for text in texts]
    limits = {name: common.number("--stage-timeout", seconds) for name, _, seconds in pairs}
    if "" not in limits:
        return limits or None
    if len(limits) > 1:
        raise PlanError("--stage-timeout gives a limit for all stages, and others by name; give one or the other")
    return limits[""]
