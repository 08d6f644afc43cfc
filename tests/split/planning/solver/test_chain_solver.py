"""A long chain is divided as well as if all of its positions were looked at."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from pipeline.split.planning.solver.chain_solver import MOST_POSITIONS, ChainSolver
from pipeline.split.planning.solver.solver import Solver
from tests.support.exhaustive import fastest_interval, random_problem, uniform_chain


@pytest.mark.parametrize("stages", [1, 2, 5, 16])
@pytest.mark.parametrize("crossing_s", [0.0, 1.0, 30.0], ids="crossing {:g}".format)
@pytest.mark.parametrize("items", [40, 3_000, 10_000])
@pytest.mark.one_in(3)
def test_no_cuts_of_a_long_chain_are_faster(items: int, crossing_s: float, stages: int) -> None:
    generator = np.random.default_rng(items + stages)
    costs = generator.exponential(1, items), crossing_s * generator.exponential(1, items - 1)
    solution = ChainSolver(uniform_chain(*costs, stages)).fastest()
    assert solution is not None
    best = fastest_interval(*costs, stages)
    # Exact as far as all positions are looked at, and in longer chains to a thousandth.
    assert best * (1 - 1e-9) <= solution.interval <= best * (1 + (1e-9 if items <= MOST_POSITIONS else 1e-3))
    assert solution.bound <= best * (1 + 1e-9)
    edges = [0, *(stage.end for stage in solution.stages)]
    assert len(edges) == stages + 1
    assert all(begin < end for begin, end in pairwise(edges))
    assert edges[-1] == items


def test_a_long_chain_of_equal_items_is_divided_evenly() -> None:
    solution = ChainSolver(uniform_chain(np.ones(10_000), np.zeros(9_999), 16)).fastest()
    assert solution is not None
    assert solution.interval == 625


def test_one_heavy_item_leaves_positions_for_the_light_ones() -> None:
    compute = np.ones(2_000)
    compute[700] = 1e6
    solution = ChainSolver(uniform_chain(compute, np.zeros(1_999), 100)).fastest()
    assert solution is not None
    assert len(solution.stages) == 100
    assert solution.interval == pytest.approx(1e6, rel=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_a_free_number_of_stages_is_refined_as_well(seed: int) -> None:
    problem = random_problem(seed, 1_500)
    solution = ChainSolver(problem).fastest()
    coarse = Solver(problem.merge_items(problem.spread_positions(MOST_POSITIONS))).fastest()
    assert solution is not None
    assert coarse is not None
    assert solution.bound <= solution.interval <= coarse.interval


def test_the_least_is_looked_for_where_the_fastest_was_found() -> None:
    problem = replace(random_problem(1, 900), stages=())
    solver = ChainSolver(problem)
    fastest = solver.fastest()
    assert fastest is not None
    solution = solver.least("latency", fastest.interval)
    assert solution is not None
    assert solution.interval <= fastest.interval * (1 + 1e-9)
    assert solution.latency <= fastest.latency * (1 + 1e-9)
    assert solution.stages[-1].end == 900
