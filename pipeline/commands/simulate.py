"""``soc-pipeline simulate``: stream a plan on an absent board."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.commands.shared import console, drawing, values
from pipeline.commands.shared.plan_options import add_time_variation
from pipeline.errors import PlanError

if TYPE_CHECKING:
    from pipeline.simulation import Simulation

HELP = "Simulate a stream of frames through a plan: rate, latency, queues; the board need not be here."
EXAMPLE = "soc-pipeline simulate plan.json --fps 30 --arrivals poisson --time-variation 0.1"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("plan", metavar="PLAN", help="a file from 'soc-pipeline plan -o'")
    _arrival_arguments(parser)
    _time_arguments(parser)
    parser.add_argument("--drawing", metavar="FILE", help="draw which stage works on which frame when, .png or .svg")
    parser.add_argument(
        "--against", metavar="TRACE", help="also draw a file of 'soc-pipeline run --trace', with what was measured"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _arrival_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fps",
        metavar="N",
        type=values.positive,
        help="frames per second that arrive (default: as many as are taken)",
    )
    parser.add_argument(
        "--arrivals",
        metavar="HOW",
        default="even",
        help="how they arrive: even (default), poisson (at random, so many per second on average), or a file with the "
        "time of each in seconds, one per line, or in the first column of a CSV file",
    )
    parser.add_argument(
        "--frames",
        metavar="N",
        type=values.count,
        help="how many frames (default: 1000, or all that a file of --arrivals has)",
    )
    parser.add_argument(
        "--admission",
        metavar="POLICY",
        default="block",
        help="of a frame that finds no room: block (default), or with --fps or a file of --arrivals latest, "
        "drop-oldest, or deadline",
    )
    parser.add_argument(
        "--waiting",
        metavar="N",
        type=values.count,
        default=0,
        help="how many frames may wait, where frames are dropped",
    )
    parser.add_argument(
        "--deadline",
        metavar="SECONDS",
        type=values.positive,
        default=math.inf,
        help="from arrival to the result, for --admission deadline",
    )


def _time_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", metavar="S", type=values.seed, default=0, help="of what is random (default: 0)")
    # Exact by default: what a plan predicts is what the diagram shows.
    add_time_variation(parser, default=0.0)
    parser.add_argument(
        "--overhead",
        metavar="SECONDS",
        type=values.not_negative,
        help="of the scheduler, for each frame in each stage (default: 50e-6; a slow processor needs more)",
    )


def run(options: argparse.Namespace) -> int:
    """Load the plan, simulate, draw and print."""
    from pipeline.core.plan.plan import Plan
    from pipeline.prediction.contention import describe_short_stages
    from pipeline.prediction.predict import predict
    from pipeline.prediction.uncertainty import rate_range
    from pipeline.simulation import EVEN, OVERHEAD_S, POISSON, read_arrivals, simulate

    if options.against and not options.drawing:
        raise PlanError("--against draws a trace beside the simulation; say where with --drawing")
    if options.drawing:
        drawing.check(Path(options.drawing))
    plan = Plan.load(options.plan)
    simulation = simulate(
        plan,
        frames=options.frames,
        fps=options.fps,
        arrivals=options.arrivals if options.arrivals in (EVEN, POISSON) else read_arrivals(options.arrivals),
        cv=options.time_variation,
        seed=options.seed,
        admission=options.admission,
        waiting=options.waiting,
        deadline=options.deadline,
        overhead=OVERHEAD_S if options.overhead is None else options.overhead,
    )
    if options.drawing:
        # A trace may be of another plan, which is found by the names of its stages.
        names = [stage.name for stage in plan.stages]
        drawing.draw(plan, options.drawing, drawing.read_trace(options.against, names) if options.against else None)
    published = rate_range(plan)
    if options.json:
        console.print_json({**asdict(simulation), "bottleneck": simulation.bottleneck, "rate_range": published})
        return 0
    show(simulation)
    if note := describe_short_stages(plan.stages):
        console.console().print(f"{note[0].upper()}{note[1:]}.")
    if published:
        console.console().print(f"Predicted: {console.rate_text(predict(plan).frames_per_s, published)}.")
    if options.drawing:
        console.console().print(f"Drawing: {options.drawing}", soft_wrap=True)
    return 0


def show(result: Simulation) -> None:
    """Print a table of the stages, and the rates."""
    out = console.console()
    columns = ("stage", "device", ">busy", ">blocked", ">waiting, mean", ">longest", ">wait ms p50", ">p99")
    table = console.table(f"{result.model} on {result.board}, simulated", *columns)
    for stage in result.stages:
        table.add_row(
            stage.name + (f" x {stage.replicas}" if stage.replicas > 1 else ""),
            stage.device,
            f"{stage.busy:.0%}",
            f"{stage.blocked:.0%}",
            f"{stage.queue_mean:.2f}",
            str(stage.queue_longest),
            f"{stage.wait_s.p50 * 1e3:.3f}",
            f"{stage.wait_s.p99 * 1e3:.3f}",
        )
    out.print(table)
    drops = "".join(f", {number} dropped as {reason}" for reason, number in result.dropped.items())
    out.print(
        f"{result.frames} frames{drops}, {result.frames_per_s:.4g} frames/s; the bottleneck is {result.bottleneck}."
    )
    for title, times in (("from start to result", result.latency_s), ("since arrival", result.since_arrival_s)):
        percentiles = ", ".join(f"{name} {getattr(times, name) * 1e3:.3f}" for name in ("p50", "p95", "p99"))
        out.print(f"Latency in ms, {title}: {percentiles}")
    for name, share in result.links.items():
        out.print(f"Link {name}: {share:.0%} in use")
