"""Division: a graph in one order, and a better order for it."""

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
"""Most fused groups of a graph divided in other orders: its own takes long enough."""


MOST_DOWNSETS, _FEWEST_DOWNSETS = 600, 150
"""Most downsets fully searched, and fewest of a sample from some orders."""

# A search looks at each pair of downsets with each choice; so many take a third of a second.
_SPANS = 1e6
# Where there are too many downsets, those around the cuts are looked at until a round gains less than this share.
_ROUNDS, _GAIN = 6, 1e-3


@dataclass(frozen=True, eq=False)
class Division:
    """A problem and its solver."""

    problem: Problem
    solver: ChainSolver
    least_latency: float = np.inf
    """Least latency of divisions in any order, infinite where only this one is looked at."""
    solutions: dict[tuple[str, float | None], tuple[Solution, ...]] = field(default_factory=dict)
    """Solution chosen for a goal at a rate, as it becomes known."""

    @staticmethod
    def of(problem: Problem, least_latency: float = np.inf) -> Division:
        """Return a problem with its solver."""
        return Division(problem, ChainSolver(problem), least_latency)

    @cached_property
    def fastest(self) -> Solution | None:
        """The fastest solution, None if there is none at all."""
        return self.solver.fastest()

    @property
    def pace(self) -> float:
        """Least interval; infinite without a division."""
        return np.inf if self.fastest is None else self.fastest.interval

    def better_order(self, dag: GroupDag, board: Board, goal: str, fps: float | None) -> list[int] | None:
        """Return a promising order of the groups, or None."""
        # No order beats what no division with free transfers does.
        bound = relaxed_interval(self.problem) if goal == "throughput" else 0.0
        if self.fastest is not None and self.fastest.interval <= bound * ORDER_WORTH_IT:
            return None
        cuts = self._cuts_over_downsets(dag, board, goal, fps)
        return None if cuts is None else order_through(cuts, len(dag))

    def prompt_order(
        self, dag: GroupDag, board: Board, interval: float, fastest: Solution
    ) -> tuple[list[int] | None, float]:
        """Return the fastest prompt division's order; None if much slower.

        If a division that is `known` has little latency, it has to be faster than that as well.  Beside it the least
        latency of all divisions, in any order.
        """
        downsets = dag.downsets(self._most_downsets) or sample_downsets(self.problem, dag, self._most_downsets // 2)
        problem = downset_problem(self.problem, dag, board, downsets)
        quickest = Solver(problem).least("latency", np.inf) if problem else None
        if problem is None or quickest is None:
            return None, np.inf
        ceiling = longest_prompt(interval)
        if fastest.latency <= most_latency(quickest.latency):
            ceiling = min(ceiling, fastest.interval / ORDER_WORTH_IT)
        prompt = Solver(problem, ceiling, most_latency(quickest.latency)).fastest()
        if prompt is None or prompt.interval > ceiling:
            return None, quickest.latency
        return order_through([downsets[stage.end] for stage in prompt.stages[:-1]], len(dag)), quickest.latency

    def may_be_late(self, latency: float) -> bool:
        """Check if a latency may exceed the bound of prompt plans."""
        return latency > most_latency(self._quickest_groups)

    @property
    def _quickest_groups(self) -> float:
        """Time of a frame with each group at its fastest: a bound."""
        seconds = [choice.seconds for choice in self.problem.choices if choice.spans is None]
        return float(np.min(seconds, axis=0).sum()) if seconds else 0.0

    @property
    def _most_downsets(self) -> int:
        return int(np.clip(np.sqrt(_SPANS / len(self.problem.choices)), _FEWEST_DOWNSETS, MOST_DOWNSETS))

    def _cuts_over_downsets(self, dag: GroupDag, board: Board, goal: str, fps: float | None) -> list[int] | None:
        """Return the downsets of a division better than the own order's, or None."""
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
            value, solution = _value(solver, solver.fastest(), goal, fps) if solver else (np.inf, None)
            if solution is None or value >= best * (1 - _GAIN):
                break
            best, cuts = value, [candidates[stage.end] for stage in solution.stages[:-1]]
            if downsets:
                break
        return cuts if best * ORDER_WORTH_IT < own_value else None


def _value(
    solver: Solver | ChainSolver, fastest: Solution | None, goal: str, fps: float | None
) -> tuple[float, Solution | None]:
    """Return a goal's least value and solution, infinite without one."""
    if fastest is None or goal == "throughput":
        return (np.inf if fastest is None else fastest.interval), fastest
    if fps and fastest.interval > 1 / fps:
        # Whatever is slower than asked for has no value; the fastest of these is the least bad one.
        return np.inf, fastest
    solution = solver.least(goal, 1 / fps if fps else np.inf) or fastest
    return (solution.latency if goal == "latency" else solution.joules), solution
