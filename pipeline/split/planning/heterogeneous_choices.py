"""Heterogeneous choices: ways to run a stage by workers with cores that borrow other devices, for the solver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from pipeline.split.planning.heterogeneous import (
    OWN,
    SpanPaths,
    StepCosts,
    chain_totals,
    path_totals,
    shortest_path,
    span_paths,
    waiting_seconds,
)
from pipeline.split.planning.problem import Array, Choice, PathStep, Problem, Resource, span_sums

STEP_S = 30e-6
"""Seconds that a step on a borrowed device takes before it computes: a lock that changes hands, and a call."""

MOST_ITEMS = 500
"""In longer chains no stage is heterogeneous; the time to look for paths grows with their square."""

# From nothing to where borrowing is out of the question, in seconds of the worker for one of what is scarce.
_DEVICE_PRICES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 12.0, 20.0, 40.0)
_LINK_PRICES = (0.0, 1.0, 4.0)
# By which share the prices of items differ; wider than the steps between the prices above.
_SPREADS = (0.0, 0.25)

_FEW_ITEMS = 30
"""Items of chains in which stages may borrow whatever that gains: to look for it takes a moment."""

_WORTH_IT = 1.1
"""By how much faster one frame has to be for stages to borrow unasked: each number of workers is one more choice."""

_FRUGAL = 1.25
"""By how much longer a stage may take that uses as little as it can of what others use as well."""


@dataclass(frozen=True)
class Borrowing:
    """Workers of one kind, and what they borrow.

    Attributes
    ----------
    own : int
        Index of the processor whose units are the workers' own.
    devices : tuple of int
        Indices of the processors that they borrow.
    name : str
        How requests call it, such as ``"cpu+vta"``.
    most_units : int
        Units of its own that a stage may have.
    replicas : bool
        Whether a stage may have several workers.
    exclusive : bool
        Whether what a stage borrows is that stage's alone, all its workers together: then nobody else makes them
        wait, and what is predicted of the stage holds.  Otherwise other stages may use it, too.
    on_request : bool
        Whether they may also borrow things once for a frame only, as a stage of a chain has them.
    """

    own: int
    devices: tuple[int, ...]
    name: str
    most_units: int
    replicas: bool = True
    exclusive: bool = True
    on_request: bool = False


@dataclass(frozen=True, eq=False)
class StepPaths:
    """Which path a stage of each span takes.

    Attributes
    ----------
    costs : StepCosts
    prices : array of float, shape (prices, resources)
    rows : array of int, shape (items + 1, items + 1)
        Which of the prices the path of the items ``[i, j)`` is the shortest for, as entry ``[j, i]``.
    devices : tuple of int
        Processor of each device of the costs.
    """

    costs: StepCosts
    prices: Array
    rows: NDArray[np.intp]
    devices: tuple[int, ...]

    def steps(self, begin: int, end: int) -> tuple[PathStep, ...]:
        """Return the steps of the stage on the items ``[begin, end)``."""
        path = shortest_path(self.costs, self.prices[self.rows[end, begin]], begin, end)
        return tuple(PathStep(self.devices[step.device], step.begin, step.end) for step in path)

    def step_seconds(self, step: PathStep) -> float:
        """Return what a step computes, and what it takes to begin."""
        device = self.devices.index(step.processor)
        return float(self.costs.start_s[device] + self.costs.seconds[device, step.begin : step.end].sum())


def add_heterogeneous(problem: Problem, borrowings: Sequence[Borrowing]) -> Problem:
    """Return the problem with choices of heterogeneous stages, and with a resource for each device that others share.

    It is the same problem if nothing is worth borrowing.
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
    """Return the problem in which stages on a device use it as a resource."""
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
        if not borrowing.on_request and problem.items > _FEW_ITEMS and not _is_useful(costs):
            continue
        most = borrowing.most_units // max(1, sum(worker.use)) if borrowing.replicas else 1
        counts = range(1, max(1, most) + 1)
        paths = span_paths(costs, _choose_prices(costs, counts))
        for count in counts:
            for choice in _variants(worker, count, paths, borrowing, resources):
                yield _take_devices(problem, choice, borrowing.devices) if borrowing.exclusive else choice


