"""Heterogeneous choices: stages whose workers borrow devices, for the solver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pipeline.split.planning.borrowing.borrowing_gain import is_useful
from pipeline.split.planning.borrowing.heterogeneous import (
    SpanPaths,
    StepCosts,
    chain_totals,
    span_paths,
    waiting_seconds,
)
from pipeline.split.planning.borrowing.step_paths import StepPaths
from pipeline.split.planning.borrowing.worker_costs import step_costs
from pipeline.split.planning.borrowing.worker_mixes import WorkerMix, worker_mixes
from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import Problem, Resource

MOST_ITEMS = 500
"""In longer chains no stage is heterogeneous; the time to look for paths grows with their square."""

# From nothing to where borrowing is out of the question, in seconds of the worker for one of what is scarce.
_DEVICE_PRICES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 12.0, 20.0, 40.0)
_LINK_PRICES = (0.0, 1.0, 4.0)
# By which share the prices of items differ; wider than the steps between the prices above.
_SPREADS = (0.0, 0.25)

_FEW_ITEMS, _FEW_CHOICES = 30, 32
"""Bounds on items and on choices of stages that may borrow for any gain: to look for it takes a moment."""

_FRUGAL = 1.25
"""Bound on the slowdown of a stage that spares shared resources."""


@dataclass(frozen=True)
class Borrowing:
    """Workers of one kind, and their loans."""

    own: int
    """Index of the processor whose units are the workers' own."""
    devices: tuple[int, ...]
    """Indices of the processors that they borrow."""
    name: str
    """Name in requests, such as ``"cpu+vta"``."""
    most_units: int
    """Units of their own that the workers of a stage may have."""
    others: tuple[int, ...] = ()
    """Indices of processors whose units may be those of slower workers of the same stage."""
    replicas: bool = True
    """True if a stage may have several workers."""
    exclusive: bool = True
    """True if what a stage borrows is that stage's alone, all its workers together: then nobody else makes them wait,
    and what is predicted of the stage holds. Otherwise other stages may use it, too."""
    on_request: bool = False
    """True if they may also borrow things once for a frame only, as a stage of a chain has them."""


def add_heterogeneous(problem: Problem, borrowings: Sequence[Borrowing]) -> Problem:
    """Return the problem with heterogeneous choices and shared devices' resources.

    The result is the same problem if nothing is worth borrowing.
    """
    if problem.items > MOST_ITEMS:
        return problem
    result = problem
    for borrowing in borrowings:
        sharing = result
        for device in () if borrowing.exclusive else borrowing.devices:
            sharing = _share_device(sharing, device)
        choices = tuple(_choices(sharing, borrowing))
        if choices:
            result = replace(sharing, choices=(*sharing.choices, *choices))
    return result


def _share_device(problem: Problem, device: int) -> Problem:
    """Return the problem with a device as its stages' resource."""
    name = problem.processors[device].name
    if any(resource.name == name for resource in problem.resources):
        return problem
    index = len(problem.resources)
    choices = tuple(
        replace(choice, loads={**choice.loads, index: choice.seconds if choice.spans is None else choice.spans})
        if choice.processor == device
        else choice
        for choice in problem.choices
    )
    return replace(problem, choices=choices, resources=(*problem.resources, Resource(name)))


def _choices(problem: Problem, borrowing: Borrowing) -> Iterator[Choice]:
    for worker in _workers(problem, borrowing):
        costs, resources = step_costs(problem, worker, borrowing.devices)
        is_quick = (
            problem.items <= _FEW_ITEMS and sum(choice.paths is None for choice in problem.choices) <= _FEW_CHOICES
        )
        if not (borrowing.on_request or is_quick or is_useful(costs)):
            continue
        mixes = list(worker_mixes(problem, worker, borrowing.others, borrowing.most_units))
        mixes = [mix for mix in mixes if borrowing.replicas or mix.count == 1]
        paths = span_paths(costs, _choose_prices(costs, mixes))
        for mix in mixes:
            for choice in _variants(worker, mix, paths, borrowing, resources):
                yield _take_devices(problem, choice, borrowing.devices) if borrowing.exclusive else choice


def _take_devices(problem: Problem, choice: Choice, devices: Sequence[int]) -> Choice:
    """Return the choice with all units of its borrowed devices."""
    units = (
        processor.units if index in devices else used
        for index, (processor, used) in enumerate(zip(problem.processors, choice.use, strict=True))
    )
    return replace(choice, use=tuple(units))


def _workers(problem: Problem, borrowing: Borrowing) -> Iterator[Choice]:
    """Yield each additive way for one worker to compute itself."""
    for choice in problem.choices:
        is_plain = choice.spans is None and choice.replicas == 1 and not choice.factors
        if is_plain and choice.processor == borrowing.own and sum(choice.use) <= borrowing.most_units:
            yield choice


