"""Arrangement: orders of a graph for cuts, and the best one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from pipeline.errors import PlanError
from pipeline.split.orders import GroupDag
from pipeline.split.planning.goal_search import WORTH_IT, GoalSearch
from pipeline.split.planning.orders.division import MOST_GROUPS, ORDER_WORTH_IT, Division
from pipeline.split.planning.problem.board_processors import board_processors
from pipeline.split.planning.small_graph import MOST_GROUPS as MOST_SMALL_GROUPS
from pipeline.split.planning.small_graph import SmallGraph
from pipeline.split.planning.solver.candidates import Candidate, choose
from pipeline.split.planning.solver.solution import Solution
from pipeline.split.planning.timed_graph import TimedGraph

_MOST_ORDERS = 24
"""Orders tried for stages that borrow before a rate is refused."""


@dataclass(frozen=True, eq=False)
class Arrangement:
    """A search in one order, its division and best plan, or None."""

    search: GoalSearch
    division: Division
    candidate: Candidate | None

    @staticmethod
    def of(search: GoalSearch, least_latency: float = np.inf) -> Arrangement:
        """Return the order of a search, with its result."""
        division = Division.of(search.problem(), least_latency)
        return Arrangement(search, division, search.candidate(division))

    @property
    def pays_for_latency(self) -> bool:
        """True if the plan may be late, or is slower to avoid it."""
        if self.candidate is None:
            return False
        is_slower = self.candidate.solution.interval > self.division.pace * WORTH_IT
        return is_slower or self.division.may_be_late(self.candidate.prediction.latency_s)


def may_reorder(search: GoalSearch) -> bool:
    """Check a search's graph for several allowed orders."""
    graph, request = search.timed.graph, search.request
    # Cuts that a user gives are positions of the graph's own order, as are the ends of models; and the times of
    # spans are of groups that lie side by side in it.
    is_fixed = request.edges or request.borrowed or graph.model_ends or graph.unfused or search.timed.spans
    return len(graph.group_ends) <= MOST_GROUPS and not is_fixed and not GroupDag.of(graph).is_chain


def solve_ordered(search: GoalSearch, *, heterogeneous: bool) -> tuple[TimedGraph, Solution]:
    """Return the graph in the best order, with its solution."""
    arrangement = arrange(search)
    try:
        return arrangement.search.timed, arrangement.search.solve(arrangement.division, heterogeneous=heterogeneous)
    except PlanError:
        # Its order was chosen for stages that borrow nothing.
        solved = _solve_in_any_order(search) if heterogeneous else None
        if solved is None:
            raise
        return solved


def _solve_in_any_order(search: GoalSearch) -> tuple[TimedGraph, Solution] | None:
    """Return a small graph in the first order that keeps up, or None."""
    dag = GroupDag.of(search.timed.graph)
    if search.fps and len(dag) <= MOST_SMALL_GROUPS and may_reorder(search):
        for order in islice(dag.orders(), _MOST_ORDERS):
            reordered = replace(search, timed=search.timed.reorder(order))
            with suppress(PlanError):
                return reordered.timed, reordered.solve(Division.of(reordered.problem()))
    return None


def arrange(search: GoalSearch, *, is_free: bool = True) -> Arrangement:
    """Return the best order of a graph, its own unless `is_free`."""
    if search.request.borrowed:
        # There are no chains to compare with.
        return Arrangement(search, Division.of(search.problem()), None)
    division, is_free = Division.of(search.problem()), is_free and may_reorder(search)
    small = SmallGraph.of(search, division.problem, is_free=is_free)
    # Of all divisions, the solver's is only a first one.
    enumerated = None if small is None or small.is_exact else _enumerate(small, division, None)
    unordered = None
    if enumerated is None:
        unordered = Arrangement(search, division, search.candidate(division))
        if small and small.is_exact and not (unordered.candidate and unordered.candidate.is_as_counted):
            enumerated = _enumerate(small, division, unordered.candidate)
    if enumerated and small and small.enumeration.is_complete:
        return enumerated
    unordered = unordered or Arrangement(search, division, search.candidate(division))
    # Cores that are all alike do not care.
    has_kinds = len(board_processors(search.timed.board)) > 1
    arrangements, least_latency = _try_orders(unordered) if is_free and has_kinds else ([unordered], np.inf)
    if enumerated and small:
        arrangements, least_latency = [enumerated, *arrangements], min(least_latency, small.least_latency)
    return best_arrangement(arrangements, search.goal, search.fps, least_latency)


def _try_orders(unordered: Arrangement) -> tuple[list[Arrangement], float]:
    """Return promising orders, and the least latency if known."""
    search, dag, board = unordered.search, GroupDag.of(unordered.search.timed.graph), unordered.search.timed.board
    arrangements, least_latency = [unordered], np.inf

    def try_order(order: Sequence[int] | None) -> None:
        if order is not None:
            reordered = replace(search, timed=search.timed.reorder(order))
            arrangements.append(Arrangement.of(reordered, least_latency))

    try_order(unordered.division.better_order(dag, board, search.goal, search.fps))
    best = best_arrangement(arrangements, search.goal, search.fps)
    if search.goal == "throughput" and not search.fps and best.candidate and best.pays_for_latency:
        pace = min(arrangement.division.pace for arrangement in arrangements)
        order, least_latency = unordered.division.prompt_order(dag, board, pace, best.candidate.solution)
        try_order(order)
    return arrangements, least_latency


def _enumerate(small: SmallGraph, division: Division, incumbent: Candidate | None) -> Arrangement | None:
    """Return the best division of a small graph, or None."""
    search, fastest = small.search, division.fastest
    if incumbent is None and fastest is not None:
        incumbent = Candidate(fastest, search.timed.predict(fastest))
    candidate = small.best(incumbent)
    if candidate is None:
        return None
    division = Division(division.problem, division.solver)
    if candidate.order and candidate.order != tuple(range(len(candidate.order))):
        search = replace(search, timed=small.arrange(candidate.order))
        division = Division.of(search.problem())
    solution = small.with_bound(candidate.solution, division.problem)
    division.solutions[search.goal, search.fps] = (solution,)
    return Arrangement(search, division, replace(candidate, solution=solution))


def best_arrangement(
    arrangements: Sequence[Arrangement], goal: str, fps: float | None, least_latency: float = np.inf
) -> Arrangement:
    """Return the best plan's arrangement; the first within 1 %."""
    # An order was looked for without limits of memories and links.
    candidates = {id(arrangement.candidate): arrangement for arrangement in arrangements if arrangement.candidate}
    if candidates:
        in_reach = [arrangement.candidate for arrangement in candidates.values() if arrangement.candidate]
        return candidates[id(choose(in_reach, goal, fps, ORDER_WORTH_IT, least_latency))]
    # What is told of the fastest one is why there is no plan.
    return min(arrangements, key=lambda arrangement: arrangement.division.pace)