def _take_devices(problem: Problem, choice: Choice, devices: Sequence[int]) -> Choice:
    """Return the choice with all units of what it borrows."""
    units = (
        processor.units if index in devices else used
        for index, (processor, used) in enumerate(zip(problem.processors, choice.use, strict=True))
    )
    return replace(choice, use=tuple(units))


def _workers(problem: Problem, borrowing: Borrowing) -> Iterator[Choice]:
    """Yield each way for one worker to compute on its own units: items whose times add up, by some threads."""
    for choice in problem.choices:
        is_plain = choice.spans is None and choice.replicas == 1 and not choice.factors
        if is_plain and choice.processor == borrowing.own and sum(choice.use) <= borrowing.most_units:
            yield choice


def step_costs(problem: Problem, worker: Choice, devices: Sequence[int]) -> tuple[StepCosts, list[int]]:
    """Return the costs of a worker's steps, and the problem's resource that each of the costs' resources is, or -1."""
    processors = (worker.processor, *devices)
    seconds = np.vstack([worker.seconds, *(_device_seconds(problem, device) for device in devices)])
    start_s = np.array([0.0, *(STEP_S for _ in devices)])
    ends = np.ix_(processors, processors)
    moves = _changes(problem.leave[ends] + problem.enter[ends])
    # A memory's bytes are shared, too, but nobody stands in line for them.
    links = [index for index, resource in enumerate(problem.resources) if resource.kind == "link"]
    nothing = np.zeros_like(moves)
    link_uses = [
        _changes(
            sum((load[index][ends] for load in (problem.enter_loads, problem.leave_loads) if index in load), nothing)
        )
        for index in links
    ]
    names = [resource.name for resource in problem.resources]
    indices = [_index(names, problem.processors[device].name) for device in devices]
    device_uses = np.hstack([np.zeros((len(devices), 1)), np.eye(len(devices))])
    uses = np.vstack([device_uses, np.zeros((len(links), len(processors)))])
    move_uses = np.stack([*(np.zeros_like(moves) for _ in devices), *link_uses])
    return StepCosts(seconds, start_s, moves, uses, move_uses), [*indices, *links]


