"""Plans for tests, also from times that a test makes up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pipeline
from pipeline.core.board.board import Board
from pipeline.core.plan.plan import Plan
from pipeline.split.graph import Graph
from pipeline.split.planning.planner import Planner
from tests.support.onnx_models import node, save

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


def chain_graph(folder: Path) -> Graph:
    """Return six operators that do not fuse, all alike."""
    nodes = [node("Softmax", f"t{number}", f"t{number + 1}", f"n{number}") for number in range(6)]
    return pipeline.read(save(folder / "m.onnx", nodes, {"t0": (64, 64)}, ["t6"]))
