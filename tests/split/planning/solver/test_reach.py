"""The search in linear time finds what keeps up with an interval, and nothing where nothing does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.solver.reach import ReachSearch
from pipeline.split.planning.solver.solution import solution
from pipeline.split.planning.solver.solver import Solver
from tests.support.exhaustive import random_problem

TOLERANCE = 1e-9


@pytest.mark.parametrize("stages", [0, 2, 3])
@pytest.mark.parametrize("seed", range(15))
def test_it_tells_what_is_possible_from_what_is_not(seed: int, stages: int) -> None:
    problem = random_problem(seed, 7, little_cores=seed % 3)
    # The form of a device that overlaps is two conditions, of which it counts each alone.
    processors = tuple(replace(processor, overlaps=False) for processor in problem.processors)
    problem = replace(problem, processors=processors, stages=(tuple(range(len(processors))),) * stages)
    fastest, search = Solver(problem).fastest(), ReachSearch(problem)
    assert fastest is not None
    segments = search.division(fastest.interval * (1 + TOLERANCE))
    assert segments is not None
    assert solution(problem, search.borders, segments).interval == pytest.approx(fastest.interval)
    assert search.division(fastest.interval * (1 - TOLERANCE)) is None


def test_devices_that_are_alike_are_used_in_order() -> None:
    problem = with_twins(random_problem(4, 8))
    assert problem.twins == [(1, 2)]
    fastest = Solver(problem).fastest()
    assert fastest is not None
    search = ReachSearch(problem)
    assert search.division(fastest.interval * (1 + TOLERANCE)) is not None
    assert search.division(fastest.interval * (1 - TOLERANCE)) is None
    # With another name for one of them nothing changes, but that they are no twins.
    slower = [
        replace(choice, watts=choice.watts + 1) if choice.processor == 2 else choice for choice in problem.choices
    ]
    unlike = replace(problem, choices=tuple(slower))
    assert unlike.twins == []
    other = Solver(unlike).fastest()
    assert other is not None
    assert other.interval == pytest.approx(fastest.interval)


def with_twins(problem: Problem) -> Problem:
    """Return a problem whose third processor is as the second one."""
    order = [0, 1, 1]
    ends = [*order, 3]
    (gpu,) = (choice for choice in problem.choices if choice.processor == 1)
    others = [choice for choice in problem.choices if choice.processor == 0]
    return replace(
        problem,
        processors=tuple(problem.processors[index] for index in order),
        enter=problem.enter[np.ix_(ends, order)],
        leave=problem.leave[np.ix_(order, ends)],
        choices=(*others, gpu, replace(gpu, processor=2, use=(0, 0, 1))),
    )
