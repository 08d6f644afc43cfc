"""Trade-off between rate and latency in a plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.solution import Solution
from pipeline.split.planning.solver.solver import Solver

MOST_LATENCY = 2.0
"""Plans of more than this multiple of the least latency are taken only for a gain in rate of `LEAST_GAIN`."""

LEAST_GAIN = 1.2
"""How much faster than any plan of little latency a plan of much latency has to be."""

# A search's time grows with the ways to run a stage.
_MANY_CHOICES = 32
# Along the front between the two ends: enough to see its bend.
_FRONT_STEPS = 4

POSITIONS = 120
"""At so many positions cuts are looked for at most, for up to eight searches; at half where each takes long."""


def longest_prompt(fastest: float) -> float:
    """Return the longest interval of an acceptable prompt plan."""
    # Just below, by more than the solver rounds: a gain of exactly that much is enough.
    return fastest * LEAST_GAIN * (1 - 1e-6)


def most_latency(least_latency: float) -> float:
    """Return the latency limit of prompt plans."""
    return least_latency * MOST_LATENCY


def prefer_prompt(problem: Problem, solution: Solution, slack: float, least_latency: float = np.inf) -> Solution:
    """Return the solution, or a prompt one less than 20 % slower.

    A prompt solution has at most twice the least latency.  Of these, it is the fastest, or one of fewer stages that is
    slower by at most `slack`.  If other problems have divisions of less latency, `least_latency` is that of these.
    """
    takes_long = problem.items > POSITIONS // 2 and len(problem.choices) > _MANY_CHOICES
    count = POSITIONS // 2 if takes_long else POSITIONS
    positions = sorted({*problem.spread_positions(count), *(stage.end for stage in solution.stages)})
    solver = Solver(problem.merge_items(positions))
    # The solution is one of the divisions; what is known bounds the search.
    quickest = solver.least("latency", np.inf, solution.latency)
    longest = most_latency(min(least_latency, solution.latency if quickest is None else quickest.latency))
    if solution.latency <= longest:
        return solution
    slowest = longest_prompt(solution.interval)
    prompt_solver = Solver(solver.problem, slowest, longest)
    prompt = prompt_solver.fastest()
    if prompt is None or prompt.interval > slowest:
        return solution
    return (prompt_solver.least("size", prompt.interval * slack) or prompt).at_positions(positions)


def front(solver: Solver, fastest: Solution) -> list[Solution]:
    """Return solutions from the fastest to the least late."""
    # The fastest of least latency: what costs no rate is no trade.
    quickest = solver.least("latency", np.inf)
    if quickest is None:
        return [fastest]
    limits = np.geomspace(fastest.interval, max(fastest.interval, quickest.interval), _FRONT_STEPS + 2)
    candidates = (solver.least("latency", limit) for limit in limits[:-1])
    solutions = [fastest]
    for candidate in (*candidates, quickest):
        if candidate is not None and candidate.latency < solutions[-1].latency * (1 - 1e-6):
            # As fast as the one before, and less late: that one is worse in nothing but is not needed.
            if candidate.interval <= solutions[-1].interval * (1 + 1e-9):
                solutions.pop()
            solutions.append(candidate)
    return solutions


def knee(solutions: Sequence[Solution]) -> Solution:
    """Return a front's knee: the least product of interval and latency."""
    # By how many times each end is missed, and not by how many seconds: the product knows no unit.
    return min(solutions[1:-1] or solutions, key=lambda solution: solution.interval * solution.latency)