def _choose_prices(costs: StepCosts, mixes: Sequence[WorkerMix]) -> Array:
    """Return few prices, some the best of workers over the chain."""
    devices = int((costs.uses[:-1] > 0).any(axis=1).sum())
    links = costs.resources - 1 - devices
    # A worker that is slower on its own cores borrows more.
    slowness = {0.0, *(slowdown - 1 for mix in mixes for slowdown in (sum(mix.factors) / mix.count, max(mix.factors)))}
    combinations = product(sorted(slowness), _DEVICE_PRICES, _LINK_PRICES, _SPREADS)
    grid = np.array(
        [[*[price] * devices, *[link] * links, home_price, spread] for home_price, price, link, spread in combinations]
    )
    totals = chain_totals(costs, grid)
    rows = [0] if costs.items > _FEW_ITEMS else list(range(len(grid)))
    for mix in mixes if np.isfinite(totals[:, 0]).all() and len(rows) == 1 else ():
        intervals = _intervals(totals[:, 0], totals[:, 1:].T, mix)
        rows.append(int(intervals.argmin()))
        rows.append(_frugal(intervals, totals[:, 1:-1].sum(axis=1)))
    if len(rows) == 1:
        rows = list(range(0, len(grid), len(_LINK_PRICES) * len(_SPREADS) * 3))
    # Different prices often have the same paths.
    _, distinct = np.unique(totals[rows].round(12), axis=0, return_index=True)
    prices: Array = grid[np.array(rows)[np.sort(distinct)]]
    return prices


def _intervals(seconds: Array, uses: Array, mix: WorkerMix) -> Array:
    """Return workers' frame intervals; `uses` has a row per resource. The workers' own cores are the last row."""
    *shared, home_uses = uses
    means = mix.mean_seconds(seconds, home_uses)
    waits = waiting_seconds(means, shared, mix.count)
    intervals: Array = np.maximum((means + waits) / mix.count, np.maximum.reduce(shared))
    return intervals


def _frugal(intervals: Array, uses: Array) -> int:
    return int(np.where(intervals <= _FRUGAL * intervals.min(), uses, np.inf).argmin())


def _variants(
    worker: Choice, mix: WorkerMix, paths: SpanPaths, borrowing: Borrowing, resources: Sequence[int]
) -> Iterator[Choice]:
    """Yield workers' fastest, most prompt, and most frugal stages."""
    intervals = np.stack(
        [_intervals(seconds, uses, mix) for seconds, uses in zip(paths.seconds, paths.uses, strict=True)]
    )
    fast_enough = intervals <= _FRUGAL * intervals.min(axis=0)
    candidates = [
        intervals.argmin(axis=0),
        paths.seconds.argmin(axis=0),
        np.where(fast_enough, paths.uses[:, :-1].sum(axis=1), np.inf).argmin(axis=0),
    ]
    distinct: list[NDArray[np.intp]] = []
    for rows in candidates:
        if not any(np.array_equal(_pick(paths.seconds, rows), _pick(paths.seconds, earlier)) for earlier in distinct):
            distinct.append(rows)
            yield _choice(worker, mix, paths, rows, borrowing, resources)


def _choice(  # noqa: PLR0913, PLR0917 - what a choice is about
    worker: Choice,
    mix: WorkerMix,
    paths: SpanPaths,
    rows: NDArray[np.intp],
    borrowing: Borrowing,
    resources: Sequence[int],
) -> Choice:
    seconds = _pick(paths.seconds, rows)
    *uses, home_uses = [_pick(paths.uses[:, index], rows) for index in range(len(resources))]
    # What borrows nothing is a stage like others.
    seconds = np.where(sum(uses[: len(borrowing.devices)]) > 0, seconds, np.inf)
    shared = [(resource, use) for resource, use in zip(resources[:-1], uses, strict=True) if resource >= 0]
    loads = {resource: np.where(np.isfinite(seconds), use, 0.0) for resource, use in shared}
    means = mix.mean_seconds(seconds, home_uses)
    # At least what is used needs for the frames of all workers.
    least_waits = np.maximum(mix.count * np.maximum.reduce(uses) - np.where(np.isfinite(means), means, np.inf), 0.0)
    return replace(
        worker,
        use=mix.use,
        # No span takes less than each item where it is the fastest.
        seconds=paths.costs.seconds.min(axis=0),
        replicas=mix.count,
        watts=mix.watts,
        factors=() if mix.is_alike else mix.factors,
        common=None if mix.is_alike else np.where(np.isfinite(seconds), seconds - home_uses, 0.0),
        spans=seconds,
        waits=np.maximum(waiting_seconds(means, uses, mix.count), least_waits),
        least_waits=least_waits,
        device=borrowing.name,
        loads={**worker.loads, **loads},
        paths=StepPaths(paths.costs, (borrowing.own, *borrowing.devices), paths.prices, rows),
    )


def _pick(values: Array, rows: NDArray[np.intp]) -> Array:
    picked: Array = np.take_along_axis(values, rows[None], 0)[0]
    return picked