def _index(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else -1


def _device_seconds(problem: Problem, device: int) -> Array:
    """Return the times of items on a device; infinite where they do not add up."""
    candidates = [choice for choice in problem.choices if choice.processor == device and choice.spans is None]
    return candidates[0].seconds if candidates else np.full(problem.items, np.inf)


def _changes(values: Array) -> Array:
    """Return what changes of device take; to stay takes nothing."""
    result: Array = np.array(values, np.float64)
    result[np.arange(len(result)), np.arange(len(result))] = 0.0
    return result


def _is_useful(costs: StepCosts) -> bool:
    """Check that to borrow several times is faster than to have each device once, as a chain of stages does."""
    # The whole chain may hold items that none of these devices runs.
    edges = [0, *(np.flatnonzero(np.isinf(costs.seconds.min(axis=0))) + 1), costs.items + 1]
    begin, end = max(((begin, end - 1) for begin, end in pairwise(edges)), key=lambda span: span[1] - span[0])
    try:
        steps = shortest_path(costs, np.zeros(costs.resources), begin, end)
    except ValueError:
        return False
    if sum(step.device != OWN for step in steps) < 2:
        return False
    return float(path_totals(costs, steps)[0]) * _WORTH_IT < _once_borrowed(costs, begin, end)


def _once_borrowed(costs: StepCosts, begin: int, end: int) -> float:
    """Return the least time of a path with one step on a borrowed device, or with none."""
    own = np.concatenate([[0.0], np.cumsum(costs.seconds[OWN, begin:end])])
    least = float(own[-1])
    for device in range(1, len(costs.start_s)):
        inside = span_sums(costs.seconds[device, begin:end])
        enter, leave = (
            costs.change_costs[0, pair[0], pair[1], begin : end + 1] for pair in ((OWN, device), (device, OWN))
        )
        # Before the step, in it, and behind it; entry ``[j, i]`` as elsewhere.
        # Where the own cores cannot run everything, what is behind is infinity less infinity: no number.
        with np.errstate(invalid="ignore"):
            before, behind = own + enter[begin : end + 1], own[-1] - own + leave[begin : end + 1]
            totals = before[None, :] + inside + behind[:, None]
        least = min(least, float(np.where(np.isnan(totals), np.inf, totals).min()))
    return least


def _choose_prices(costs: StepCosts, counts: Sequence[int]) -> Array:
    """Return few prices, among them those that are the best for so many workers over the whole chain."""
    devices = int((costs.uses > 0).any(axis=1).sum())
    links = costs.resources - devices
    combinations = product(_DEVICE_PRICES, _LINK_PRICES, _SPREADS)
    grid = np.array([[*[price] * devices, *[link] * links, spread] for price, link, spread in combinations])
    totals = chain_totals(costs, grid)
    rows = [0]
    for count in counts if np.isfinite(totals[:, 0]).all() else ():
        intervals = _intervals(totals[:, 0], totals[:, 1:].T, count)
        rows.append(int(intervals.argmin()))
        rows.append(_frugal(intervals, totals[:, 1:].sum(axis=1)))
    if len(rows) == 1:
        rows = list(range(0, len(grid), len(_LINK_PRICES) * len(_SPREADS) * 3))
    # Different prices often have the same paths.
    _, distinct = np.unique(totals[rows].round(12), axis=0, return_index=True)
    prices: Array = grid[np.array(rows)[np.sort(distinct)]]
    return prices


def _intervals(seconds: Array, uses: Array, count: int) -> Array:
    """Return the time between two frames of so many workers; `uses` has a row for each resource."""
    waits = waiting_seconds(seconds, list(uses), count)
    intervals: Array = np.maximum((seconds + waits) / count, uses.max(axis=0))
    return intervals


def _frugal(intervals: Array, uses: Array) -> int:
    return int(np.where(intervals <= _FRUGAL * intervals.min(), uses, np.inf).argmin())


def _variants(
    worker: Choice, count: int, paths: SpanPaths, borrowing: Borrowing, resources: Sequence[int]
) -> Iterator[Choice]:
    """Yield the fastest stages of so many workers, those with the least delay, and those that use little of others."""
    intervals = np.stack(
        [_intervals(seconds, uses, count) for seconds, uses in zip(paths.seconds, paths.uses, strict=True)]
    )
    fast_enough = intervals <= _FRUGAL * intervals.min(axis=0)
    candidates = [
        intervals.argmin(axis=0),
        paths.seconds.argmin(axis=0),
        np.where(fast_enough, paths.uses.sum(axis=1), np.inf).argmin(axis=0),
    ]
    distinct: list[NDArray[np.intp]] = []
    for rows in candidates:
        if not any(_is_same(paths, rows, other) for other in distinct):
            distinct.append(rows)
            yield _choice(worker, count, paths, rows, borrowing, resources)


def _is_same(paths: SpanPaths, rows: NDArray[np.intp], other: NDArray[np.intp]) -> bool:
    return np.array_equal(_pick(paths.seconds, rows), _pick(paths.seconds, other))


def _choice(  # noqa: PLR0913, PLR0917 - what a choice is about
    worker: Choice,
    count: int,
    paths: SpanPaths,
    rows: NDArray[np.intp],
    borrowing: Borrowing,
    resources: Sequence[int],
) -> Choice:
    seconds = _pick(paths.seconds, rows)
    uses = [_pick(paths.uses[:, index], rows) for index in range(len(resources))]
    # What borrows nothing is a stage like others.
    seconds = np.where(sum(uses[: len(borrowing.devices)]) > 0, seconds, np.inf)
    shared = [(resource, use) for resource, use in zip(resources, uses, strict=True) if resource >= 0]
    loads = {resource: np.where(np.isfinite(seconds), use, 0.0) for resource, use in shared}
    # At least what is used needs for the frames of all workers.
    waits = np.maximum(
        waiting_seconds(seconds, uses, count),
        count * np.maximum.reduce(uses) - np.where(np.isfinite(seconds), seconds, np.inf),
    )
    return replace(
        worker,
        use=tuple(units * count for units in worker.use),
        # No span takes less than each item where it is the fastest.
        seconds=paths.costs.seconds.min(axis=0),
        replicas=count,
        spans=seconds,
        waits=waits,
        device=borrowing.name,
        loads={**worker.loads, **loads},
        paths=StepPaths(paths.costs, paths.prices, rows, (borrowing.own, *borrowing.devices)),
    )


def _pick(values: Array, rows: NDArray[np.intp]) -> Array:
    picked: Array = np.take_along_axis(values, rows[None], 0)[0]
    return picked
