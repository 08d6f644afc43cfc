"""Is the planner's choice ever beaten on this machine, and does it run as fast as predicted?

The nine light networks of the onnx package with random weights, planned from measured operators.  The planner's choice
and what a user might try instead take turns in one run; all values are medians.  As a machine's speed may change within
seconds, the whole model is timed again beside each stream of the choice, and of the stages.

serial          the unsplit model on one core
all_cores       the unsplit model on all of them
equal_split     as many stages as cores, with equally many operators each
stages          the best cuts for as many stages as cores
replicas        the unsplit model, on each core one
choice          what the planner chose
predicted       what its plan says, at the machine's speed of that moment; `predicted_ratio` is measured over predicted,
                `stages_predicted_ratio` that of the stages
beaten_by       the best of the others over the choice: above 1.05 the planner chose wrongly
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import models
from report import Row, median, parser, report
from throughput import progress

import pipeline
from pipeline.board import Board
from pipeline.executor.cost_cache import CostCache
from pipeline.executor.profile import Bench
from pipeline.planning import planner
from pipeline.plans import Plan, StagePlan
from pipeline.sides import Run, random_frames
from pipeline.split import extract
from pipeline.split.graph import Graph
from pipeline.split.planner import Planner

QUICK = ("squeezenet",)


def main() -> None:
    options = arguments()
    names = options.models or (QUICK if options.quick else models.NAMES)
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(name, Path(folder), rounds=2 if options.quick else 7) for name in names]
    report("The planner's choice and others", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--models", nargs="+", choices=models.NAMES, metavar="NAME", help=", ".join(models.NAMES))
    return options.parse_args()


def row(name: str, folder: Path, rounds: int) -> Row:
    """Plan, build and measure one network in all ways."""
    show = progress(name)
    file = models.write(name, folder)
    graph = pipeline.read(file)
    # The largest has half a gigabyte.
    file.unlink()
    # The machine is compared with what it was then, so nothing is taken from an earlier day.
    found = planner(graph, "host", measure=True, fresh=True, progress=show)
    ways = others(found)
    choice = ways["choice"] = found.plan()
    show("building the whole model")
    rates, moments = measured(graph, ways, rounds, speed(found))
    return {
        "model": name,
        **{f"{way}_frames_per_s": rate for way, rate in rates.items()},
        "predicted_frames_per_s": median([speed / choice.slowest for _, speed in moments["choice"]]),
        "predicted_ratio": median([rate / speed * choice.slowest for rate, speed in moments["choice"]]),
        "stages_predicted_ratio": median([rate / speed * ways["stages"].slowest for rate, speed in moments["stages"]]),
        "beaten_by": max(rate for way, rate in rates.items() if way != "choice") / rates["choice"],
        "chosen": " > ".join(f"{stage.replicas} x {len(stage.cores) // stage.replicas}" for stage in choice.stages),
    }


def others(given: Planner) -> dict[str, Plan]:
    """Return the ways to run the model that the planner is compared with."""
    graph, board = given.graph, given.board
    cores = board.devices[0].cores
    ends = graph.group_ends
    equal = [ends[len(ends) * number // len(cores) - 1] for number in range(1, len(cores))]
    whole = given.plan(stages=1)
    return {
        "serial": replace(given, board=narrowed(board)).plan(stages=1),
        "all_cores": whole,
        "equal_split": given.plan(cuts=equal),
        "stages": given.plan(stages=len(cores)),
        "replicas": replace(whole, stages=(replace(whole.stages[0], replicas=len(cores)),)),
    }


def narrowed(board: Board) -> Board:
    """Return the board with one core."""
    (device,) = board.devices[:1]
    return replace(board, devices=(replace(device, cores=device.cores[-1:], clusters=()),))


def speed(given: Planner) -> Callable[[], float]:
    """Return what says how fast the machine is, as a share of its speed when the operators were measured."""
    (device,) = given.board.devices
    (part,) = extract.parts(given.graph, ())
    bench = Bench(device, 1, CostCache(None))
    stage = StagePlan("whole", device.name, part.inputs, part.outputs)
    whole = bench.prepare([(stage, extract.module(part))], lambda _: None)
    before = bench.time(whole).crowded[0]
    return lambda: before / bench.time(whole).crowded[0]


def measured(
    graph: Graph, ways: dict[str, Plan], rounds: int, speed: Callable[[], float]
) -> tuple[dict[str, float], dict[str, list[tuple[float, float]]]]:
    """Return the frames per second of each way, and of each stream of some with the machine's speed beside it.

    Equal plans are run once.
    """
    different: dict[str, Run] = {}
    for way, plan in ways.items():
        same = next((other for other in different if runs_alike(ways[other], plan)), None)
        different[way] = different[same] if same else Run(way, pipeline.build(graph, plan, check=False), lambda _: None)
    runs = list(dict.fromkeys(different.values()))
    frames = random_frames(graph.inputs, 4)
    for run in runs:
        run.warm_up(frames, None)
    moments: dict[Run, list[tuple[float, float]]] = {different[way]: [] for way in ("choice", "stages")}
    for number in range(rounds):
        # Every other time in reverse, so that none always follows the same one.
        for run in runs[:: -1 if number % 2 else 1]:
            rate = run.stream(frames)
            if run in moments:
                moments[run].append((rate, speed()))
    rates = {way: run.result().frames_per_s for way, run in different.items()}
    return rates, {way: moments[run] for way, run in different.items() if run in moments}


def runs_alike(one: Plan, other: Plan) -> bool:
    """Whether two plans differ at most in their predictions."""
    stages = [[replace(stage, seconds=0.0) for stage in plan.stages] for plan in (one, other)]
    return stages[0] == stages[1]


if __name__ == "__main__":
    main()
