"""``soc-pipeline bench``: unsplit against pipelined, in one run."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pipeline
from pipeline.commands.shared import console, live, models, plan_options, trace_option, values, view
from pipeline.commands.shared.run_options import signature_argument
from pipeline.errors import InputError, PlanError

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.measure.comparison import Comparison
    from pipeline.measure.throughput import Decode, Watch
    from pipeline.observe.web import ViewServer
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.split.graph import Graph

HELP = "Measure a model unsplit on one core, unsplit on all cores, and pipelined; or a bundle as it is."
EXAMPLE = "soc-pipeline bench model.onnx --stages 2"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    models.arguments(parser)
    plan_options.arguments(parser)
    parser.add_argument(
        "--frames",
        metavar="N",
        type=values.count,
        help="frames per side and round (default: as many as take a second)",
    )
    parser.add_argument(
        "--rounds", metavar="N", type=values.count, default=3, help="rounds in which the sides take turns (default: 3)"
    )
    signature_argument(parser)
    trace_option.argument(parser)
    view.argument(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(options: argparse.Namespace) -> int:
    """Build the missing parts, measure and print."""
    with view.serve_view(options.view) as (server, always):
        comparison = _measure(options, server, frames=options.frames, rounds=options.rounds, common_trace=always)
    if options.json:
        console.print_json({**asdict(comparison), "bottleneck": comparison.bottleneck, "ratio": comparison.ratio})
    else:
        show_comparison(comparison)
    return 0


def _measure(options: argparse.Namespace, server: ViewServer | None, **settings: Any) -> Comparison:
    from pipeline.measure.comparison import compare

    graph, bundle = _subject(options)
    with trace_option.tracing(options.trace, bundle.plan) as trace, live.Display("measuring", keep=False) as display:
        watch = _watch(display, server)
        decode = _decoder(bundle)
        return compare(graph, bundle, progress=display.step, watch=watch, trace=trace, decode=decode, **settings)


def _decoder(bundle: Bundle) -> Decode | None:
    """Return the decoder of the bundle's card; None without one."""
    from pipeline.io.result_reader import ResultReader, choose_card

    # Nothing is guessed of bundles of earlier versions.
    card = bundle.card and choose_card(bundle.plan, bundle.card)
    if not card or not card.decoder:
        return None
    reader = ResultReader(bundle.plan, card)
    return lambda outputs: reader.read(outputs, None, None)


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
        # Without the model there is nothing to compare with; the pipeline alone is measured.
        return None, pipeline.Bundle.load(options.model, require_signature=options.require_signature)
    if options.require_signature:
        raise InputError(f"--require-signature is for a bundle; {options.model!r} is a model, and is built here")
    # Without measured times the prediction could not be compared with anything.
    options.measure = True
    graph = models.read(options)
    plan = plan_options.make_plan(graph, options)
    with console.progress("building") as step:
        return graph, pipeline.build(graph, plan, progress=step)


def show_comparison(comparison: Any) -> None:
    """Print a table of the variants, the bottleneck, and the prediction."""
    out = console.console()
    table = console.table(
        comparison.model, "", ">frames/s", ">latency p50 ms", ">latency p99 ms", "busy share of each stage"
    )
    for side in (*comparison.variants, *filter(None, (comparison.decoded,))):
        # Of each stage, since the busiest one is where to look first.
        busy = ", ".join(f"{stage.name} {stage.busy:.0%}" for stage in side.stages)
        latencies = (f"{seconds * 1e3:.2f}" for seconds in (side.latency_p50_s, side.latency_p99_s))
        table.add_row(side.name, f"{side.frames_per_s:.2f}", *latencies, busy)
    out.print(table)
    out.print(f"Bottleneck: {comparison.bottleneck}.")
    if note := live.interpreter_note({stage.name: stage.interpreter for stage in comparison.pipelined.stages}):
        out.print(note)
    if comparison.predicted_frames_per_s:
        forecast, rate = comparison.predicted_frames_per_s, comparison.pipelined.frames_per_s
        out.print(f"Predicted {forecast:.2f} frames/s, measured {rate:.2f} ({rate / forecast:.0%}).")
