"""Simulation of a plan beside the pipeline that runs it.

Plans on simulated devices run through the real scheduler with real threads, and through the simulation by discrete
events.  Both rates are taken between the first and the last result of a stream.  `latency_ratio` compares the medians
from a frame's start to its result, which also depend on how many frames wait where.  With an admission policy, 2.5
times as many frames come as are taken; then `latency_ratio` is that of the time since their arrival.

predicted_frames_per_s   what the plan promises; `predicted_ratio` is measured over predicted.  The plans called RK3588
                         are the planner's for its four big and four LITTLE cores, of a model of 25 ms on a big one
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter, sleep, time
from typing import Any

import efficiency
import numpy as np
from report import Row, median, parser, report

import boards
import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.demo.digits import FILE
from pipeline.prediction.predict import predict
from pipeline.scheduler import Pipeline
from pipeline.simulation import simulate
from pipeline.split.planning.planner import Planner

GOALS: dict[str, dict[str, Any]] = {
    "auto": {},
    "throughput": {"objective": "throughput"},
    "latency": {"objective": "latency"},
    "170 fps": {"fps": 170},
    "200 fps": {"fps": 200},
    "no replicas": {"replicas": False},
}

# As in bench/admission.py: well above what the slowest stage takes, so that every policy has to drop.
OVERRUN = 2.5
POLICIES: dict[str, dict[str, Any]] = {
    "latest": {"admission": "latest"},
    "drop-oldest, 4 wait": {"admission": "drop-oldest", "waiting": 4},
    "deadline of 60 ms": {"admission": "deadline", "deadline": 0.06},
}


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds, seconds = (3, 1.0) if options.quick else (7, 3.0)
    cases = plans()
    samples = [
        {name: overrun(plan, POLICIES[name], seconds) if name in POLICIES else stream(plan, seconds)
         for name, plan in cases.items()} for _ in range(rounds)
    ]  # fmt: skip
    rows = [
        row(
            name,
            plan,
            median([each[name][0] for each in samples]),
            median([each[name][1] for each in samples]),
            count(plan, seconds),
        )
        for name, plan in cases.items()
    ]
    report("Simulated over measured", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def plans() -> dict[str, Plan]:
    """Return the plans by name: those of bench/efficiency.py, and others with short queues and few frames inside."""
    plans_by_name = {
        name: efficiency.plan(graph, efficiency.REPLICAS.get(name, 1)) for name, graph in efficiency.GRAPHS.items()
    }
    chain = plans_by_name["bottleneck"]
    short_queues = tuple(replace(stage, queue_depth=1) for stage in chain.stages)
    mixed = tuple(replace(stage, replicas=2) if stage.seconds > 8e-3 else stage for stage in chain.stages)
    return {
        **plans_by_name,
        "queues of 1": replace(chain, stages=short_queues),
        "2 frames inside": replace(chain, in_flight=2),
        "1 frame inside": replace(chain, in_flight=1),
        "replicated middle": replace(chain, stages=mixed),
        "1 worker borrows": borrowing(1, cpu_s=4e-3, npu_s=2e-3),
        "3 workers borrow": borrowing(3, cpu_s=4e-3, npu_s=2e-3),
        "4 workers wait for it": borrowing(4, cpu_s=4e-3, npu_s=3e-3),
        "others are on it, too": borrowing(2, cpu_s=4e-3, npu_s=2e-3, behind_s=3e-3),
        **{f"RK3588 {name}": rk3588(**goal) for name, goal in GOALS.items()},
        **dict.fromkeys(POLICIES, chain),
    }


def rk3588(**goal: Any) -> Plan:
    """Return a plan for the cores of an RK3588, on simulated devices."""
    graph, board = pipeline.read(FILE), boards.get("rk3588")
    groups = len(graph.group_ends)
    cores = replace(board, devices=board.devices[:1], links=())
    plan = Planner(graph, cores, [25e-3 / groups] * groups).plan(**goal)
    devices = tuple(replace(device, kind="simulated", target=None) for device in cores.devices)
    return replace(plan, board=replace(cores, devices=devices))


def borrowing(replicas: int, cpu_s: float, npu_s: float, behind_s: float = 0.0) -> Plan:
    """Return a plan whose workers compute on cores and on what they borrow, twice in turn.

    With `behind_s`, an ordinary stage on the borrowed device follows.
    """
    times = [("cpu", cpu_s), ("npu", npu_s)] * 2 + [("npu", behind_s)] * (behind_s > 0)
    tensors = [TensorSpec(f"t{number}", (4,)) for number in range(len(times) + 1)]
    stages = tuple(
        StagePlan(f"stage{number}", device, (tensors[number],), (tensors[number + 1],), seconds=seconds)
        for number, (device, seconds) in enumerate(times)
    )
    board = Board("shared", (Device("cpu", "simulated"), Device("npu", "simulated")))
    plan = Plan("borrowing", "", board, (tensors[0],), (tensors[-1],), stages)
    return plan.join("stage0", "stage3", device="cpu", replicas=replicas)


def count(plan: Plan, seconds: float) -> int:
    """Return how many frames take about `seconds`."""
    return max(20, int(seconds / predict(plan).interval_s))


def stream(plan: Plan, seconds: float) -> tuple[float, float]:
    """Return frames per second and the median latency of a stream through the real scheduler."""
    frames = count(plan, seconds)
    frames_in = [np.full(plan.inputs[0].shape, number, np.float32) for number in range(frames)]
    with Pipeline(plan) as running:
        times = [perf_counter() for _ in running.map(frames_in)]
        latency = running.statistics().latency_s.p50
    return (frames - 1) / (times[-1] - times[0]), latency


def overrun(plan: Plan, policy: dict[str, Any], seconds: float) -> tuple[float, float]:
    """Return frames per second and the median time since arrival, where more frames come than are taken."""
    ends: list[tuple[float, float]] = []
    frame, interval = np.zeros(4, np.float32), predict(plan).interval_s / OVERRUN

    def note_end(future: Any) -> None:
        if future.exception() is None:
            ends.append((perf_counter(), time() - future.timestamp))

    with Pipeline(plan, **policy) as running:
        begin = perf_counter()
        for number in range(int(OVERRUN * count(plan, seconds))):
            # From the beginning on, not from the last frame: late wake-ups would add up to a slower source otherwise.
            sleep(max(0.0, begin + number * interval - perf_counter()))
            running.submit(frame).add_done_callback(note_end)
    return (len(ends) - 1) / (ends[-1][0] - ends[0][0]), median([age for _, age in ends])


def row(name: str, plan: Plan, rate: float, latency: float, frames: int) -> Row:
    """Return one line of the table."""
    policy = POLICIES.get(name)
    if policy is None:
        outcome = simulate(plan, frames=frames)
        simulated = outcome.latency_s.p50
    else:
        outcome = simulate(plan, frames=int(OVERRUN * frames), fps=OVERRUN / predict(plan).interval_s, **policy)
        simulated = outcome.since_arrival_s.p50
    return {
        "plan": name,
        "stage_ms": "+".join(f"{stage.seconds * 1e3:g}" for stage in plan.stages),
        "measured_frames_per_s": rate,
        "simulated_frames_per_s": outcome.frames_per_s,
        "ratio": outcome.frames_per_s / rate,
        "predicted_frames_per_s": predict(plan).frames_per_s,
        "predicted_ratio": rate * predict(plan).interval_s,
        "measured_latency_ms_p50": latency * 1e3,
        "simulated_latency_ms_p50": simulated * 1e3,
        "latency_ratio": simulated / latency,
    }


if __name__ == "__main__":
    main()
