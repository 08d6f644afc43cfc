"""Plan -> the same plan with queues: as deep as its stages' times ask for, and as there is memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from pipeline.errors import PlanError
from pipeline.plans import Plan, StagePlan
from pipeline.split.graph import Graph
from pipeline.split.planning.queues import Waiting, depths
from pipeline.split.resources import Footprint, rooms


def with_queues(plan: Plan, graph: Graph, depth: int | str, variance: float) -> Plan:
    """Return the plan with that depth for all queues, or with ``"auto"`` with one chosen for each."""
    if isinstance(depth, int):
        chosen = [depth] * len(plan.stages)
    else:
        chosen = depths(waiting(plan, graph), variance, _room(plan, graph))
    return replace(
        plan,
        stages=tuple(replace(stage, queue_depth=each) for stage, each in zip(plan.stages, chosen, strict=True)),
    )


def check(depth: int | str, variance: float) -> None:
    """Raise `PlanError` unless they are a depth and a variance."""
    if depth != "auto" and (not isinstance(depth, int) or isinstance(depth, bool) or depth < 1):
        raise PlanError(f"queue_depth is {depth!r}; it must be at least 1, or 'auto'")
    if not 0 <= variance <= 1:
        raise PlanError(f"variance is {variance}; it must be a share of a stage's time, 0 to 1")


def waiting(plan: Plan, graph: Graph) -> list[Waiting]:
    """Return the stages as their queues see them."""
    crossing = Footprint.of(graph).crossing
    return [
        Waiting(
            interval=plan.interval(stage),
            replicas=stage.replicas,
            memory=plan.board.device(stage.device).memory,
            nbytes=float(crossing[begin]),
        )
        for stage, (begin, _) in spans(plan, graph)
    ]


def spans(plan: Plan, graph: Graph) -> Iterator[tuple[StagePlan, tuple[int, int]]]:
    """Yield each stage with its first group, and the one behind its last."""
    groups = {operator.name: operator.group for operator in graph.operators}
    edges = [0, *(groups[stage.operators[1]] + 1 for stage in plan.stages)]
    return zip(plan.stages, pairwise(edges), strict=True)


def _room(plan: Plan, graph: Graph) -> dict[str, float]:
    """Return the bytes that are left for waiting frames, of each memory whose size is known."""
    left = {memory: float(size) for memory, size in rooms(plan.board).items()}
    footprint = Footprint.of(graph)
    for stage, (begin, end) in spans(plan, graph):
        memory = plan.board.device(stage.device).memory
        left[memory] = left.get(memory, math.inf) - footprint.kept(begin, end, stage.replicas)
    return {memory: size for memory, size in left.items() if size < math.inf}
