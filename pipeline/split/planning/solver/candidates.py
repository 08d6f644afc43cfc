"""Candidates: divisions with their plans' times, above the solver's count.

The solver lets a tensor that is read later cross each stage between, and sees nobody wait in line for what is shared.
`predict` follows each tensor and each frame: it decides between divisions that the solver holds for nearly as good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.prediction.predict import Prediction
from pipeline.split.planning.problem.limits import ROUNDING
from pipeline.split.planning.solver.chain_solver import ChainSolver
from pipeline.split.planning.solver.solution import Solution
from pipeline.split.planning.solver.trade_off import longest_prompt, most_latency

Predict = Callable[[Solution], Prediction]

_AS_COUNTED = 1.002
"""Share above its division's promise up to which a plan is not compared with others."""

UNIT_SIZE = 1e-3
"""Weight of one more core, in stages."""

_COSTS = {"throughput": "size", "latency": "latency", "energy": "energy"}

# Intervals between what was promised and what comes: at each there may be a division that is better in truth.
_TRIALS, _FEW_TRIALS = 4, 2
# In longer chains each search takes long.
_MANY_GROUPS = 60


@dataclass(frozen=True)
class Candidate:
    """A division with its plan's prediction."""

    solution: Solution
    prediction: Prediction
    order: tuple[int, ...] = ()
    """Order of the graph's groups, where it may be any; empty for the solution's own."""

    @property
    def size(self) -> float:
        """Number of stages, and among equals of units."""
        return sum(1 + sum(stage.choice.use) * UNIT_SIZE for stage in self.solution.stages)

    @property
    def is_as_counted(self) -> bool:
        """True if the plan hardly exceeds the solver's count."""
        solution, prediction = self.solution, self.prediction
        return prediction.interval_s <= solution.interval * _AS_COUNTED and abs(
            prediction.latency_s - solution.latency
        ) <= solution.latency * (_AS_COUNTED - 1)

    def value(self, goal: str) -> float:
        """Return the minimised quantity."""
        if goal == "energy":
            return np.inf if self.prediction.joules is None else self.prediction.joules
        return self.prediction.latency_s if goal == "latency" else self.prediction.interval_s


def choose(
    candidates: Sequence[Candidate], goal: str, fps: float | None, worth_it: float, least_latency: float = np.inf
) -> Candidate:
    """Return the best candidate; the first within `worth_it`.

    If some division has less latency than all candidates, `least_latency` is that.
    """
    if fps:
        in_time = [candidate for candidate in candidates if candidate.prediction.interval_s <= 1 / fps * (1 + 1e-9)]
        if not in_time:
            return min(candidates, key=lambda candidate: candidate.prediction.interval_s)
        candidates = in_time
    elif goal == "throughput":
        candidates = _prompt(candidates, least_latency)
    first, best = candidates[0], min(candidates, key=lambda candidate: candidate.value(goal))
    return first if first.value(goal) <= best.value(goal) * worth_it else best


def _prompt(candidates: Sequence[Candidate], least_latency: float) -> Sequence[Candidate]:
    """Return the prompt candidates, or all if late ones pay."""
    least_known = min(least_latency, *(candidate.prediction.latency_s for candidate in candidates))
    prompt = [candidate for candidate in candidates if candidate.prediction.latency_s <= most_latency(least_known)]
    if not prompt:
        return candidates
    fastest, fastest_prompt = (
        min(candidate.prediction.interval_s for candidate in group) for group in (candidates, prompt)
    )
    return candidates if fastest_prompt > longest_prompt(fastest) else prompt


def keep_up(solver: ChainSolver, fastest: Solution, goal: str, interval: float, predict: Predict) -> Candidate:
    """Return the cheapest division whose plan keeps up, or a fast one."""
    division = solver.least(_COSTS[goal], interval)
    candidates = [Candidate(solution, predict(solution)) for solution in (division, fastest) if solution is not None]
    if candidates[0].prediction.interval_s > interval * (1 + ROUNDING):
        candidates += _fast_candidates(solver, fastest, interval, predict)
    return choose(candidates, goal, 1 / interval, 1.0)


def prefer_predicted(solver: ChainSolver, solution: Solution, fastest: Solution, predict: Predict) -> Solution:
    """Return the solution, or one with a faster plan."""
    first = Candidate(solution, predict(solution))
    if first.is_as_counted:
        return solution
    rivals = _fast_candidates(solver, fastest, first.prediction.interval_s, predict)
    quickest = solver.least("latency", np.inf) or fastest
    return choose([first, *rivals], "throughput", None, _AS_COUNTED, quickest.latency).solution


def _fast_candidates(solver: ChainSolver, fastest: Solution, longest: float, predict: Predict) -> list[Candidate]:
    """Return small, prompt divisions counted below `longest`."""
    if fastest.stages[-1].end > _MANY_GROUPS:
        trials, solver = _FEW_TRIALS, solver.around(fastest)
    else:
        trials = _TRIALS
    limits = np.geomspace(fastest.interval, max(fastest.interval, longest), trials)
    divisions = [fastest, *(solver.least(goal, limit) for limit in limits for goal in ("size", "latency"))]
    return [Candidate(division, predict(division)) for division in divisions if division is not None]
