"""How near does the simulation of a plan come to the pipeline that runs it?

Plans on simulated devices run through the real scheduler with real threads, and through the simulation by discrete
events.  Both rates are taken between the first and the last result of a stream.  `latency_ratio` compares the medians
from a frame's start to its result, which also depend on how many frames wait where.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import efficiency
import numpy as np
from report import Row, median, parser, report

from pipeline.plans import Plan
from pipeline.scheduler import Pipeline
from pipeline.simulation import simulate


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds, seconds = (3, 1.0) if options.quick else (7, 3.0)
    cases = plans()
    measured = [{name: stream(plan, seconds) for name, plan in cases.items()} for _ in range(rounds)]
    rows = [
        row(
            name,
            plan,
            median([each[name][0] for each in measured]),
            median([each[name][1] for each in measured]),
            count(plan, seconds),
        )
        for name, plan in cases.items()
    ]
    report("Simulated over measured", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def plans() -> dict[str, Plan]:
    """Return the plans by name: those of bench/efficiency.py, and others with short queues and few frames inside."""
    found = {
        name: efficiency.plan(graph, efficiency.REPLICAS.get(name, 1)) for name, graph in efficiency.GRAPHS.items()
    }
    chain = found["bottleneck"]
    short = tuple(replace(stage, queue_depth=1) for stage in chain.stages)
    mixed = tuple(replace(stage, replicas=2) if stage.seconds > 8e-3 else stage for stage in chain.stages)
    return {
        **found,
        "queues of 1": replace(chain, stages=short),
        "2 frames inside": replace(chain, in_flight=2),
        "1 frame inside": replace(chain, in_flight=1),
        "replicated middle": replace(chain, stages=mixed),
    }


def count(plan: Plan, seconds: float) -> int:
    """Return how many frames take about `seconds`."""
    return max(20, int(seconds / plan.slowest))


def stream(plan: Plan, seconds: float) -> tuple[float, float]:
    """Return frames per second and the median latency of a stream through the real scheduler."""
    frames = count(plan, seconds)
    sent = [np.full(4, number, np.float32) for number in range(frames)]
    with Pipeline(plan) as running:
        times = [perf_counter() for _ in running.map(sent)]
        latency = running.statistics().latency_s.p50
    return (frames - 1) / (times[-1] - times[0]), latency


def row(name: str, plan: Plan, rate: float, latency: float, frames: int) -> Row:
    """Return one line of the table."""
    found = simulate(plan, frames=frames)
    return {
        "plan": name,
        "stage_ms": "+".join(f"{stage.seconds * 1e3:g}" for stage in plan.stages),
        "measured_frames_per_s": rate,
        "simulated_frames_per_s": found.frames_per_s,
        "ratio": found.frames_per_s / rate,
        "measured_latency_ms_p50": latency * 1e3,
        "simulated_latency_ms_p50": found.latency_s.p50 * 1e3,
        "latency_ratio": found.latency_s.p50 / latency,
    }


if __name__ == "__main__":
    main()
