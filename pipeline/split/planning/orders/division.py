"""Division: a graph in one order that is being divided, and another order in which it is divided better."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from pipeline.core.board.board import Board
from pipeline.split.orders import GroupDag
from pipeline.split.planning.orders.downsets import downset_problem, order_through, sample_downsets
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.bound import relaxed_interval
from pipeline.split.planning.solver.chain_solver import ChainSolver
from pipeline.split.planning.solver.solution import Solution
from pipeline.split.planning.solver.solver import Solver
from pipeline.split.planning.solver.trade_off import longest_prompt, most_latency

ORDER_WORTH_IT = 1.01
"""The graph's own order is kept unless another one is this much better."""

MOST_GROUPS = 2000
"""Graphs of more fused groups are divided in their own order, in which that takes long enough."""


MOST_DOWNSETS, _FEWEST_DOWNSETS = 600, 150
"""Up to so many all are looked at; of more, those that some orders pass through."""

# A search looks at each pair of downsets with each choice; so many take a third of a second.
_SPANS = 1e6
# Where there are too many downsets, those around the cuts are looked at until a round gains less than this share.
_ROUNDS, _GAIN = 6, 1e-3


@dataclass(frozen=True, eq=False)
class Division:
    """A problem, and what solves it.

    Attributes
    ----------
    problem : Problem
    solver : ChainSolver
    least_latency : float
        Of divisions in any order, infinite where only this one is looked at.
    solutions : dict of (str, float or None) to tuple of Solution
        What was chosen for a goal at a rate, as it becomes known.
    """

    problem: Problem
    solver: ChainSolver
    least_latency: float = np.inf
    solutions: dict[tuple[str, float | None], tuple[Solution, ...]] = field(default_factory=dict)

    @staticmethod
    def of(problem: Problem, least_latency: float = np.inf) -> Division:
        """Return a problem with what solves it."""
        return Division(problem, ChainSolver(problem), least_latency)

    @cached_property
    def fastest(self) -> Solution | None:
        """The fastest solution, None if there is none at all."""
        return self.solver.fastest()

    @property
    def pace(self) -> float:
        """The least interval, infinite if there is no division at all."""
        return np.inf if self.fastest is None else self.fastest.interval

    def better_order(self, dag: GroupDag, board: Board, goal: str, fps: float | None) -> list[int] | None:
        """Return an order of the groups in which a division promises to be better, None if there is none."""
        # No order beats what no division with free transfers does.
        least = relaxed_interval(self.problem) if goal == "throughput" else 0.0
        if self.fastest is not None and self.fastest.interval <= least * ORDER_WORTH_IT:
            return None
        cuts = self._cuts_over_downsets(dag, board, goal, fps)
        return None if cuts is None else order_through(cuts, len(dag))

    def prompt_order(
        self, dag: GroupDag, board: Board, interval: float, known: Solution
    ) -> tuple[list[int] | None, float]:
        """Return the order of the fastest division of little latency, None if none is nearly as fast as `interval`.

        If a division that is `known` has little latency, it has to be faster than that as well.  Beside it the least
        latency of all divisions, in any order.
        """
        downsets = dag.downsets(self._most_downsets) or sample_downsets(self.problem, dag, self._most_downsets // 2)
        problem = downset_problem(self.problem, dag, board, downsets)
        quickest = Solver(problem).least("latency", np.inf) if problem else None
        if problem is None or quickest is None:
            return None, np.inf
        ceiling = longest_prompt(interval)
        if known.latency <= most_latency(quickest.latency):
            ceiling = min(ceiling, known.interval / ORDER_WORTH_IT)
        prompt = Solver(problem, ceiling, most_latency(quickest.latency)).fastest()
        if prompt is None or prompt.interval > ceiling:
            return None, quickest.latency
        return order_through([downsets[stage.end] for stage in prompt.stages[:-1]], len(dag)), quickest.latency

    def may_be_late(self, latency: float) -> bool:
        """Return whether a latency may be more than plans have that are not much faster than all others."""
        return latency > most_latency(self._quickest_groups)

    @property
    def _quickest_groups(self) -> float:
        """Time of one frame if each group ran where it is the fastest; no division takes less."""
        seconds = [choice.seconds for choice in self.problem.choices if choice.spans is None]
        return float(np.min(seconds, axis=0).sum()) if seconds else 0.0

    @property
    def _most_downsets(self) -> int:
        return int(np.clip(np.sqrt(_SPANS / len(self.problem.choices)), _FEWEST_DOWNSETS, MOST_DOWNSETS))

    def _cuts_over_downsets(self, dag: GroupDag, board: Board, goal: str, fps: float | None) -> list[int] | None:
        """Return the downsets between stages of a division that is better than any in the own order, None without."""
        limit = self._most_downsets
        own_value, own_solution = _value(self.solver, self.fastest, goal, fps)
        prefixes = dag.prefixes(range(len(dag)))
        cuts = [prefixes[stage.end] for stage in own_solution.stages[:-1]] if own_solution else []
        # What gains less is not looked at.
        ceiling = np.inf if self.fastest is None else self.fastest.interval
        ceiling /= ORDER_WORTH_IT if goal == "throughput" else 1.0
        best, downsets = own_value, dag.downsets(limit)
        sample = [] if downsets else dag.coarse_downsets(limit // 2) or sample_downsets(self.problem, dag, limit // 2)
        for _ in range(_ROUNDS):
            candidates = downsets or sorted({*sample, *dag.around(cuts, limit // 2)}, key=int.bit_count)
            problem = downset_problem(self.problem, dag, board, candidates)
            solver = problem and Solver(problem, ceiling)
            least, solution = _value(solver, solver.fastest(), goal, fps) if solver else (np.inf, None)
            if solution is None or least >= best * (1 - _GAIN):
                break
            best, cuts = least, [candidates[stage.end] for stage in solution.stages[:-1]]
            if downsets:
                break
        return cuts if best * ORDER_WORTH_IT < own_value else None


def _value(
    solver: Solver | ChainSolver, fastest: Solution | None, goal: str, fps: float | None
) -> tuple[float, Solution | None]:
    """Return the least of a goal, infinite where nothing is fast enough, and the solution that reaches it."""
    if fastest is None or goal == "throughput":
        return (np.inf if fastest is None else fastest.interval), fastest
    if fps and fastest.interval > 1 / fps:
        # Whatever is slower than asked for has no value; the fastest of these is the least bad one.
        return np.inf, fastest
    solution = solver.least(goal, 1 / fps if fps else np.inf) or fastest
    return (solution.latency if goal == "latency" else solution.joules), solution
