"""Bound: least interval of any division, by a relaxation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import Problem

# More steps move the bound by less than a thousandth on the networks of bench/planner.py.
_STEPS = 300
# Of a chain of more items, prices come from a shorter one, and a few steps refine them.
_MANY_ITEMS, _LAST_STEPS = 1000, 20


@dataclass(frozen=True)
class Relaxation:
    """A bound, and the prices that prove it."""

    interval: float
    """A time between two frames that no division can beat."""
    units: Array
    """Price of one unit of each processor for an interval. Shape (processors,)."""
    resources: Array
    """Price of each resource for an interval; all units and resources together cost at most 1. Shape (resources,)."""


def relaxed_interval(problem: Problem) -> float:
    """Return a lower bound on the interval; see `relax`."""
    return relax(problem).interval


def relax(problem: Problem) -> Relaxation:
    """Return a lower bound on the interval, with its proof.

    It lets each item go anywhere by any parts, without order and without transfers: a linear program, whose dual is

        maximise over prices >= 0 with sum(price * units) = 1:  sum over items of the cheapest choice's price.

    Every set of prices gives a bound, so that a few hundred steps uphill need no solver.  No stage can be faster than
    the slowest item on the choice that suits it best, either.
    """
    per_frame = np.array([choice.seconds / choice.rate for choice in problem.choices])
    slowest = float(per_frame.min(axis=0).max())
    processors, resources = len(problem.processors), len(problem.resources)
    # Some item runs nowhere: there is no division, and the dual would be a sum of infinities.
    if not np.isfinite(slowest):
        return Relaxation(slowest, np.zeros(processors), np.zeros(resources))
    interval, prices = _dual(problem)
    # The last factor is for rounding: a bound must not lie above the interval that it is compared with.
    interval = max(slowest, interval) * (1 - 1e-9)
    return Relaxation(interval, prices[:processors], prices[len(prices) - resources :])


class _Demand(NamedTuple):
    """Demand of choices: units ``(choices, units)``, seconds and loads ``(choices, items)``."""

    use: Array
    seconds: Array
    loads: Mapping[int, Array]

    def costs(self, prices: Array) -> Array:
        """Return the price of each item on each choice."""
        result: Array = (self.use @ prices[: self.use.shape[1]])[:, None] * self.seconds
        for resource, load in self.loads.items():
            result += prices[resource] * load
        return result

    def of(self, cheapest: NDArray[np.int_], count: int) -> Array:
        """Return the demand of items, each on its numbered choice."""
        columns = np.arange(self.seconds.shape[1])
        taken = np.zeros(count)
        taken[: self.use.shape[1]] = self.seconds[cheapest, columns] @ self.use[cheapest]
        for resource, load in self.loads.items():
            taken[resource] = load[cheapest, columns].sum()
        return taken


def _dual(problem: Problem) -> tuple[float, Array]:
    """Return the best bound with its prices."""
    demand, units = _demand(problem)
    prices, first_step = np.full(len(units), 1 / units.sum()), 0
    if problem.items > _MANY_ITEMS:
        # Any prices prove a bound: those of a short chain that is like this one are near to the best.
        _, prices = _dual(problem.merge_items(problem.spread_positions(_MANY_ITEMS // 2)))
        first_step = _STEPS - _LAST_STEPS
    best, best_prices = 0.0, prices
    columns = np.arange(problem.items)
    for step in range(first_step, _STEPS):
        costs = demand.costs(prices)
        cheapest = costs.argmin(axis=0)
        bound = float(costs[cheapest, columns].sum())
        if bound > best:
            best, best_prices = bound, prices.copy()
        # Dearer where the cheapest choices ask for more than there is, cheaper where they ask for less.
        taken = demand.of(cheapest, len(units)) / units
        # Multiplicative weights: prices stay above 0, and steps that shrink let them settle.
        prices *= np.exp((taken / max(taken.max(), 1e-300) - 0.5) * 2 / (1 + 0.1 * step))
        # Any prices are a bound once they are scaled so that all units together cost 1.
        prices /= prices @ units
    return best, best_prices


def _demand(problem: Problem) -> tuple[_Demand, Array]:
    """Return the choices' demand, and the supply of units and resources."""
    units = [float(processor.units) for processor in problem.processors]
    # Replicas that are alike take the same of each frame, however many they are.
    choices = list({_signature(choice): choice for choice in problem.choices}.values())
    use = np.array([np.array(choice.use, np.float64) / choice.rate for choice in choices])
    if problem.stages:
        # Each stage is busy for at most one interval, so that a fixed number of them is a resource as well.
        units, use = [*units, float(len(problem.stages))], np.hstack([use, [[1 / choice.rate] for choice in choices]])
    seconds = np.array([choice.seconds for choice in choices])
    loads = {
        len(units) + index: _finite(np.array([_item_loads(choice, index) for choice in choices]))
        for index in range(len(problem.resources))
        if any(index in choice.loads for choice in choices)
    }
    return _Demand(use, _finite(seconds), loads), np.array(units + [1.0] * len(problem.resources))


def _signature(choice: Choice) -> tuple[object, ...]:
    use = tuple(round(units / choice.rate, 12) for units in choice.use)
    loads = tuple((index, load.tobytes()) for index, load in choice.loads.items() if load.ndim == 1)
    return use, choice.seconds.tobytes(), loads


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, 1e300)


def _item_loads(choice: Choice, resource: int) -> Array:
    """Return how long each item uses a resource at least."""
    load = choice.loads.get(resource)
    # Nothing is known of single items where spans are no sums.
    return np.zeros_like(choice.seconds) if load is None or load.ndim == 2 else load
