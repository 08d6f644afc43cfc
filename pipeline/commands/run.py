"""``soc-pipeline run``: stream files through a bundle."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pipeline
from pipeline.commands import common, live
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.io.files import Frame, Sink
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.scheduler.statistics import Statistics

HELP = "Stream inputs through a bundle and save the outputs, in order."
EXAMPLE = "soc-pipeline run model.bundle --input frames/ --output results.npz"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("bundle", metavar="BUNDLE", help="a folder from 'soc-pipeline build'")
    parser.add_argument(
        "--input",
        metavar="PATH",
        nargs="+",
        required=True,
        help=".npy (one frame, or frames along a new first axis), .npz (inputs by name), images, or folders of these",
    )
    parser.add_argument(
        "--output",
        metavar="PATH",
        help="one .npz with all outputs stacked, or a folder for one .npz per frame; without it nothing is saved",
    )
    parser.add_argument(
        "--compile",
        metavar="MODEL",
        help="what the bundle was built from: makes builds for frames of new sizes meanwhile, and keeps them",
    )
    common.trace_argument(parser)
    parser.add_argument(
        "--metrics",
        metavar="PORT",
        help="serve metrics for Prometheus on this machine's loopback address; 0 takes a free port and says which",
    )
    parser.add_argument("--json", action="store_true", help="print the statistics as JSON")


def run(options: argparse.Namespace) -> int:
    """Check the inputs, stream them, save and report."""
    # Where nothing is compiled, the small runtime starts faster and needs less memory.
    if not options.compile:
        os.environ.setdefault("TVM_USE_RUNTIME_LIB", "1")
    from pipeline.executor.bundle import Bundle
    from pipeline.io import files

    port = _port(options.metrics)
    bundle = Bundle.load(options.bundle)
    frames = files.frames(files.find([Path(path) for path in options.input]), bundle.plan.inputs)
    with common.tracing(options.trace, bundle.plan) as trace, files.sink(options.output, bundle.plan.outputs) as sink:
        loading = {"on_new_shape": "compile", "model": options.compile} if options.compile else {}
        statistics = _stream(bundle, frames, sink, port=port, trace=trace, **loading)
    _report(statistics, options)
    return 0


def _port(text: str | None) -> int | None:
    if text is not None and not text.isdecimal():
        raise InputError(f"--metrics is {text!r}; it must be a port, or 0 for one that is free")
    return None if text is None else int(text)


def _stream(bundle: Bundle, frames: Iterable[Frame], sink: Sink, *, port: int | None, **options: Any) -> Statistics:
    names: deque[str] = deque()

    def arrays() -> Iterator[object]:
        for name, inputs in frames:
            names.append(name)
            yield inputs

    with live.Display("streaming") as display, pipeline.load(bundle, **options) as running, _metrics(running, port):
        display.watch(running.statistics)
        for result in running.map(arrays()):
            sink.add(names.popleft(), result)
    return running.statistics()


def _metrics(running: Pipeline, port: int | None) -> contextlib.AbstractContextManager[object]:
    if port is None:
        return contextlib.nullcontext()
    from pipeline import metrics

    server = metrics.serve(running, port)
    common.notice(f"metrics: {server.url}")
    return server


def _report(statistics: Statistics, options: argparse.Namespace) -> None:
    if options.json:
        common.print_json(statistics)
        return
    out = common.console()
    out.print(f"{statistics.delivered} frames, {statistics.frames_per_s:.1f} frames/s")
    for what, path in (("Outputs", options.output), ("Trace", options.trace)):
        if path:
            out.print(f"{what}: {path}", soft_wrap=True)
