"""Queues: room for waiting frames before stages, against jitter.

Frames come to a queue at best at the pace of the slowest stage before it, and leave it at best at that of the slowest
one behind it.  By as much as the one is faster than the other, the number of waiting frames drifts to one end; as
stages' times vary, it strays from there as a random walk does, whose variance per frame is that of both sides' times.
For a share of the time it is at the other end, where the slower side waits for the faster one:

    cost = drift / (exp(drift * room / cv ** 2) - 1),    without a drift  cv ** 2 / room

with the coefficient of variation of a stage's time, its standard deviation as a share of it, for `cv`.  There is room
for the frames that may wait, and for the one that a stage works on; of several replicas, which take turns, for a share
of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.errors import PlanError
from pipeline.prediction.predict import predict
from pipeline.split.graph import Graph
from pipeline.split.planning.problem.footprint import Footprint
from pipeline.split.planning.problem.problem_builder import memory_sizes

TIME_CV = 0.1
"""Coefficient of variation of a stage's time, its standard deviation as a share of it, where nothing else is said."""

# Several queues in a row cost little more than one: tests hold whole pipelines to 1.6 times this.
COST = 0.015
"""Share of the frame rate that one queue may cost."""

LEAST = 2
"""Depth also where times do not vary: whoever waits for room, or for a frame, takes a moment to wake up."""

# Below this drift, the cost is that of a random walk without one, where the formula would divide by nearly 0.
_NO_DRIFT = 1e-6


@dataclass(frozen=True)
class StageQueue:
    """The queue in front of a stage."""

    interval: float
    """Seconds between two frames of the stage."""
    replicas: int = 1
    memory: str = ""
    """Name of the memory where its frames wait."""
    nbytes: float = 0.0
    """Bytes of one waiting frame."""


def add_queues(plan: Plan, graph: Graph, depth: int | str, cv: float) -> Plan:
    """Return the plan with queue depths, given or ``"auto"``."""
    if isinstance(depth, int):
        depths = [depth] * len(plan.stages)
    else:
        depths = choose_depths(stage_queues(plan, graph), cv, _queue_room(plan, graph))
    return replace(
        plan,
        stages=tuple(replace(stage, queue_depth=depth) for stage, depth in zip(plan.stages, depths, strict=True)),
    )


def check_depth(depth: int | str, cv: float) -> None:
    """Raise `PlanError` unless depth and coefficient of variation are valid."""
    if depth != "auto" and (not isinstance(depth, int) or isinstance(depth, bool) or depth < 1):
        raise PlanError(f"queue_depth is {depth!r}; it must be at least 1, or 'auto'")
    if not 0 <= cv <= 1:
        raise PlanError(f"cv is {cv}; the coefficient of variation of a stage's time is 0 to 1")


def stage_queues(plan: Plan, graph: Graph) -> list[StageQueue]:
    """Return the queues of a plan's stages."""
    footprint = Footprint.of(graph)
    intervals = [stage.interval_s for stage in predict(plan).stages]
    return [
        StageQueue(
            interval=interval,
            replicas=stage.replicas,
            memory=plan.board.device(stage.device).memory,
            nbytes=footprint.entry_bytes(begin, end),
        )
        for interval, (stage, (begin, end)) in zip(intervals, stage_groups(plan, graph), strict=True)
    ]


def stage_groups(plan: Plan, graph: Graph) -> Iterator[tuple[StagePlan, tuple[int, int]]]:
    """Yield each stage with its range of groups."""
    groups = {operator.name: operator.group for operator in graph.operators}
    edges = [0, *(groups[stage.operators[1]] + 1 for stage in plan.stages)]
    return zip(plan.stages, pairwise(edges), strict=True)


def choose_depths(queues: Sequence[StageQueue], cv: float, room: Mapping[str, float]) -> list[int]:
    """Return the smallest depths within `COST`, as room allows.

    `cv` is the coefficient of variation of a stage's time; `room` has the bytes for waiting frames, of memories of
    limited size.
    """
    depths = [_depth(queues, index, cv) for index in range(len(queues))]
    for memory, limit in room.items():
        residents = [index for index, queue in enumerate(queues) if queue.memory == memory]
        # One place at a time, so that no queue gives more than memory asks for.
        while sum(depths[index] * queues[index].nbytes for index in residents) > limit:
            longer = [index for index in residents if depths[index] > 1]
            if not longer:
                break
            # The queue that takes the most memory gives the most back.
            depths[max(longer, key=lambda index: depths[index] * queues[index].nbytes)] -= 1
    return depths


def queue_cost(queues: Sequence[StageQueue], index: int, depth: int, cv: float) -> float:
    """Return a queue's expected cost, as a share of the rate.

    The caller, who fills the first stage's queue, is taken to be as fast as that asks for.
    """
    if index == 0 or not cv:
        return 0.0
    drift, variance = _drift(queues, index), cv**2
    room = depth + _room_at_work(queues, index)
    steps = drift * room / variance
    # Beyond 500 the exponential function leaves the range of a float, and the cost is nothing.
    return min(1.0, variance / room if steps < _NO_DRIFT else drift / math.expm1(min(steps, 500.0)))


def _depth(queues: Sequence[StageQueue], index: int, cv: float) -> int:
    """Return the smallest depth within `COST`."""
    if index == 0 or not cv:
        return LEAST
    drift, variance = _drift(queues, index), cv**2
    room = variance / COST if drift < _NO_DRIFT else variance / drift * math.log1p(drift / COST)
    return max(LEAST, math.ceil(room - _room_at_work(queues, index)))


def _drift(queues: Sequence[StageQueue], index: int) -> float:
    """Return the relative advantage of a queue's faster side."""
    arrival_s, service_s = (max(queue.interval for queue in side) for side in (queues[:index], queues[index:]))
    # A side that takes no time is as good as endlessly faster.
    return max(arrival_s, service_s) / max(min(arrival_s, service_s), 1e-9 * max(arrival_s, service_s), 1e-300) - 1


def _room_at_work(queues: Sequence[StageQueue], index: int) -> float:
    # A stage's frame at work is room as well; with replicas, one of them is always nearly done.
    return 1 / max(queues[index - 1].replicas, queues[index].replicas)


def _queue_room(plan: Plan, graph: Graph) -> dict[str, float]:
    """Return the bytes left for waiting frames, by memory of known size."""
    room = {memory: float(size) for memory, size in memory_sizes(plan.board).items()}
    footprint = Footprint.of(graph)
    for stage, (begin, end) in stage_groups(plan, graph):
        for memory, replicas in Counter(plan.board.device(name).memory for name in stage.replica_names).items():
            if memory in room:
                room[memory] -= footprint.stage_bytes(begin, end, replicas)
    return room
