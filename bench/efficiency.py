"""Scheduler's rate over the ideal, one frame per time of the slowest stage.

Simulated stages compute nothing and take a known time, so whatever is lost is lost by the scheduler.  The rate is taken
between the first and the last result of a stream: filling the pipeline belongs to the first frame's latency.
"8 replicas" is one stage of 8 ms that eight workers run, each on another frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from report import Row, median, parser, report

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.scheduler import Pipeline

# Name -> for each stage its milliseconds and what it reads; the last stage's tensor is the result.
Graph = Mapping[str, tuple[float, Sequence[str]]]
# Equal stages are the hardest case: none has slack in which another's delay could hide.  Of the short ones the
# scheduler's own cost is the largest share; the long chain shows whether it adds up along a pipeline.
ALIKE: Graph = {"a": (5, ["x"]), "b": (5, ["a"]), "c": (5, ["b"]), "d": (5, ["c"])}
UNEQUAL: Graph = {"a": (3, ["x"]), "b": (9, ["a"]), "c": (5, ["b"])}
SHORT: Graph = {"a": (1, ["x"]), "b": (1, ["a"]), "c": (1, ["b"]), "d": (1, ["c"])}
LONG: Graph = {name: (5, [before]) for before, name in zip("xabcdefg", "abcdefgh", strict=True)}
BRANCHES: Graph = {"a": (2, ["x"]), "b": (5, ["a"]), "c": (5, ["a"]), "d": (5, ["a", "x"]), "e": (3, ["b", "c", "d"])}
SKIP: Graph = {"a": (4, ["x"]), "b": (6, ["a"]), "c": (5, ["b"]), "d": (4, ["c", "a"])}
REPLICATED: Graph = {"a": (8, ["x"])}
REPLICAS = {"8 replicas": 8}
GRAPHS = {
    "chain": ALIKE,
    "bottleneck": UNEQUAL,
    "short": SHORT,
    "long": LONG,
    "branches": BRANCHES,
    "skip edge": SKIP,
    "8 replicas": REPLICATED,
}


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds, seconds = (3, 1.0) if options.quick else (7, 3.0)
    samples = [{name: frames_per_s(name, graph, seconds) for name, graph in GRAPHS.items()} for _ in range(rounds)]
    rows = [row(name, graph, median([sample[name] for sample in samples])) for name, graph in GRAPHS.items()]
    report("Simulated stages: measured over ideal", rows, __doc__ or "", options.json)


def frames_per_s(name: str, graph: Graph, seconds: float) -> float:
    """Return the rate of a stream that takes about `seconds`."""
    replicas = REPLICAS.get(name, 1)
    # By time, not by number: stages of 1 ms need more frames than those of 9 ms for the same certainty.
    frames = max(20, int(seconds * ideal(graph) * replicas))
    frames_in = [np.full(4, number, np.float32) for number in range(frames)]
    times = []
    with Pipeline(plan(graph, replicas)) as running:
        for number, result in enumerate(running.map(frames_in)):
            times.append(perf_counter())
            if result[0] not in (0, number):  # branches make zeros
                raise AssertionError(f"result {number} is that of frame {result[0]}")
    # The frames that fill the replicas come out together.
    return (frames - replicas) / (times[-1] - times[replicas - 1])


def plan(graph: Graph, replicas: int = 1) -> Plan:
    """Return the stages on one simulated device each."""
    specs = {name: TensorSpec(name, (4,)) for name in ("x", *graph)}
    stages = tuple(
        StagePlan(
            name,
            f"device_{name}",
            tuple(specs[each] for each in reads),
            (specs[name],),
            seconds=time / 1e3,
            replicas=replicas,
        )
        for name, (time, reads) in graph.items()
    )
    devices = tuple(Device(stage.device, "simulated") for stage in stages)
    return Plan("simulated", "", Board("simulated", devices), (specs["x"],), (specs[list(graph)[-1]],), stages)


def ideal(graph: Graph) -> float:
    """Return the frames per second that the slowest stage allows."""
    return 1e3 / max(time for time, _ in graph.values())


def row(name: str, graph: Graph, frames_per_s_median: float) -> Row:
    """Return one line of the table."""
    best = ideal(graph) * REPLICAS.get(name, 1)
    result: dict[str, Any] = {
        "graph": name,
        "stage_ms": "+".join(f"{time:g}" for time, _ in graph.values()),
        "frames_per_s": frames_per_s_median,
        "ideal_frames_per_s": best,
        "ratio": frames_per_s_median / best,
    }
    return result


if __name__ == "__main__":
    main()
