"""Plans for tests, also from times that a test makes up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.core.board import Board
from pipeline.core.plan import Plan
from pipeline.split.graph import Graph
from pipeline.split.planning.planner import Planner

Times = Sequence[float] | Mapping[str, Sequence[float]]


def plan_with_times(
    graph: Graph,
    board: Board,
    *,
    seconds: Times | None = None,
    queue_depth: int | str = "auto",
    cv: float = 0.1,
    **options: Any,
) -> Plan:
    """Plan as `pipeline.plan` does, with the seconds of each fused group on one core."""
    return Planner(graph, board, seconds, queue_depth, cv).plan(**options)
