"""Latency is not forgotten: what is faster by little and later by much is not chosen, and both ends are told."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import boards
import pipeline
from pipeline.split.planning.advice.explanation import explain
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import Problem, Processor
from pipeline.split.planning.solver.solver import Solver
from pipeline.split.planning.solver.trade_off import front, knee, prefer_prompt
from tests.support.exhaustive import legal_plans, random_problem


def one_item(*ways: tuple[float, int]) -> Problem:
    """Return the problem of one item that takes so many seconds on so many replicas."""
    units = max(replicas for _, replicas in ways)
    choices = tuple(Choice(0, (replicas,), np.array([seconds]), replicas) for seconds, replicas in ways)
    return Problem((Processor("p", units),), choices, np.zeros((2, 1, 2)), np.zeros((1, 2, 2)))


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        # Four replicas of 4.1 s: 19.5 % faster than two of 2.45 s, but later by far more than twice the least latency.
        (4.1, 2.45),
        # A gain of more than 20 % is worth it, and so is any gain at less than twice the least latency.
        (4.05, 4.05),
        (1.9, 1.9),
    ],
)
def test_much_latency_is_taken_for_much_gain_only(seconds: float, chosen: float) -> None:
    problem = one_item((1.25, 1), (2.45, 2), (seconds, 4))
    fastest = Solver(problem).fastest()
    assert fastest is not None
    assert fastest.latency == seconds
    assert prefer_prompt(problem, fastest, 1.0).latency == chosen


@pytest.mark.parametrize("seed", range(40))
def test_the_rule_holds_against_every_legal_plan(seed: int) -> None:
    problem = random_problem(seed, 5)
    plans = list(legal_plans(problem))
    fastest = Solver(problem).fastest()
    if fastest is None:
        assert not plans
        return
    chosen = prefer_prompt(problem, fastest, 1.0)
    least = min(plan.latency for plan in plans)
    prompt = min((plan.interval for plan in plans if plan.latency <= 2 * least), default=np.inf)
    if chosen.latency > 2 * least * (1 + 1e-9):
        assert chosen.interval * 1.2 <= prompt * (1 + 1e-6)
    else:
        # The bisection stops within a share of the fastest plan of little latency.
        assert chosen.interval <= max(prompt, fastest.interval) * 1.01


@pytest.mark.parametrize("seed", range(20))
def test_a_front_begins_with_the_fastest_and_ends_with_the_least_late(seed: int) -> None:
    problem = random_problem(seed, 5)
    plans = list(legal_plans(problem))
    solver = Solver(problem)
    fastest = solver.fastest()
    if fastest is None:
        return
    solutions = front(solver, fastest)
    assert solutions[0].interval == pytest.approx(min(plan.interval for plan in plans), rel=2e-3)
    assert solutions[-1].latency == pytest.approx(min(plan.latency for plan in plans), rel=2e-3)
    for sooner, later in pairwise(solutions):
        assert later.latency < sooner.latency
        assert later.interval > sooner.interval
    assert knee(solutions) in solutions


@pytest.mark.parametrize("board", ["jetson-orin-nano", "rk3588", "raspberry-pi-5", "nuc"])
def test_auto_keeps_the_rule_on_a_board(digits_onnx: Path, board: str) -> None:
    planner = Planner(pipeline.read(digits_onnx), boards.get(board))
    chosen = planner.solve()
    least, problem = planner.solve("latency"), planner.problem()
    solver = Solver(problem)
    if chosen.latency <= 2 * least.latency:
        return
    for share in np.linspace(1.0, 1.2, 21)[:-1]:
        other = solver.least("latency", chosen.interval * share)
        assert other is None or other.latency > 2 * least.latency


def test_a_rate_that_is_asked_for_is_kept(digits_onnx: Path) -> None:
    planner = Planner(pipeline.read(digits_onnx), boards.get("rk3588"))
    # By `predict`: the solver's own count leaves waiting out.
    interval_s = planner.predict(planner.solve()).interval_s
    assert planner.predict(planner.solve("latency", 0.999 / interval_s)).interval_s <= interval_s * 1.002


def test_a_plan_is_explained_with_both_ends_and_the_knee(digits_onnx: Path) -> None:
    planner = Planner(pipeline.read(digits_onnx), boards.get("jetson-orin-nano"))
    explanation = explain(planner, planner.plan())
    fastest, bend, least = explanation.trade_offs
    assert [way.name for way in explanation.trade_offs] == ["fastest", "knee", "least latency"]
    assert fastest.frames_per_s > bend.frames_per_s > least.frames_per_s
    assert fastest.latency_s > bend.latency_s > least.latency_s
    assert least.latency_s == pytest.approx(planner.solve("latency").latency)
