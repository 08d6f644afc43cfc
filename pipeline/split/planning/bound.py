"""Bound: a time between two frames that no division beats, from a relaxation of the problem."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.split.planning.problem import Array, Choice, Problem

# More steps move the bound by less than a thousandth on the networks of bench/planner.py.
_STEPS = 300


@dataclass(frozen=True)
class Relaxation:
    """A bound, and the prices that prove it.

    Attributes
    ----------
    interval : float
        A time between two frames that no division can beat.
    units : array of float, shape (processors,)
        Price of one unit of each processor for an interval.
    resources : array of float, shape (resources,)
        Price of each resource for an interval; all units and resources together cost at most 1.
    """

    interval: float
    units: Array
    resources: Array


def relaxed_interval(problem: Problem) -> float:
    """Return a time between two frames that no division can beat; see `relax`."""
    return relax(problem).interval


def relax(problem: Problem) -> Relaxation:
    """Return a time between two frames that no division can beat, with its proof.

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
    interval, prices = _dual(problem, np.where(np.isfinite(per_frame), per_frame, 1e300))
    # The last factor is for rounding: a bound must not lie above the interval that it is compared with.
    interval = max(slowest, interval) * (1 - 1e-9)
    return Relaxation(interval, prices[:processors], prices[len(prices) - resources :])


def _dual(problem: Problem, per_frame: Array) -> tuple[float, Array]:
    """Return the best bound with its prices."""
    # Seconds of each resource that an item takes on each choice, and how many of them an interval has.
    seconds, units = _demands(problem, per_frame)
    prices = np.full(len(units), 1 / units.sum())
    best, best_prices = 0.0, prices
    columns = np.arange(problem.items)
    for step in range(_STEPS):
        costs = np.tensordot(prices, seconds, 1)
        cheapest = costs.argmin(axis=0)
        bound = float(costs[cheapest, columns].sum())
        if bound > best:
            best, best_prices = bound, prices.copy()
        # Dearer where the cheapest choices ask for more than there is, cheaper where they ask for less.
        demand = seconds[:, cheapest, columns].sum(axis=1) / units
        # Multiplicative weights: prices stay above 0, and steps that shrink let them settle.
        prices *= np.exp((demand / max(demand.max(), 1e-300) - 0.5) * 2 / (1 + 0.1 * step))
        # Any prices are a bound once they are scaled so that all units together cost 1.
        prices /= prices @ units
    return best, best_prices


def _demands(problem: Problem, per_frame: Array) -> tuple[Array, Array]:
    """Return the seconds of each resource by choice and item, and how many units there are of each."""
    units = [float(processor.units) for processor in problem.processors]
    use = np.array([choice.use for choice in problem.choices], np.float64)
    if problem.stages:
        # Each stage is busy for at most one interval, so that a fixed number of them is a resource as well.
        units, use = [*units, float(len(problem.stages))], np.hstack([use, np.ones((len(use), 1))])
    seconds = [use[:, [index]] * per_frame for index in range(len(units))]
    for index in range(len(problem.resources)):
        loads = np.array([_item_loads(choice, index) for choice in problem.choices])
        seconds.append(np.where(np.isfinite(loads), loads, 1e300))
    return np.array(seconds), np.array(units + [1.0] * len(problem.resources))


def _item_loads(choice: Choice, resource: int) -> Array:
    """Return how long each item uses a resource at least."""
    load = choice.loads.get(resource)
    # Nothing is known of single items where spans are no sums.
    return np.zeros_like(choice.seconds) if load is None or load.ndim == 2 else load
