"""Plans over several runtimes on two cores, against each runtime alone.

The nine light networks of the onnx package with random weights.  Each runtime runs the unsplit model with two threads;
the plan is the best that the planner finds over all of them, from measured times of whole stages.  They take turns in
one run; all values are medians.

RUNTIME_frames_per_s    unsplit, with two threads
plan                    its stages: runtime and replicas of each
ratio                   the plan's frames per second over those of the best runtime alone
predicted_ratio         what the plan said, over what was measured
speed                   of the machine while the rates were taken, over that while the plan was measured: of one core
                        that sorts numbers; where it is not 1, predicted_ratio says little
relative_error          of the plan's answer to ONNX Runtime's own, as a share of its largest value
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import models
import numpy as np
from report import Row, parser, report
from throughput import progress, two_cores

import pipeline
from pipeline.core.board.board import Board
from pipeline.core.plan.plan import Plan
from pipeline.frontends import references
from pipeline.measure.throughput import steady_rate
from pipeline.prediction.predict import predict
from pipeline.split.graph import Graph

RUNTIMES = ("tvm", "onnxruntime", "openvino")
QUICK = ("squeezenet", "shufflenet")
CORES = 2
# Frames of one turn last for so long at least.
TURN_S = 1.0
# So often the same numbers are sorted for one value of the speed: some 10 ms.
SORTS = 20


def main() -> None:
    options = arguments()
    names = options.models or (QUICK if options.quick else models.NAMES)
    rows: list[Row] = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(name, Path(folder), options))
        print(*(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    mean = math.exp(sum(math.log(float(row["ratio"])) for row in rows) / len(rows))
    rows.append({"model": f"geometric mean of {len(rows)}", "ratio": mean})
    report("Plans over runtimes, and each runtime alone", rows, (__doc__ or "").rpartition("\n\n")[2], options.json)


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--models", nargs="+", choices=models.NAMES, metavar="NAME", help=", ".join(models.NAMES))
    options.add_argument("--turns", type=int, default=7, help="of each side (default: 7)")
    return options.parse_args()


def measure(name: str, folder: Path, options: argparse.Namespace) -> Row:
    """Plan, build and measure one network."""
    show = progress(name)
    file = models.write(name, folder)
    graph, board = pipeline.read(file), two_cores()
    plans = {runtime: unsplit(graph, board, runtime) for runtime in RUNTIMES}
    planning_speeds: list[float] = []

    def show_and_sample(text: str) -> None:
        show(text)
        planning_speeds.append(speed())

    plans["plan"] = pipeline.plan(graph, board, runtimes=RUNTIMES, measure=True, progress=show_and_sample)
    with ExitStack() as stack:
        sides = {}
        for side, plan in plans.items():
            bundle = pipeline.build(graph, plan, check=False, progress=show)
            sides[side] = stack.enter_context(pipeline.load(bundle))
        frame = next(frames(graph))
        expected = references.run(file, frame)[1]
        outputs = list(sides["plan"].submit(frame).outputs().values())
        replicas = {side: max(stage.replicas for stage in plan.stages) for side, plan in plans.items()}
        samples, speeds = take_turns(sides, replicas, frame, options)
        rates = {side: median(times) for side, times in samples.items()}
    best = max(rates[runtime] for runtime in RUNTIMES)
    return {
        "model": name,
        **{f"{runtime}_frames_per_s": rates[runtime] for runtime in RUNTIMES},
        "plan_frames_per_s": rates["plan"],
        "plan": ", ".join(describe(plans["plan"])),
        "ratio": rates["plan"] / best,
        "predicted_ratio": predict(plans["plan"]).frames_per_s / rates["plan"],
        "speed": median(speeds) / median(planning_speeds),
        "relative_error": max(
            float(np.abs(one - other).max() / np.abs(other).max()) for one, other in zip(outputs, expected, strict=True)
        ),
    }


def unsplit(graph: Graph, board: Board, runtime: str) -> Plan:
    """Return the plan of one stage that one runtime executes on all cores."""
    plan = pipeline.plan(graph, board, stages=1, runtimes=[runtime])
    stage = replace(plan.stages[0], cores=board.device("cpu").cores, replicas=1)
    return replace(plan, stages=(stage,))


def frames(graph: Graph) -> Iterator[dict[str, np.ndarray]]:
    """Yield random frames."""
    generator = np.random.default_rng(0)
    while True:
        yield {spec.name: generator.random(spec.shape, np.float32) for spec in graph.inputs}


def take_turns(
    sides: dict[str, Any], replicas: dict[str, int], frame: dict[str, np.ndarray], options: argparse.Namespace
) -> tuple[dict[str, list[float]], list[float]]:
    """Return the frames per second of each side in each turn, and the machine's speed before each."""
    rates: dict[str, list[float]] = {side: [] for side in sides}
    speeds: list[float] = []
    # Also what warms up.
    counts = {
        side: max(12 * replicas[side], int(TURN_S * stream(running, frame, 8, replicas[side])))
        for side, running in sides.items()
    }
    for _ in range(3 if options.quick else options.turns):
        for side, running in sides.items():
            speeds.append(speed())
            rates[side].append(stream(running, frame, counts[side], replicas[side]))
    return rates, speeds


def stream(running: Any, frame: dict[str, np.ndarray], count: int, replicas: int) -> float:
    """Stream so many frames, and return the frames per second while all replicas have some."""
    return steady_rate([perf_counter() for _ in running.map([frame] * count)], replicas)


def speed() -> float:
    """Sort the same numbers, and return how often that is done in a second."""
    numbers, times = np.random.default_rng(0).random(20_000, np.float32), []
    for _ in range(SORTS):
        begin = perf_counter()
        np.sort(numbers)
        times.append(perf_counter() - begin)
    return 1 / median(times)


def describe(plan: Plan) -> Iterator[str]:
    """Yield each stage's runtime, and its replicas."""
    for stage in plan.stages:
        runtime = stage.device.partition("/")[2] or "tvm"
        yield f"{runtime} x{stage.replicas}" if stage.replicas > 1 else runtime


if __name__ == "__main__":
    main()
