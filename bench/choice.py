"""Is the planner's choice ever beaten on this machine, and does it run as fast as predicted?

The nine light networks of the onnx package, ResNet-18 and MobileNetV2, with random weights, planned from measured
operators.  The planner's choice and what a user might try instead take turns in one run; all values are medians over
the rounds.  As a machine's speed may change within seconds, the operators are measured again in each round.

serial          the unsplit model on one core
all_cores       the unsplit model on all of them
equal_split     as many stages as cores, with equally many operators each
stages          the best cuts for as many stages as cores
replicas        the unsplit model, on each core one
choice          what the planner chose
predicted       what its plan says from the operators' times of that round; `predicted_ratio` is measured over
                predicted, `stages_predicted_ratio` that of the stages
beaten_by       the best of the others over the choice: above 1.05 the planner chose wrongly
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import mobilenet
import models
import onnx
import resnet18
from report import Row, median, parser, report
from throughput import progress

import boards
import pipeline
from pipeline.core.board.board import Board
from pipeline.core.plan.plan import Plan
from pipeline.core.plan.stage_options import DEFAULT_PRECISION, PRECISIONS, StageOptions
from pipeline.measure.cost_cache import CostCache
from pipeline.measure.group_times import GroupTimer, extract_groups
from pipeline.measure.sampling import MeasureOptions
from pipeline.measure.throughput import VariantRun, random_frames
from pipeline.measure.unsplit_rate import UnsplitBaseline
from pipeline.prediction.predict import predict
from pipeline.split.graph import Graph
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem.queues import stage_groups
from pipeline.split.products import end_products

QUICK = ("squeezenet",)
NAMES = (*models.NAMES, "resnet18", "mobilenet")


def main() -> None:
    options = arguments()
    names = options.models or (QUICK if options.quick else models.NAMES)
    rounds = 2 if options.quick else options.rounds
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(name, precision, Path(folder), rounds) for name in names for precision in options.precision]
    report("The planner's choice and others", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--models", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    options.add_argument("--precision", nargs="+", choices=PRECISIONS, default=[DEFAULT_PRECISION], metavar="NAME")
    options.add_argument("--rounds", type=int, default=7, help="more where others use the machine (default 7)")
    return options.parse_args()


def row(name: str, precision: str, folder: Path, rounds: int) -> Row:
    """Plan, build and measure one network in all ways."""
    show = progress(f"{name} {precision}")
    file = write(name, folder)
    graph = pipeline.read(file)
    # The largest has half a gigabyte.
    file.unlink()
    profiler = Profiler(graph, boards.get("host"), precision, show)
    first = profiler.planner()
    ways = alternatives(first)
    choice = ways["choice"] = first.plan()
    runs = build_variants(graph, ways, show)
    samples = stream_rounds(profiler, runs, rounds)
    rates = {way: median([each[run] for _, each in samples]) for way, run in runs.items()}
    predicted = {
        way: [1 / slowest(ways[way], first, planner) for planner, _ in samples] for way in ("choice", "stages")
    }
    ratios = {
        way: median([each[runs[way]] / rate for (_, each), rate in zip(samples, predictions, strict=True)])
        for way, predictions in predicted.items()
    }
    return {
        "model": name,
        "precision": precision,
        **{f"{way}_frames_per_s": rate for way, rate in rates.items()},
        "predicted_frames_per_s": median(predicted["choice"]),
        "predicted_ratio": ratios["choice"],
        "stages_predicted_ratio": ratios["stages"],
        "beaten_by": max(rate for way, rate in rates.items() if way != "choice") / rates["choice"],
        "chosen": " > ".join(f"{stage.replicas} x {len(stage.cores) // stage.replicas}" for stage in choice.stages),
    }


class Profiler:
    """Measurements of `pipeline.profile` on a board of one CPU, built once and repeated as often as asked."""

    def __init__(self, graph: Graph, board: Board, precision: str, show: Callable[[str], None]) -> None:
        (device,) = board.devices
        self._options = StageOptions.of_build({"precision": precision})
        if self._options.is_narrow:
            # As a build has them.
            self._options = replace(self._options, float32_layers=tuple(end_products(graph)))
        self.graph, self._board, self._device, self._show = graph, board, device, show
        # No file behind the cache: times of another day would be taken for those of this round.
        options = MeasureOptions(CostCache(None), progress=show, stage_options=self._options)
        self._timer = GroupTimer(device, 1, options.cache, numerics=options.numerics)
        self._groups = self._timer.prepare(extract_groups(graph, graph.group_ends[:-1]), show)
        self._baseline = UnsplitBaseline(graph, device, options)

    def planner(self) -> Planner:
        """Measure, and return what plans with that."""
        times = self._timer.time(self._groups, self._show).scale(self._baseline.time())
        isolated, contended = ({self._device.name: each} for each in times)
        return Planner(self.graph, self._board, isolated, contended=contended, options=self._options)


def write(name: str, folder: Path) -> Path:
    """Write a network to `folder`, and return the file."""
    if name in models.NAMES:
        return models.write(name, folder)
    file = folder / f"{name}.onnx"
    onnx.save({"resnet18": resnet18.model, "mobilenet": mobilenet.model}[name](), file)
    return file


def alternatives(planner: Planner) -> dict[str, Plan]:
    """Return the ways to run the model that the planner is compared with."""
    graph, board = planner.graph, planner.board
    cores = board.devices[0].cores
    ends = graph.group_ends
    equal = [ends[len(ends) * number // len(cores) - 1] for number in range(1, len(cores))]
    unsplit = planner.plan(stages=1)
    return {
        "serial": replace(planner, board=single_core_board(board)).plan(stages=1),
        "all_cores": unsplit,
        "equal_split": planner.plan(cuts=equal),
        "stages": planner.plan(stages=len(cores)),
        "replicas": replace(unsplit, stages=(replace(unsplit.stages[0], replicas=len(cores)),)),
    }


def single_core_board(board: Board) -> Board:
    """Return the board with one core."""
    (device,) = board.devices[:1]
    # The last core, as in the product's own comparison with one core.
    return replace(board, devices=(replace(device, cores=device.cores[-1:], clusters=()),))


def build_variants(graph: Graph, ways: dict[str, Plan], show: Callable[[str], None]) -> dict[str, VariantRun]:
    """Return what runs each way; equal plans are built and run once."""
    runs: dict[str, VariantRun] = {}
    for way, plan in ways.items():
        show(f"building {way}")
        twin = next((other for other in runs if runs_alike(ways[other], plan)), None)
        runs[way] = runs[twin] if twin else VariantRun(way, pipeline.build(graph, plan, check=False), lambda _: None)
    return runs


def stream_rounds(
    profiler: Profiler, runs: dict[str, VariantRun], rounds: int
) -> list[tuple[Planner, dict[VariantRun, float]]]:
    """Return for each round what plans with the operators' times, and the frames per second of each run."""
    frames = random_frames(profiler.graph.inputs, 4)
    order = list(dict.fromkeys(runs.values()))
    for run in order:
        run.warm_up(frames, None)
    samples = []
    for _ in range(rounds):
        # Operators first, streams right behind: a prediction from times that were minutes old was off by the 20 % by
        # which a shared processor's speed had changed meanwhile, and the planner seemed wrong.
        samples.append((profiler.planner(), {run: run.stream(frames) for run in order}))
        # Every other time in reverse, so that none always follows the same one.
        order.reverse()
    return samples


def slowest(plan: Plan, initial: Planner, current: Planner) -> float:
    """Return the seconds between two frames of a plan, had it been made from the times that are known now."""
    stages = []
    # Scaled rather than planned anew: the round's times may favour other cuts, but it is this plan that was streamed.
    initial, current = initial.of_plan(plan), current.of_plan(plan)
    for stage, (begin, end) in stage_groups(plan, current.graph):
        initial_s, current_s = (sum(each.seconds(each.board.devices[0])[begin:end]) for each in (initial, current))
        factor = current_s / initial_s
        times = tuple(seconds * factor for seconds in stage.replica_seconds)
        stages.append(replace(stage, seconds=stage.seconds * factor, replica_seconds=times))
    return predict(replace(plan, stages=tuple(stages))).interval_s


def runs_alike(first: Plan, second: Plan) -> bool:
    """Tell if two plans differ at most in their predictions."""
    stages = [[replace(stage, seconds=0.0) for stage in plan.stages] for plan in (first, second)]
    return stages[0] == stages[1]


if __name__ == "__main__":
    main()
