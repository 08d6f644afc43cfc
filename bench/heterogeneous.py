"""A network of MobileNetV2's kind on boards with VTA: chains of stages beside stages whose workers borrow VTA.

Depthwise convolutions run on the CPU, and what lies between them on VTA or the CPU, as the planner likes.  A chain can
have VTA for one stretch of the network only.  A worker that borrows it alternates between its core and VTA inside of
one frame, while others do the same with other frames.

There is no such board here.  Times are estimates: of VTA, cycles of its clock for the very instructions that would run,
and of the CPU and the copies, the attainable rates of boards/*.toml.

chain          fastest plan without stages that borrow; `chain_planned` is what the planner takes, for its latency
heterogeneous  plan with them, predicted, and simulated frame by frame
ratio          simulated frames per second over those of the fastest chain
streamed       the same plan through the real scheduler, with devices that sleep; over simulated (on a busy machine, run
               it with ``chrt -f 5``, or the others' work is measured)
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import mobilenet
import numpy as np
from report import Row, median, parser, report

import pipeline
from pipeline.core.plan.plan import Plan, StagePlan, StepPlan
from pipeline.prediction.predict import predict
from pipeline.scheduler import Pipeline
from pipeline.simulation import simulate
from pipeline.split.graph import Graph
from pipeline.split.planning.borrowing.worker_costs import STEP_S
from pipeline.split.planning.plan_builder import build_plan
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.solver.chain_solver import ChainSolver
from pipeline.workflow.plan import PlannerOptions, make_planner

BOARDS = ("ultra96-simulated", "pynq-z2", "zcu104")
FRAMES = 400


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds, seconds = (1, 2.0) if options.quick else (5, 6.0)
    with tempfile.TemporaryDirectory() as folder:
        graph = pipeline.read(mobilenet.write(Path(folder)))
    rows = [row(graph, board, rounds, seconds) for board in BOARDS]
    report("Stages that borrow VTA", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def row(graph: Graph, board: str, rounds: int, seconds: float) -> Row:
    """Compare the ways to run the network on one board."""
    planner = make_planner(graph, board, PlannerOptions(pin=dict.fromkeys(mobilenet.depthwise_names(), "cpu")))
    chain, chain_planned = fastest_chain(planner), planner.plan(objective="throughput", heterogeneous=False)
    begin = perf_counter()
    plan = planner.plan(objective="throughput")
    planning_s = perf_counter() - begin
    rates = [simulate(each, frames=FRAMES).frames_per_s for each in (chain, chain_planned, plan)]
    sleeping = on_sleeping_devices(plan)
    streamed = median([stream(sleeping, seconds) for _ in range(rounds)])
    prediction = predict(plan)
    return {
        "board": board,
        "chain_frames_per_s": rates[0],
        "chain_latency_ms": predict(chain).latency_s * 1e3,
        "chain_planned_frames_per_s": rates[1],
        "chain_planned_latency_ms": predict(chain_planned).latency_s * 1e3,
        "heterogeneous_frames_per_s": rates[2],
        "heterogeneous_latency_ms": prediction.latency_s * 1e3,
        "ratio": rates[2] / rates[0],
        "predicted_ratio": prediction.frames_per_s / rates[2],
        "streamed_ratio": streamed / rates[2],
        "planning_s": planning_s,
        "stages": " > ".join(f"{stage.device} x {stage.replicas}, {len(stage.steps)} steps" for stage in plan.stages),
    }


def fastest_chain(planner: Planner) -> Plan:
    """Return the fastest plan without stages that borrow, however late its frames are."""
    solution = ChainSolver(planner.problem()).fastest()
    if solution is None:
        raise AssertionError("the CPU can run all of it")
    return build_plan(solution, planner.graph, planner.board, measured=False)


def on_sleeping_devices(plan: Plan) -> Plan:
    """Return the plan on devices that take the time that it says, but for what the scheduler takes itself."""
    devices = tuple(replace(device, kind="simulated", target=None) for device in plan.board.devices)
    stages = tuple(replace(stage, steps=tuple(_steps(stage))) for stage in plan.stages)
    return replace(plan, board=replace(plan.board, devices=devices), stages=stages)


def _steps(stage: StagePlan) -> Iterator[StepPlan]:
    """Yield the steps of a stage without what the scheduler really does to lend a device, which the plan has in them.

    It is a worker's time more than a device's, which others have by then: that of the step behind.
    """
    lent = False
    for step in stage.steps:
        is_own = step.device == stage.device
        yield replace(step, seconds=max(step.transfer_s, step.seconds - STEP_S)) if lent and is_own else step
        lent = not is_own


def stream(plan: Plan, seconds: float) -> float:
    """Return the frames per second of a stream through the real scheduler."""
    frame = np.zeros(plan.inputs[0].shape, np.float32)
    # The first frames fill the pipeline.
    count, first = max(20, int(seconds / predict(plan).interval_s)), plan.frames_in_flight
    with Pipeline(plan) as running:
        times = [perf_counter() for _ in running.map([frame] * (count + first))]
    return count / (times[-1] - times[first - 1])


if __name__ == "__main__":
    main()
