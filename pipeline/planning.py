"""Where profiling and the planner meet: a planner that knows what each device needs for a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pipeline.board import Board
from pipeline.split.planning.queues import VARIANCE

if TYPE_CHECKING:
    from pipeline.split.graph import Graph
    from pipeline.split.planner import Planner


def planner(  # noqa: PLR0913 - all but the first two by keyword
    graph: Graph,
    board: Board | str = "host",
    *,
    measure: bool = False,
    fresh: bool = False,
    queue_depth: int | str = "auto",
    variance: float = VARIANCE,
    progress: Callable[[str], None] = lambda _: None,
) -> Planner:
    """Return what plans `graph` on `board`; with `measure`, from times measured on the devices that are here.

    What was measured before is taken from the user's cache, unless it is to be `fresh`.

    Raises
    ------
    BoardError
        If the board is unknown.
    """
    from pipeline.split.planner import Planner

    if isinstance(board, str):
        import boards

        board = boards.get(board)
    if not measure:
        return Planner(graph, board, None, queue_depth, variance)
    from pipeline.profiling import profile

    found = profile(graph, board, fresh=fresh, progress=progress)
    return Planner(graph, found.board, found.measured, queue_depth, variance, found.crowded)
