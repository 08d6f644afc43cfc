"""Frames per second of two stages on two cores over the unsplit model on one.

The nine light networks of the onnx package with random weights, cut by the planner from measured operators, without
any tuning.  Unsplit on one core, unsplit on both cores, and pipelined take turns in one run; all values are medians.

ratio                   pipelined over unsplit on one core: at most 2, less what the cuts cannot balance
predicted_frames_per_s  what the plan said before anything was streamed
bottleneck              the busiest stage; busy_* is the share of the time in which a stage runs
relative_error          of the pipeline's answer to the unsplit model's, as a share of its largest value
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import models
from report import Row, parser, report

import boards
import pipeline
from pipeline.core.board.board import Board
from pipeline.measure.comparison import Comparison, compare

STAGES = 2
QUICK = ("squeezenet", "shufflenet")


def main() -> None:
    options = arguments()
    names = options.models or (QUICK if options.quick else models.NAMES)
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(name, Path(folder)) for name in names]
    report("Two stages on two cores, and the unsplit model", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--models", nargs="+", choices=models.NAMES, metavar="NAME", help=", ".join(models.NAMES))
    return options.parse_args()


def row(name: str, folder: Path) -> Row:
    """Plan, build and measure one network."""
    show = progress(name)
    file = models.write(name, folder)
    graph = pipeline.read(file)
    # The largest has half a gigabyte.
    file.unlink()
    plan = pipeline.plan(graph, two_cores(), stages=STAGES, measure=True, progress=show)
    bundle = pipeline.build(graph, plan, progress=show)
    comparison = compare(graph, bundle, progress=show)
    return result(name, comparison, bundle.parity.relative)


def two_cores() -> Board:
    """Return this machine with as many cores as there are stages."""
    # A larger machine would let the unsplit model use cores that the pipeline does not have.
    host = boards.get("host")
    return replace(host, devices=tuple(replace(device, cores=device.cores[:STAGES]) for device in host.devices))


def progress(name: str) -> Callable[[str], None]:
    """Return a function that shows what is being done, in one line; a log gets the model's name only."""
    if not sys.stderr.isatty():
        print(name, file=sys.stderr, flush=True)
        return lambda _: None
    return lambda text: print(f"\r{name}: {text}\033[K", end="", file=sys.stderr, flush=True)


def result(name: str, comparison: Comparison, error: float) -> Row:
    """Return one line of the table."""
    one_core, all_cores, pipelined = comparison.variants
    return {
        "model": name,
        "stages": len(pipelined.stages),
        "serial_1core_frames_per_s": one_core.frames_per_s,
        "serial_allcores_frames_per_s": all_cores.frames_per_s,
        "pipelined_frames_per_s": pipelined.frames_per_s,
        "ratio": comparison.ratio,
        "predicted_frames_per_s": comparison.predicted_frames_per_s,
        "bottleneck": comparison.bottleneck,
        **{f"busy_{stage.name}": stage.busy for stage in pipelined.stages},
        "serial_latency_ms_p50": one_core.latency_p50_s * 1e3,
        "pipelined_latency_ms_p50": pipelined.latency_p50_s * 1e3,
        "relative_error": error,
    }


if __name__ == "__main__":
    main()
