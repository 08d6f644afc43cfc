"""The plan without a goal, by the words of docs/planning.md about the choice among plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from pipeline.prediction.uncertainty import draws
from tests.support.all_divisions import AllDivisions, Costs
from tests.support.documented_rules import Rules

WORTH_IT, PROMPT, LATE = 1.02, 2.0, 1.2
GAIN, CORES_GAIN, SHARE = 1.1, 1.5, 0.8
ROUNDING = 1 + 1e-4

Below = Callable[[float, float], Iterable[Costs]]
"""Divisions below an interval and a latency."""


@dataclass(frozen=True)
class DocumentedChoice:
    """The choice for a case, of all of its divisions; a first one has to be in hand."""

    divisions: AllDivisions

    def default(self, known: Costs) -> Costs:
        """Return the split if it gains enough, else the unsplit way."""
        plan = self.fastest_small(self.divisions.below, known)
        ways = self.divisions.unsplit()
        if not ways or not is_split(plan):
            return plan
        unsplit = min(ways, key=self._interval)
        if self.share(plan, unsplit) >= SHARE:
            return plan
        return self.fastest_small(lambda *limits: (way for way in ways if _is_below(way, *limits)), unsplit)

    def share(self, plan: Costs, unsplit: Costs) -> float:
        """Return the share of draws in which a split gains enough."""
        frees_cores = not unsplit.ways[0].threads and any(way.threads for way in plan.ways)
        least = CORES_GAIN if frees_cores else GAIN
        gains = []
        for factors in draws(self.divisions.rules.board):
            drawn = AllDivisions(Rules(self.divisions.rules.case, factors))
            gains.append(drawn.simulate(unsplit.ways) > least * drawn.simulate(plan.ways))
        return float(np.mean(gains))

    def fastest_small(self, below: Below, known: Costs) -> Costs:
        """Return the fewest stages and cores of nearly the fastest, with little latency if that costs little."""
        fastest = self._fastest(below, known, np.inf)
        small = self._smallest(below, fastest, np.inf)
        least = min((costs.latency for costs in below(np.inf, small.latency)), default=small.latency)
        if small.latency <= PROMPT * least * ROUNDING:
            return small
        limit = PROMPT * least * ROUNDING
        start = next(iter(below(LATE * self._interval(fastest), limit)), None)
        if start is None:
            return small
        prompt = self._fastest(below, start, limit)
        return self._smallest(below, prompt, limit) if self._interval(prompt) <= LATE * self._interval(small) else small

    def _fastest(self, below: Below, best: Costs, latency: float) -> Costs:
        better: Costs | None = best
        while better:
            best, limit = better, self._interval(better) / ROUNDING
            better = next((costs for costs in below(limit, latency) if self._interval(costs) < limit), None)
        return best

    def _smallest(self, below: Below, fastest: Costs, latency: float) -> Costs:
        limit = self._interval(fastest) * WORTH_IT
        near = sorted(below(limit, latency), key=lambda costs: costs.size)
        return next((costs for costs in near if self._interval(costs) <= limit), fastest)

    def _interval(self, costs: Costs) -> float:
        return self.divisions.simulate(costs.ways)


def is_split(costs: Costs) -> bool:
    """Check a division for several stages, or a stage that borrows."""
    return len(costs.ways) > 1 or [part.device for part in costs.ways[0].parts] != [costs.ways[0].device]


def _is_below(costs: Costs, interval: float, latency: float) -> bool:
    return costs.interval < interval and costs.latency < latency
