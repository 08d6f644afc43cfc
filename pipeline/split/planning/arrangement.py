"""Arrangement: the orders in which a graph may be cut, and which of them is divided best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.errors import PlanError
from pipeline.split.orders import GroupDag
from pipeline.split.planning.board_processors import board_processors
from pipeline.split.planning.candidates import Candidate, choose
from pipeline.split.planning.division import MOST_GROUPS, ORDER_WORTH_IT, Division
from pipeline.split.planning.goal_search import WORTH_IT, GoalSearch
from pipeline.split.planning.solution import Solution


@dataclass(frozen=True, eq=False)
class Arrangement:
    """The search in some order, with its division and what is best of it; without a plan, None."""

    search: GoalSearch
    division: Division
    candidate: Candidate | None

    @staticmethod
    def of(search: GoalSearch, least_latency: float = np.inf) -> Arrangement:
        """Return the order of a search with what it finds."""
        division = Division.of(search.problem(), least_latency)
        return Arrangement(search, division, search.candidate(division))

    @property
    def pays_for_latency(self) -> bool:
        """Whether the plan may be late, or is slower than others so as not to be."""
        if self.candidate is None:
            return False
        is_slower = self.candidate.solution.interval > self.division.pace * WORTH_IT
        return is_slower or self.division.may_be_late(self.candidate.prediction.latency_s)


def has_orders(search: GoalSearch) -> bool:
    """Return whether there are several orders to choose from."""
    graph, request = search.timed.graph, search.request
    # Cuts that a user gives are positions of the graph's own order, as are the ends of models; and the times of
    # spans are of groups that lie side by side in it.
    is_fixed = request.edges or request.borrowed or graph.model_ends or graph.unfused or search.timed.spans
    is_worth_it = len(board_processors(search.timed.board)) > 1 and len(graph.group_ends) <= MOST_GROUPS
    return is_worth_it and not is_fixed and not GroupDag.of(graph).is_chain


def arrange(search: GoalSearch) -> Arrangement:
    """Return the order in which the graph of a search is divided best."""
    own, dag, board = Arrangement.of(search), GroupDag.of(search.timed.graph), search.timed.board
    arrangements = [own]

    def try_order(order: Sequence[int] | None, least_latency: float = np.inf) -> None:
        if order is not None:
            reordered = replace(search, timed=search.timed.reorder(order))
            arrangements.append(Arrangement.of(reordered, least_latency))

    try_order(own.division.better_order(dag, board, search.goal, search.fps))
    best = best_arrangement(arrangements, search.goal, search.fps)
    if search.goal == "throughput" and not search.fps and best.pays_for_latency:
        pace = min(each.division.pace for each in arrangements)
        order, least_latency = own.division.prompt_order(dag, board, pace)
        try_order(order, least_latency)
        best = best_arrangement(arrangements, search.goal, search.fps, least_latency)
    return best


def best_arrangement(
    arrangements: Sequence[Arrangement], goal: str, fps: float | None, least_latency: float = np.inf
) -> Arrangement:
    """Return the best arrangement by what its plan takes; the first one, unless another is better by 1 %."""
    # An order was looked for without limits of memories and links.
    candidates = {id(each.candidate): each for each in arrangements if each.candidate}
    if candidates:
        in_reach = [each.candidate for each in candidates.values() if each.candidate]
        return candidates[id(choose(in_reach, goal, fps, ORDER_WORTH_IT, least_latency))]
    # What is told of the fastest one is why there is no plan.
    return min(arrangements, key=lambda each: each.division.pace)


def in_own_order_if_better(
    arranged: tuple[GoalSearch, Solution], own: GoalSearch, *, heterogeneous: bool
) -> tuple[GoalSearch, Solution]:
    """Return what a search finds in its own order if that is better than what was found in another one."""
    try:
        solution = own.solve(heterogeneous=heterogeneous)
    except PlanError:
        return arranged
    values = {"throughput": "interval", "latency": "latency", "energy": "joules"}
    is_better = getattr(solution, values[own.goal]) < getattr(arranged[1], values[own.goal])
    return (own, solution) if is_better else arranged
