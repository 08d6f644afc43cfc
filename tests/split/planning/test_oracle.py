"""The solver against an oracle: every division is tried, and counted by the words of the documentation alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.solver import Solver
from tests.support.shared_problems import shared_problem

CLOSE = 1.01
"""What is found has to be this near to the best."""


class Place(NamedTuple):
    """Where a stage begins: the item, the processor before it, and its own."""

    begin: int
    source: int
    processor: int


class Stage(NamedTuple):
    """A stage with what it takes."""

    choice: Choice
    begin: int
    end: int
    interval: float
    latency: float
    busy: float
    loads: tuple[float, ...]


class Division(NamedTuple):
    """What a whole division takes."""

    interval: float
    latency: float
    joules: float


def divisions(problem: Problem) -> Iterator[Division]:
    """Yield what every division takes that keeps units, memories and the number of stages."""
    for first in range(len(problem.processors)):
        yield from extend(problem, (), Place(0, len(problem.processors), first))


def extend(problem: Problem, stages: tuple[Stage, ...], place: Place) -> Iterator[Division]:
    """Yield every division that goes on from some stages at a place."""
    number, caller = len(stages), len(problem.processors)
    if problem.stages and (number == len(problem.stages) or place.processor not in problem.stages[number]):
        return
    for choice, end in product(problem.choices, range(place.begin + 1, problem.items + 1)):
        if choice.processor != place.processor or not fits(problem, [*(stage.choice for stage in stages), choice]):
            continue
        for target in [caller] if end == problem.items else range(caller):
            stage = measure(problem, choice, place, end, target)
            if stage is not None and end < problem.items:
                yield from extend(problem, (*stages, stage), Place(end, place.processor, target))
            elif stage is not None and number + 1 == (len(problem.stages) or number + 1):
                whole = (*stages, stage)
                yield from [total(problem, whole)] if memory_is_enough(problem, whole) else []


def fits(problem: Problem, choices: list[Choice]) -> bool:
    """Return whether the processors have the units."""
    use = np.sum([choice.use for choice in choices], axis=0)
    return all(taken <= processor.units for taken, processor in zip(use, problem.processors, strict=True))


def measure(problem: Problem, choice: Choice, place: Place, end: int, target: int) -> Stage | None:
    """Return what a stage takes, None if it cannot be."""
    begin, source, processor = place
    compute = span(choice.seconds if choice.spans is None else choice.spans, begin, end)
    transfer = float(problem.enter[source, processor, begin] + problem.leave[processor, target, end])
    if not np.isfinite(compute + transfer):
        return None
    rate = sum(1 / (compute * factor + transfer) for factor in choice.factors or (1.0,) * choice.replicas)
    interval, busy = 1 / rate, choice.replicas / rate
    latency = compute * max(choice.factors, default=1.0) + transfer
    if problem.processors[processor].overlaps:
        # Two frames at a time, of which one is computed.
        interval = max(compute, (compute + transfer) / 2) / choice.replicas
    loads = []
    for index in range(len(problem.resources)):
        load = span(choice.loads[index], begin, end) if index in choice.loads else 0.0
        if index in problem.enter_loads:
            load += float(problem.enter_loads[index][source, processor, begin])
        if index in problem.leave_loads:
            load += float(problem.leave_loads[index][processor, target, end])
        loads.append(load)
    return Stage(choice, begin, end, interval, latency, busy, tuple(loads))


def span(values: np.ndarray, begin: int, end: int) -> float:
    """Return the value of some items: their sum, or as it stands in a table."""
    return float(values[begin:end].sum() if values.ndim == 1 else values[end, begin])


def memory_is_enough(problem: Problem, stages: tuple[Stage, ...]) -> bool:
    """Return whether each memory takes what its stages need."""
    for memory in problem.memories:
        need = 0.0
        for stage in stages:
            if stage.choice.processor in memory.processors:
                assert problem.parameters is not None
                assert problem.workspace is not None
                assert problem.queue_bytes is not None
                items = slice(stage.begin, stage.end)
                footprint = problem.parameters[items].sum() + problem.workspace[items].max()
                need += stage.choice.replicas * footprint + problem.queue_bytes[stage.begin]
        if need > memory.nbytes * (1 + 1e-9):
            return False
    return True


def total(problem: Problem, stages: tuple[Stage, ...]) -> Division:
    """Return what stages take together."""
    loads = np.sum([stage.loads for stage in stages], axis=0) if problem.resources else np.zeros(1)
    return Division(
        max(float(loads.max()), *(stage.interval for stage in stages)),
        sum(stage.latency for stage in stages),
        sum(stage.busy * stage.choice.watts for stage in stages),
    )


def compare(problem: Problem) -> None:
    """Compare the solver's answers with the best of all divisions."""
    everything = list(divisions(problem))
    solver = Solver(problem)
    fastest = solver.fastest()
    assert (fastest is None) == (not everything), "refused, though there is one, or the other way round"
    if fastest is None:
        return
    least = min(division.interval for division in everything)
    assert least * (1 - 1e-9) <= fastest.interval <= least * CLOSE
    assert fastest.bound <= least * (1 + 1e-9), "a false bound"
    for slack in (1.0, 1.2, 2.0, np.inf):
        limit = fastest.interval * slack
        fast = [division for division in everything if division.interval <= limit * (1 + 1e-9)]
        for goal, value in (("latency", "latency"), ("energy", "joules")):
            solution = solver.least(goal, limit)
            assert solution is not None
            assert solution.interval <= limit * (1 + 1e-8)
            best = min(getattr(division, value) for division in fast)
            assert best * (1 - 1e-9) <= getattr(solution, value) <= best * CLOSE, (goal, slack)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.one_in(3)
def test_no_division_is_better(seed: int) -> None:
    compare(shared_problem(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 500))
def test_no_division_of_many_problems_is_better(seed: int) -> None:
    compare(shared_problem(seed))
