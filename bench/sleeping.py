"""Does a stream get what a plan promises?  Stages in Python that sleep for as long as an RK3588's cores would compute.

Every plan that the planner offers for its four big and four LITTLE cores, streamed through the real scheduler, whose
threads sleep by `time.sleep` (on a busy machine, run it with ``chrt -f 5``, or the others' work is measured).  Each row
is one way to plan one model: `auto` by itself and with each objective, the fastest, the least late and the knee
between them that `plan` prints, --fps at shares of the fastest rate, and fixed numbers of stages.  Times are those of
the board's file; of the model called uneven, each group's is multiplied by a random factor.

measured_over_predicted    frames per second of the stream over those of the plan
simulated_over_predicted   those of `simulate` over those of the plan
latency_over_predicted     the time of a frame that is alone in the pipeline over the plan's latency; of unlike
                           replicas, which one takes it decides, and the plan's latency is that of the slowest
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import mobilenet
import numpy as np
from report import Row, median, parser, report

import boards
import pipeline
from pipeline.core.board.board import Board
from pipeline.core.plan.plan import Plan
from pipeline.demo.digits import FILE
from pipeline.executor.devices.simulated import SimulatedRuntime
from pipeline.prediction.predict import predict
from pipeline.scheduler import Pipeline
from pipeline.simulation import simulate
from pipeline.split.graph import Graph
from pipeline.split.planning.plan_builder import build_plan
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem.costs import estimate
from pipeline.split.planning.solver.solver import Solver
from pipeline.split.planning.solver.trade_off import front, knee

OBJECTIVES = ("throughput", "latency", "energy")
FPS_SHARES = (0.1, 0.3, 0.6, 0.9, 0.99)
STAGES = (1, 2, 3, 4, 6, 8)
MODEL_S = 0.1
"""What each model takes on a big core: sleeps of microseconds would be of the system's making."""


class SleepingRuntime(SimulatedRuntime):
    """Sleeps as any function in Python does: what the system wakes it late is not made up for."""

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Sleep, and hand on what stands for the results."""
        time.sleep(program.seconds)
        return [inputs[index] if isinstance(index, int) else index for index in program.outputs]


def main() -> None:
    options = parser(__doc__).parse_args()
    seconds, rounds = (1.0, 1) if options.quick else (2.0, 3)
    with tempfile.TemporaryDirectory() as folder:
        planners = make_planners(Path(folder))
    if options.quick:
        planners = {"uneven": planners["uneven"]}
    cases = {(model, way): plan for model, planner in planners.items() for way, plan in offered_plans(planner)}
    samples = [{case: stream(plan, seconds) for case, plan in cases.items()} for _ in range(rounds)]
    rows = [row(case, plan, [sample[case] for sample in samples]) for case, plan in cases.items()]
    report("Streamed over predicted, on sleeping cores", rows, (__doc__ or "").partition("\n\n")[2], options.json)
    for title in ("measured_over_predicted", "simulated_over_predicted"):
        ratios = [each[title] for each in rows]
        print(f"{title}: {min(ratios):.3f} to {max(ratios):.3f} in {len(rows)} plans")


def make_planners(folder: Path) -> dict[str, Planner]:
    """Return the planners of the models by name, with the times of a big core."""
    board = boards.get("rk3588")
    cores = replace(board, devices=board.devices[:1], links=())
    digits, wide = pipeline.read(FILE), pipeline.read(mobilenet.write(folder))
    generator = np.random.default_rng(0)
    factors = generator.lognormal(0.0, 0.8, len(digits.group_ends))
    return {
        "digits": scaled_planner(digits, cores, np.ones_like(factors)),
        "uneven": scaled_planner(digits, cores, factors),
        "mobilenet": scaled_planner(wide, cores, np.ones(len(wide.group_ends))),
    }


def scaled_planner(graph: Graph, board: Board, factors: np.ndarray) -> Planner:
    """Return a planner whose estimated times, each by its factor, add up to those of `MODEL_S`."""
    seconds = np.array(estimate(graph, board.devices[0])) * factors
    return Planner(graph, board, (seconds * MODEL_S / seconds.sum()).tolist())


def offered_plans(planner: Planner) -> Iterator[tuple[str, Plan]]:
    """Yield what the planner offers, by name."""
    fastest = planner.plan(objective="throughput", fps=1e-6)
    yield "auto", planner.plan()
    yield "auto, no replicas", planner.plan(replicas=False)
    for objective in OBJECTIVES:
        yield f"--objective {objective}", planner.plan(objective=objective)
    for name, plan in trade_offs(planner):
        fastest = min(fastest, plan, key=lambda each: predict(each).interval_s)
        yield name, plan
    for share in FPS_SHARES:
        yield f"--fps at {share:.0%}", planner.plan(fps=share / predict(fastest).interval_s)
    for stages in STAGES:
        yield f"--stages {stages}", planner.plan(stages=stages)


def trade_offs(planner: Planner) -> Iterator[tuple[str, Plan]]:
    """Yield the ways between rate and latency that ``soc-pipeline plan`` prints."""
    solver = Solver(planner.problem())
    fastest = solver.fastest()
    if fastest is None:
        raise AssertionError("a core can run all of it")
    ways = front(solver, fastest)
    for name, solution in {"fastest": ways[0], "knee": knee(ways), "least latency": ways[-1]}.items():
        yield name, build_plan(solution, planner.graph, planner.board, measured=True)


def stream(plan: Plan, seconds: float) -> tuple[float, float]:
    """Return the frames per second of a stream, and the seconds of a frame that is alone."""
    frame = np.zeros(plan.inputs[0].shape, plan.inputs[0].dtype)
    # The first frames fill the pipeline; in the end, the slow replicas are waited for.
    first = plan.frames_in_flight
    count = max(40, 4 * first, int(seconds / predict(plan).interval_s))
    with Pipeline(plan, create=SleepingRuntime) as running:
        alone = []
        for _ in range(3):
            begin = perf_counter()
            running.submit(frame, copy=False).result()
            alone.append(perf_counter() - begin)
        times = [perf_counter() for _ in running.map([frame] * (count + 2 * first), copy=False)]
    return count / (times[count + first - 1] - times[first - 1]), median(alone)


def row(case: tuple[str, str], plan: Plan, samples: Sequence[tuple[float, float]]) -> Row:
    """Return one line of the table."""
    prediction = predict(plan)
    outcome = simulate(plan, frames=max(400, 6 * plan.frames_in_flight))
    measured, latency_s = (median(list(values)) for values in zip(*samples, strict=True))
    return {
        "model": case[0],
        "plan": case[1],
        "stages": " > ".join(f"{len(stage.cores)} cores / {stage.replicas}" for stage in plan.stages),
        "predicted_frames_per_s": prediction.frames_per_s,
        "measured_frames_per_s": measured,
        "measured_over_predicted": measured * prediction.interval_s,
        "simulated_over_predicted": outcome.frames_per_s * prediction.interval_s,
        "predicted_latency_ms": prediction.latency_s * 1e3,
        "latency_over_predicted": latency_s / prediction.latency_s,
    }


if __name__ == "__main__":
    main()
