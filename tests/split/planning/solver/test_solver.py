"""The solver is exact: exhaustive search over legal legal_plans finds nothing better."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import MemoryLimit, Problem, Processor, Resource
from pipeline.split.planning.solver.bound import relaxed_interval
from pipeline.split.planning.solver.solution import Solution
from pipeline.split.planning.solver.solver import PRECISION, Solver
from tests.support.exhaustive import (
    TOLERANCE,
    LegalPlan,
    borders,
    evaluate,
    legal_plans,
    random_problem,
    span_seconds,
    units_of,
)

KINDS: dict[str, dict[str, Any]] = {
    "cores and accelerators": {},
    "big and little cores": {"big_cores": 1, "little_cores": 2},
    "a shared accelerator": {"turns": True},
    "several runtimes": {"runtimes": True},
    "several runtimes and little memory": {"runtimes": True, "memories": True},
    "little memory": {"memories": True},
    "a shared accelerator and little memory": {"turns": True, "memories": True, "big_cores": 1},
}


def check(problem: Problem, solution: Solution) -> LegalPlan:
    """Return what a solution takes by the words of the documentation, after checking that it is legal."""
    begins = [stage.begin for stage in solution.stages]
    assert begins == [0, *(stage.end for stage in solution.stages[:-1])]
    assert solution.stages[-1].end == problem.items
    assert all(stage.begin < stage.end for stage in solution.stages)
    use = np.sum([stage.choice.use for stage in solution.stages], axis=0)
    assert (use <= [place.units for place in problem.processors]).all()
    caller = len(problem.processors)
    neighbours = [caller, *(stage.choice.processor for stage in solution.stages), caller]
    parts = tuple(
        (
            stage.choice,
            stage.begin,
            stage.end,
            span_seconds(stage.choice, stage.begin, stage.end),
            problem.enter[neighbours[number], stage.choice.processor, stage.begin],
            problem.leave[stage.choice.processor, neighbours[number + 2], stage.end],
        )
        for number, stage in enumerate(solution.stages)
    )
    legal = evaluate(problem, parts)
    assert legal is not None, "a memory is too small"
    assert solution.interval == pytest.approx(legal.interval)
    assert solution.latency == pytest.approx(legal.latency)
    return legal


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.one_in(2)
def test_nothing_is_faster(kind: str, seed: int) -> None:
    problem = random_problem(seed, 5, **KINDS[kind])
    candidates = list(legal_plans(problem))
    solution = Solver(problem).fastest()
    if not candidates:
        assert solution is None
        return
    assert solution is not None
    check(problem, solution)
    best = min(plan.interval for plan in candidates)
    exact = not (problem.memories or problem.resources)
    assert solution.interval <= best * (TOLERANCE if exact else 1 + PRECISION)
    assert relaxed_interval(problem) <= best * TOLERANCE
    assert solution.bound <= best * TOLERANCE, "what is called proved is true"
    if not (problem.memories and problem.resources):
        assert solution.gap <= (1e-9 if exact else 0.03)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["cores and accelerators", "big and little cores", "several runtimes"])
def test_nothing_that_keeps_up_has_less_delay_or_energy(kind: str, seed: int) -> None:
    problem = random_problem(seed, 5, **KINDS[kind])
    candidates, solver = list(legal_plans(problem)), Solver(problem)
    limit = 1.3 * min(plan.interval for plan in candidates)
    fast = [each for each in candidates if each.interval <= limit]
    for goal, value in (("latency", "latency"), ("energy", "joules")):
        solution = solver.least(goal, limit)
        assert solution is not None
        assert check(problem, solution).interval <= limit * TOLERANCE
        # Among equals, energy prefers the shorter; so it is exact up to what a second counts there.
        assert getattr(solution, value) <= min(getattr(each, value) for each in fast) * 1.0001


@pytest.mark.parametrize("seed", range(8))
def test_limits_are_kept_with_every_goal(seed: int) -> None:
    problem = random_problem(seed, 5, memories=True, turns=bool(seed % 2))
    solver = Solver(problem)
    fastest = solver.fastest()
    for goal in ("size", "latency", "energy"):
        solution = solver.least(goal, 1.3 * fastest.interval) if fastest else None
        assert (solution is None) == (fastest is None)
        if solution is not None and fastest is not None:
            assert check(problem, solution).interval <= 1.3 * fastest.interval * TOLERANCE


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
# Where turns and memories limit the same few stages, weighing them against each other need not find the best.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if " and little" not in kind])
def test_nothing_is_faster_with_that_number_of_stages(kind: str, stages: int, seed: int) -> None:
    problem = random_problem(seed, 5, **KINDS[kind])
    check_fastest(replace(problem, stages=(tuple(range(len(problem.processors))),) * stages))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_faster_on_those_processors(kind: str, seed: int) -> None:
    """Stages may run on one or two of them; where a processor has to run several, they may use nothing of it."""
    problem, generator = random_problem(seed, 5, **KINDS[kind]), np.random.default_rng(seed)
    processors = len(problem.processors)
    stages = tuple(
        tuple(sorted(generator.choice(processors, generator.integers(1, 3), replace=False).tolist()))
        for _ in range(generator.integers(1, 5))
    )
    crowded = replace(problem.choices[0], use=(0,) * processors)
    check_fastest(replace(problem, stages=stages, choices=(*problem.choices, *([crowded] if seed % 2 else []))))


def check_fastest(problem: Problem) -> None:
    """Check that exhaustive search finds nothing faster, and that what is called proved is true."""
    candidates = list(legal_plans(problem))
    solution = Solver(problem).fastest()
    assert (solution is None) == (not candidates)
    if solution is not None:
        assert len(solution.stages) == len(problem.stages)
        best = min(plan.interval for plan in candidates)
        exact = not (problem.memories or problem.resources)
        assert check(problem, solution).interval <= best * (TOLERANCE if exact else 1 + PRECISION)
        assert relaxed_interval(problem) <= best * TOLERANCE
        assert solution.bound <= best * TOLERANCE


@pytest.mark.parametrize("seed", range(5))
def test_fixed_cuts_are_as_many_stages_as_items(seed: int) -> None:
    problem = random_problem(seed, 9, big_cores=3).merge_items([0, 2, 5, 9])
    fixed = replace(problem, stages=(tuple(range(len(problem.processors))),) * 3)
    check_fastest(fixed)
    solution = Solver(fixed).fastest()
    assert solution is not None
    assert [stage.end for stage in solution.stages] == [1, 2, 3]


def test_the_smallest_is_chosen_among_those_that_are_fast_enough() -> None:
    problem = random_problem(3, 6, big_cores=3)
    solver = Solver(problem)
    fastest = solver.fastest()
    assert fastest is not None
    solutions = [solver.least("size", fastest.interval * slack) for slack in (1, 1.5, 3, 1e3)]
    sizes = [len(each.stages) for each in solutions if each]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    assert solver.least("size", fastest.interval * 0.9) is None


seconds = st.one_of(st.integers(1, 4).map(float), st.floats(0.01, 10, allow_subnormal=False), st.just(np.inf))


@st.composite
def problems(draw: Any) -> Problem:
    items = draw(st.integers(1, 4))
    processors = [
        Processor(f"processor{index}", draw(st.integers(1, 2)), draw(st.booleans()))
        for index in range(draw(st.integers(1, 3)))
    ]
    turns = draw(st.lists(st.integers(0, len(processors) - 1), unique=True, max_size=2))
    choices = [
        Choice(
            index,
            units_of(processors, index, units),
            np.array(draw(st.lists(seconds, min_size=items, max_size=items))),
            copies,
        )
        for index in range(len(processors))
        for units in range(1, processors[index].units + 1)
        for copies in range(1, units + 1)
    ]
    choices = [
        replace(choice, loads={turns.index(choice.processor): choice.seconds}) if choice.processor in turns else choice
        for choice in choices
    ]
    crossing_s = np.array(draw(st.lists(st.floats(0, 2), min_size=items + 1, max_size=items + 1)))
    enter, leave = borders([draw(st.integers(0, 2)) for _ in processors], crossing_s)
    if draw(st.booleans()):
        enter[draw(st.integers(0, len(processors) - 1)), 0] = np.inf
    memories = (MemoryLimit(draw(st.floats(1, 8)), (0,)),) if draw(st.booleans()) else ()
    nbytes = np.ones(items)
    resources = tuple(Resource(f"turns on {index}") for index in turns)
    parts = (tuple(processors), tuple(choices), enter, leave, memories, nbytes, nbytes, crossing_s)
    return Problem(*parts, resources=resources)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(problems())
def test_whatever_the_problem(problem: Problem) -> None:
    candidates = list(legal_plans(problem))
    found = Solver(problem).fastest()
    assert (found is None) == (not candidates)
    if found is not None:
        best = min(plan.interval for plan in candidates)
        assert check(problem, found).interval <= best * (1 + 2 * PRECISION)
        assert found.bound <= best * TOLERANCE
        assert relaxed_interval(problem) <= best * TOLERANCE


def test_what_stages_share_may_take_longer_than_any_stage() -> None:
    """Also in a chain of which some positions are looked at first."""
    problem = random_problem(2, 90)
    shared = np.full(90, 1.0)
    problem = replace(
        problem,
        choices=tuple(replace(choice, loads={0: shared}) for choice in problem.choices),
        resources=(Resource("memory", "memory"),),
    )
    solution = Solver(problem).fastest()
    assert solution is not None
    assert solution.interval == pytest.approx(90)
    assert solution.gap <= 1e-6


def test_merging_keeps_what_is_left() -> None:
    problem = random_problem(5, 8)
    coarse = problem.merge_items([0, 2, 3, 8])
    assert coarse.items == 3
    for one, other in zip(coarse.choices, problem.choices, strict=True):
        np.testing.assert_allclose(one.seconds, [sum(other.seconds[:2]), other.seconds[2], sum(other.seconds[3:])])
    assert problem.spread_positions(8) == list(range(9))
    assert problem.spread_positions(3)[0] == 0
    assert problem.spread_positions(3)[-1] == 8
    assert len(problem.spread_positions(3)) <= 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"enter": np.zeros((1, 1, 1))}, "enter has the shape"),
        ({"choices": (Choice(0, (0, 0), np.ones(3)),)}, "does not fit"),
        ({"choices": (Choice(0, (1,), np.ones(3)),)}, "does not fit"),
        ({"choices": (Choice(0, (1, 0), np.array([1, -1, 1.0])),)}, "at least 0"),
        ({"choices": (Choice(0, (1, 0), np.array([1, np.nan, 1.0])),)}, "at least 0"),
    ],
)
def test_wrong_problems_are_refused(change: dict[str, Any], message: str) -> None:
    enter, leave = borders([0, 0], np.zeros(4))
    parts: dict[str, Any] = {
        "processors": (Processor("a"), Processor("b")),
        "choices": (Choice(0, (1, 0), np.ones(3)),),
        "enter": enter,
        "leave": leave,
    }
    with pytest.raises(ValueError, match=message):
        Problem(**{**parts, **change})


def test_a_long_chain_that_what_is_shared_bounds_has_a_division() -> None:
    """What the coarse search reached without limits was below the bound by limits, so that nothing was left."""
    items = 60
    borders = np.zeros((2, 1, items + 1)), np.zeros((1, 2, items + 1))
    loads = {0: np.ones(items)}
    choices = tuple(Choice(0, (units,), np.full(items, 0.1), threads=units, loads=loads) for units in (1, 2))
    problem = Problem((Processor("cpu", 2),), choices, *borders, resources=(Resource("memory", "memory"),))
    solution = Solver(problem).fastest()
    assert solution is not None
    assert solution.interval == pytest.approx(items)
