"""One prediction: a plan, its explanation and its simulation say the same, on random problems."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.prediction.predict import predict
from pipeline.simulation import simulate
from pipeline.split.graph import Graph
from pipeline.split.planning.advice.explanation import explain
from pipeline.split.planning.planner import Planner
from tests.support.planning import chain_graph
from tests.support.random_plans import random_board, random_plan, random_step_plan

# Rates between two results, of which several may leave at once.
BURSTS = 1.01


def ratio(plan: Plan, frames: int = 600) -> float:
    """Return the simulated rate over the predicted one."""
    return simulate(plan, frames=frames).frames_per_s * predict(plan).interval_s


def check(plan: Plan) -> float:
    prediction = predict(plan)
    simulated_s = prediction.interval_s / ratio(plan)
    # What no order of events can beat: each stage alone, and the sums of what is shared.
    least_s = max([*(stage.interval_s for stage in prediction.stages), *prediction.loads.values()])
    assert simulated_s >= least_s / BURSTS
    # Mostly by the ends of the stream: of a thousand plans, the one that differs most does so by 0.8 %.
    assert simulated_s == pytest.approx(prediction.interval_s, rel=0.01)
    return simulated_s / prediction.interval_s


def test_random_plans_are_simulated_as_they_are_predicted() -> None:
    ratios = [check(random_plan(seed)) for seed in range(30)]
    assert np.mean(np.abs(np.array(ratios) - 1)) < 0.002


@pytest.mark.slow
def test_many_random_plans_are_simulated_as_they_are_predicted() -> None:
    ratios = [check(random_plan(seed)) for seed in range(30, 1000)]
    assert np.mean(np.abs(np.array(ratios) - 1)) < 0.002


def test_random_stages_that_borrow_are_simulated_as_they_are_predicted() -> None:
    ratios = [step_ratio(seed) for seed in range(25)]
    assert ratios == pytest.approx([1.0] * len(ratios), rel=0.03)


@pytest.mark.slow
def test_many_random_stages_that_borrow_are_simulated_as_they_are_predicted() -> None:
    ratios = np.array([step_ratio(seed) for seed in range(25, 120)])
    # Number 52 has two patterns in which its workers wait; some microseconds decide which one it falls into.
    assert np.max(np.abs(ratios - 1)) < 0.13
    assert np.mean(np.abs(ratios - 1)) < 0.01


def step_ratio(seed: int) -> float:
    """Return the simulated rate over the predicted one, both with what the system takes to wake workers."""
    plan = random_step_plan(seed)
    return simulate(plan, frames=500).frames_per_s * predict(plan).interval_s


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 27))
def test_plan_explanation_and_simulation_of_random_boards_agree(chain: Graph, seed: int) -> None:
    generator = np.random.default_rng(seed)
    board = random_board(generator)
    times = {device.name: generator.uniform(1e-3, 1e-2, 6).tolist() for device in board.devices}
    planner = Planner(chain, board, times)
    plan = planner.plan(objective=("throughput", "latency")[seed % 2])
    explanation, prediction = explain(planner, plan), predict(plan)
    # `bench` prints the first one as what it had to be.
    assert predict(plan).interval_s == explanation.interval_s == pytest.approx(prediction.interval_s)
    assert explanation.latency_s == pytest.approx(prediction.latency_s)
    assert explanation.loads == pytest.approx(prediction.loads)
    assert [stage.interval_s for stage in explanation.stages] == pytest.approx(
        [stage.interval_s for stage in prediction.stages]
    )
    check(plan)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    folder: Path = tmp_path_factory.mktemp("chain")
    return chain_graph(folder)
