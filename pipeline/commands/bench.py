"""``soc-pipeline bench``: unsplit against pipelined, in one run."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pipeline
from pipeline.commands import common, live, models, view
from pipeline.errors import PlanError

if TYPE_CHECKING:
    from pipeline.comparison import Comparison
    from pipeline.executor.bundle import Bundle
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.sides import Watch
    from pipeline.split.graph import Graph
    from pipeline.web import ViewServer

HELP = "Measure a model unsplit on one core, unsplit on all cores, and pipelined; or a bundle as it is."
EXAMPLE = "soc-pipeline bench model.onnx --stages 2"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    models.arguments(parser)
    common.plan_arguments(parser)
    parser.add_argument("--frames", metavar="N", help="frames per side and round (default: as many as take a second)")
    parser.add_argument("--rounds", metavar="N", default="3", help="rounds in which the sides take turns (default: 3)")
    common.trace_argument(parser)
    view.argument(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(options: argparse.Namespace) -> int:
    """Build what is missing, measure, print."""
    frames = common.whole("--frames", options.frames) if options.frames else None
    rounds = common.whole("--rounds", options.rounds)
    with view.serving(options.view) as (server, always):
        comparison = _measured(options, server, frames=frames, rounds=rounds, always=always)
    if options.json:
        common.print_json({**asdict(comparison), "bottleneck": comparison.bottleneck, "ratio": comparison.ratio})
    else:
        _show(comparison)
    return 0


def _measured(options: argparse.Namespace, server: ViewServer | None, **how: Any) -> Comparison:
    from pipeline.comparison import compare

    graph, bundle = _subject(options)
    with common.tracing(options.trace, bundle.plan) as trace, live.Display("measuring", keep=False) as display:
        watch = _watch(display, server)
        return compare(graph, bundle, progress=display.step, watch=watch, trace=trace, **how)


def _watch(display: live.Display, server: ViewServer | None) -> Watch:
    def watch(running: Pipeline) -> None:
        display.watch(running.statistics)
        if server is not None:
            server.show(running)

    return watch


def _subject(options: argparse.Namespace) -> tuple[Graph | None, Bundle]:
    if Path(options.model).is_dir():
        if options.stages != "auto" or options.cut:
            raise PlanError(f"{options.model!r} is a bundle and has its stages; leave out --stages and --cut")
        return None, pipeline.Bundle.load(options.model)
    # Without measured times the prediction could not be compared with anything.
    options.measure = True
    graph = models.read(options)
    plan = common.make_plan(graph, options)
    with common.progress("building") as step:
        return graph, pipeline.build(graph, plan, progress=step)


def _show(comparison: Any) -> None:
    out = common.console()
    table = common.table(
        comparison.model, "", ">frames/s", ">latency p50 ms", ">latency p99 ms", "busy share of each stage"
    )
    for side in comparison.sides:
        busy = ", ".join(f"{stage.name} {stage.busy:.0%}" for stage in side.stages)
        latencies = (f"{seconds * 1e3:.2f}" for seconds in (side.latency_p50_s, side.latency_p99_s))
        table.add_row(side.name, f"{side.frames_per_s:.2f}", *latencies, busy)
    out.print(table)
    out.print(f"Bottleneck: {comparison.bottleneck}.")
    if comparison.predicted_frames_per_s:
        predicted, measured = comparison.predicted_frames_per_s, comparison.pipelined.frames_per_s
        out.print(f"Predicted {predicted:.2f} frames/s, measured {measured:.2f} ({measured / predicted:.0%}).")
