"""Lagrangian: divisions under limits of sums, by prices.

With a price, a limit's sum is one more cost of each stage, and one search finds the cheapest division.  Its cost is
also a bound: no division that keeps the limits is cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.border_kinds import Segment
from pipeline.split.planning.problem.limits import ROUNDING, SumLimit
from pipeline.split.planning.solver.stage_table import StageTable

Search = Callable[[StageTable, float], list[Segment] | None]
"""Returns the division with the least sum over a table, None if there is none up to a ceiling."""

_ROUNDS = 12
"""How often limits are weighed against each other before they count as out of reach."""

# A division so near to the bound is good enough.
_TOLERANCE = 1e-4
_BALANCE_STEPS = 200


class Feasibility(NamedTuple):
    """A division within all limits, if found, and the least pace share.

    An infinite share means that there is no division.
    """

    segments: list[Segment] | None
    least_pace: float


class CheapestDivision(NamedTuple):
    """A division within all limits, if found, and a lower bound."""

    segments: list[Segment] | None
    bound: float


class Lagrangian:
    """Search among a problem's divisions within limits."""

    def __init__(self, search: Search) -> None:
        self._search = search
        # What was found to matter at one interval matters at the next one, too.
        self._weights = np.zeros(0)

    def feasible(self, stages: StageTable, limits: Sequence[SumLimit], start: Sequence[Segment]) -> Feasibility:
        """Return a division of possible stages within limits, by weighing.

        The weight of a limit grows where it was exceeded; if the weighed sum is above 1, no division keeps all of them.
        `stages` has 0 for each possible one; the division `start` exceeds some limits.
        """
        if not self._weights.any():
            self._weights = _single(_shares(start, limits))
        least_pace, tried = 0.0, list[Array]()
        for _ in range(_ROUNDS):
            segments = self._search(add_priced(stages, self._weights, limits), 1 + 2 * ROUNDING)
            if segments is None:
                return Feasibility(None, np.inf)
            shares = _shares(segments, limits)
            least_pace = max(least_pace, _least_pace(self._weights, float(self._weights @ shares), limits))
            if (shares <= 1 + ROUNDING).all():
                return Feasibility(segments, least_pace)
            # The same division again: these weights are as good as any.
            if any(np.array_equal(shares, earlier) for earlier in tried):
                break
            tried.append(shares)
            self._weights = _balance(np.array(tried))
        return Feasibility(None, least_pace)

    def cheapest(
        self, costs: StageTable, limits: Sequence[SumLimit], start: list[Segment], within: list[Segment]
    ) -> CheapestDivision:
        """Return the cheapest known division within limits, with a bound.

        `start` is the cheapest division of all, which exceeds a limit; `within` keeps them.
        """
        weights, above, best = _single(_shares(start, limits)), start, within
        tried = [_shares(start, limits)]
        bound = costs.total(start)
        for _ in range(_ROUNDS):
            # Where the lines of the two meet, as prices grow, neither is cheaper (Handler and Zang, 1980).
            spare, excess = (float(weights @ _shares(segments, limits)) - 1 for segments in (within, above))
            if excess <= spare:
                break
            price = max(0.0, costs.total(within) - costs.total(above)) / (excess - spare)
            ceiling = costs.total(within) + price * spare
            # What a division costs beyond its share, which is at most 1 for those that are looked for.
            segments = self._search(add_priced(costs, price * weights, limits), (ceiling + price) * (1 + 2 * ROUNDING))
            shares = _shares(segments, limits) if segments is not None else np.zeros(len(limits))
            value = ceiling if segments is None else costs.total(segments) + price * (float(weights @ shares) - 1)
            bound = max(bound, value)
            if segments is None or value >= ceiling * (1 - _TOLERANCE):
                break
            if (shares <= 1 + ROUNDING).all():
                within = segments
                best = min(best, within, key=costs.total)
            elif weights @ shares > 1:
                above = segments
            else:
                # It keeps the weighed sum of the limits and not each of them.
                tried.append(shares)
                weights, above = _balance(np.array(tried)), segments
        return CheapestDivision(best, min(bound, costs.total(best)))


def add_priced(table: StageTable, prices: Array, limits: Sequence[SumLimit]) -> StageTable:
    """Return the table plus priced shares of limits."""
    sums = dict(table.values)
    for price, limit in zip(prices, limits, strict=True):
        if price:
            share = price / limit.limit
            sums |= {key: sums[key] + share * values for key, values in limit.values.items() if key in sums}
    return StageTable.of(sums)


def keeps(segments: Sequence[Segment], limits: Sequence[SumLimit]) -> bool:
    """Check a division against all limits."""
    return all(limit.share(segments) <= 1 + ROUNDING for limit in limits)


def _shares(segments: Sequence[Segment], limits: Sequence[SumLimit]) -> Array:
    """Return a division's share of each limit."""
    return np.array([limit.share(segments) for limit in limits])


def _least_pace(weights: Array, least_sum: float, limits: Sequence[SumLimit]) -> float:
    """Return the smallest share of the pace within reach."""
    paced = float(sum(weight for weight, limit in zip(weights, limits, strict=True) if limit.paced))
    return (least_sum - (1 - paced)) / paced if paced else 0.0


def _single(shares: Array) -> Array:
    """Return weights of the most exceeded limit alone."""
    weights = np.zeros(len(shares))
    weights[shares.argmax()] = 1.0
    return weights


def _balance(shares: Array) -> Array:
    """Return weights nearly maximising the divisions' least weighted sum.

    Only limits that some of these divisions exceed weigh anything.
    """
    # A game of the weights against the divisions, with multiplicative weights as in a linear program's dual.
    is_exceeded = (shares > 1 + ROUNDING).any(axis=0)
    weights: Array = is_exceeded / is_exceeded.sum()
    mean: Array = np.zeros_like(weights)
    for step in range(1, _BALANCE_STEPS + 1):
        mean += weights / _BALANCE_STEPS
        cheapest = shares[(shares @ weights).argmin()]
        weights = weights * np.exp((cheapest - 1) / max(1e-9, float(np.abs(cheapest - 1).max())) / np.sqrt(step))
        weights /= weights.sum()
    return mean
