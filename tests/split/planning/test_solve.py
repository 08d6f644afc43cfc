"""The solver is exact: exhaustive search over legal plans finds nothing better."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.split.planning.bound import relaxed
from pipeline.split.planning.problem import Choice, Memory, Place, Problem
from pipeline.split.planning.solution import Solution
from pipeline.split.planning.solve import PRECISION, Solver
from tests.split.planning.exhaustive import TOLERANCE, Found, borders, drawn, measured, plans, use

KINDS: dict[str, dict[str, Any]] = {
    "cores and accelerators": {},
    "big and little cores": {"big": 1, "little": 2},
    "a shared accelerator": {"shares": True},
    "little memory": {"memories": True},
    "a shared accelerator and little memory": {"shares": True, "memories": True, "big": 1},
}


def check(problem: Problem, found: Solution) -> Found:
    """Return what a solution takes by the words of the documentation, after checking that it is legal."""
    begins = [stage.begin for stage in found.stages]
    assert begins == [0, *(stage.end for stage in found.stages[:-1])]
    assert found.stages[-1].end == problem.items
    assert all(stage.begin < stage.end for stage in found.stages)
    used = np.sum([stage.choice.use for stage in found.stages], axis=0)
    assert (used <= [place.units for place in problem.places]).all()
    around = [len(problem.places), *(stage.choice.place for stage in found.stages), len(problem.places)]
    parts = tuple(
        (
            stage.choice,
            stage.begin,
            stage.end,
            float(stage.choice.seconds[stage.begin : stage.end].sum()),
            problem.enter[around[number], stage.choice.place, stage.begin],
            problem.leave[stage.choice.place, around[number + 2], stage.end],
        )
        for number, stage in enumerate(found.stages)
    )
    legal = measured(problem, parts)
    assert legal is not None, "a memory is too small"
    assert found.interval == pytest.approx(legal.interval)
    assert found.latency == pytest.approx(legal.latency)
    return legal


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_faster(kind: str, seed: int) -> None:
    problem = drawn(seed, 5, **KINDS[kind])
    every = list(plans(problem))
    found = Solver(problem).fastest()
    if not every:
        assert found is None
        return
    assert found is not None
    check(problem, found)
    best = min(each.interval for each in every)
    exact = not (problem.memories or any(place.shares for place in problem.places))
    assert found.interval <= best * (TOLERANCE if exact else 1 + PRECISION)
    assert relaxed(problem) <= best * TOLERANCE
    assert found.bound <= best * TOLERANCE, "what is called proved is true"
    assert found.gap <= (1e-9 if exact else 0.03)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["cores and accelerators", "big and little cores"])
def test_nothing_that_keeps_up_has_less_delay_or_energy(kind: str, seed: int) -> None:
    problem = drawn(seed, 5, **KINDS[kind])
    every, solver = list(plans(problem)), Solver(problem)
    limit = 1.3 * min(each.interval for each in every)
    fast = [each for each in every if each.interval <= limit]
    for goal, value in (("latency", "latency"), ("energy", "joules")):
        found = solver.least(goal, limit)
        assert found is not None
        assert check(problem, found).interval <= limit * TOLERANCE
        # Among equals, energy prefers the shorter; so it is exact up to what a second counts there.
        assert getattr(found, value) <= min(getattr(each, value) for each in fast) * 1.0001


@pytest.mark.parametrize("seed", range(8))
def test_limits_are_kept_with_every_goal(seed: int) -> None:
    problem = drawn(seed, 5, memories=True, shares=bool(seed % 2))
    solver = Solver(problem)
    fastest = solver.fastest()
    for goal in ("size", "latency", "energy"):
        found = solver.least(goal, 1.3 * fastest.interval) if fastest else None
        assert (found is None) == (fastest is None)
        if found is not None and fastest is not None:
            assert check(problem, found).interval <= 1.3 * fastest.interval * TOLERANCE


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_a_number_of_stages(stages: int) -> None:
    problem = drawn(stages, 5, big=3)
    found = Solver(problem, stages).fastest()
    assert found is not None
    assert len(found.stages) == stages
    assert check(problem, found).interval <= min(each.interval for each in plans(problem, stages)) * TOLERANCE


def test_the_smallest_is_chosen_among_those_that_are_fast_enough() -> None:
    problem = drawn(3, 6, big=3)
    solver = Solver(problem)
    fastest = solver.fastest()
    assert fastest is not None
    found = [solver.least("size", fastest.interval * slack) for slack in (1, 1.5, 3, 1e3)]
    sizes = [len(each.stages) for each in found if each]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 1
    assert solver.least("size", fastest.interval * 0.9) is None


seconds = st.one_of(st.integers(1, 4).map(float), st.floats(0.01, 10, allow_subnormal=False), st.just(np.inf))


@st.composite
def problems(draw: Any) -> Problem:
    items = draw(st.integers(1, 4))
    places = [
        Place(f"place{number}", draw(st.integers(1, 2)), draw(st.booleans()), draw(st.booleans()))
        for number in range(draw(st.integers(1, 3)))
    ]
    choices = [
        Choice(
            place, use(places, place, units), np.array(draw(st.lists(seconds, min_size=items, max_size=items))), copies
        )
        for place in range(len(places))
        for units in range(1, places[place].units + 1)
        for copies in range(1, units + 1)
    ]
    crossing = np.array(draw(st.lists(st.floats(0, 2), min_size=items + 1, max_size=items + 1)))
    enter, leave = borders([draw(st.integers(0, 2)) for _ in places], crossing)
    if draw(st.booleans()):
        enter[draw(st.integers(0, len(places) - 1)), 0] = np.inf
    memories = (Memory(draw(st.floats(1, 8)), (0,)),) if draw(st.booleans()) else ()
    return Problem(tuple(places), tuple(choices), enter, leave, memories, np.ones(items), np.ones(items), crossing)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(problems())
def test_whatever_the_problem(problem: Problem) -> None:
    every = list(plans(problem))
    found = Solver(problem).fastest()
    assert (found is None) == (not every)
    if found is not None:
        best = min(each.interval for each in every)
        assert check(problem, found).interval <= best * (1 + 2 * PRECISION)
        assert found.bound <= best * TOLERANCE
        assert relaxed(problem) <= best * TOLERANCE


def test_merging_keeps_what_is_left() -> None:
    problem = drawn(5, 8)
    coarse = problem.merged([0, 2, 3, 8])
    assert coarse.items == 3
    for one, other in zip(coarse.choices, problem.choices, strict=True):
        np.testing.assert_allclose(one.seconds, [sum(other.seconds[:2]), other.seconds[2], sum(other.seconds[3:])])
    assert problem.spread(8) == list(range(9))
    assert problem.spread(3)[0] == 0
    assert problem.spread(3)[-1] == 8
    assert len(problem.spread(3)) <= 4


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
        "places": (Place("a"), Place("b")),
        "choices": (Choice(0, (1, 0), np.ones(3)),),
        "enter": enter,
        "leave": leave,
    }
    with pytest.raises(ValueError, match=message):
        Problem(**{**parts, **change})
