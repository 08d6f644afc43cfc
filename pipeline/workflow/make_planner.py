"""Planner factory: a graph's planner on a board, with estimates or measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pipeline.core.board.board import Board
from pipeline.measure.sampling import FULL, Sampling
from pipeline.split.planning.problem.queues import TIME_CV

if TYPE_CHECKING:
    from pipeline.split.graph import Graph
    from pipeline.split.planning.planner import Planner


def make_planner(  # noqa: PLR0913 - all but the first two by keyword
    graph: Graph,
    board: Board | str = "host",
    *,
    measure: bool = False,
    runtimes: Sequence[str] = (),
    fresh: bool = False,
    queue_depth: int | str = "auto",
    cv: float = TIME_CV,
    unfused: Sequence[str | int] = (),
    pin: Mapping[str, str] | None = None,
    sampling: Sampling = FULL,
    progress: Callable[[str], None] = lambda _: None,
) -> Planner:
    """Make the planner of `graph` on `board`, optionally with measured times.

    Devices that other runtimes drive are asked what they run.  What was measured or asked before is taken from the
    user's cache, unless it is to be `fresh`.  Fused groups are divided at the cuts `unfused`, so that these are legal,
    and names in `pin` run on the devices given there.

    Raises
    ------
    BoardError
        If the board is unknown.
    PlanError
        If such a cut or a name in `pin` is, or pins contradict each other.
    """
    from pipeline.measure.refusals import find_refusals
    from pipeline.measure.server_slots import ask_slots
    from pipeline.split.planning.planner import Planner
    from pipeline.split.planning.problem.pins import resolve_pins
    from pipeline.split.unfused import unfuse

    # Before anything is measured, since times are those of kernels, and there are others in a divided group.
    graph, board = unfuse(graph, unfused), ask_slots(_resolve_board(board, runtimes))
    pins = resolve_pins(graph, board, pin)
    refusals = find_refusals(graph, board, runtimes=measure, fresh=fresh, progress=progress)
    if not measure:
        return Planner(graph, board, None, queue_depth, cv, pins=pins, refusals=refusals)
    from pipeline.measure.profile import profile

    times = profile(graph, board, fresh=fresh, refusals=refusals, progress=progress, sampling=sampling)
    # With the rates that were measured on the way, in place of those in the file of the board.
    return Planner(graph, times.board, times.measured, queue_depth, cv, times.contended, pins, times.spans, refusals)


def _resolve_board(board: Board | str, runtimes: Sequence[str]) -> Board:
    """Return the named board with the requested runtimes."""
    if isinstance(board, str):
        import boards

        board = boards.get(board)
    return board.with_runtimes(runtimes) if runtimes else board
