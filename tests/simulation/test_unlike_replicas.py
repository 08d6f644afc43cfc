"""Replicas on unlike cores: what a plan promises is what a stream gets, though results leave in order.

Four big cores and four of 0.29 times their speed were once promised the sum of their rates, 51.6 frames/s, with ten
frames inside; the scheduler gave 37.0, less than the big cores alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import boards
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.prediction.contention import WAKING_S
from pipeline.prediction.predict import FRAMES_INSIDE, predict
from pipeline.simulation import simulate
from pipeline.split.graph import Graph
from tests.support.planning import chain_graph, plan_with_times

BIG, LITTLE = 0.09975, 0.344
RK3588 = (BIG,) * 4 + (LITTLE,) * 4

GOALS: tuple[dict[str, Any], ...] = (
    {},
    {"objective": "throughput"},
    {"objective": "latency"},
    {"objective": "energy"},
    {"fps": 15},
    {"fps": 42},
    {"fps": 50},
    {"replicas": False},
    {"stages": 4},
)


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return chain_graph(tmp_path_factory.mktemp("chain"))


def one_stage(times: tuple[float, ...], **options: Any) -> Plan:
    spec, board = TensorSpec("x", (4,)), Board("b", (Device("device", "simulated"),))
    stage = StagePlan("s", "device", (spec,), (TensorSpec("y", (4,)),), replicas=len(times), replica_seconds=times)
    stages = (replace(stage, seconds=stage.mean_seconds),)
    return Plan("m", "", board, (spec,), stages[0].outputs, stages, **options)


def rate(plan: Plan, frames: int = 1000) -> float:
    return simulate(plan, frames=frames, overhead=0.0).frames_per_s


def test_with_enough_frames_inside_rates_add_up() -> None:
    plan = one_stage(RK3588)
    assert plan.frames_in_flight == 4 * 4 + 4 + 2, "while one of the slow has a frame, each of the fast begins four"
    assert predict(plan).frames_per_s == pytest.approx(4 / (BIG + WAKING_S) + 4 / (LITTLE + WAKING_S))
    assert rate(plan) == pytest.approx(4 / BIG + 4 / LITTLE, rel=0.01)


def test_with_few_frames_inside_the_fast_wait_for_the_slow() -> None:
    """As many as there are replicas and places in the queue were once thought to be enough."""
    plan = one_stage(RK3588, in_flight=10)
    assert predict(plan).bottleneck == FRAMES_INSIDE
    assert predict(plan).frames_per_s == pytest.approx(rate(plan), rel=0.01)
    assert rate(plan) < 41
    assert rate(one_stage(RK3588)) > 51


@pytest.mark.parametrize("seed", range(20))
def test_the_law_of_few_frames_inside(seed: int) -> None:
    generator = np.random.default_rng(seed)
    times = tuple(np.sort(generator.uniform(1, 6, generator.integers(2, 7))).tolist())
    plan = one_stage(times, in_flight=int(generator.integers(1, 12)))
    predicted, simulated = predict(plan).frames_per_s, rate(plan)
    assert simulated <= predicted * 1.01
    assert simulated == pytest.approx(predicted, rel=0.03)


def test_alike_replicas_need_one_frame_each() -> None:
    assert predict(one_stage((8.0,) * 4, in_flight=4)).interval_s == pytest.approx(2.0, rel=2e-3)
    assert predict(one_stage((8.0,) * 4, in_flight=2)).interval_s == pytest.approx(4.0, rel=2e-3)
    assert one_stage((8.0,) * 4).stages[0].frames_at_work == 4


@pytest.mark.parametrize("goal", GOALS, ids=str)
def test_what_is_planned_for_unlike_cores_is_simulated(chain: Graph, goal: dict[str, Any]) -> None:
    plan = plan_for_rk3588(chain, **goal)
    assert rate(plan) == pytest.approx(predict(plan).frames_per_s, rel=0.02)
    assert rate(plan) <= predict(plan).frames_per_s * 1.01


def test_slow_cores_join_only_if_that_is_asked_for(chain: Graph) -> None:
    fastest, least_late = (plan_for_rk3588(chain, objective=goal) for goal in ("throughput", "latency"))
    assert len(fastest.stages[0].cores) == 8
    assert predict(fastest).latency_s == pytest.approx(LITTLE, rel=0.01), "at most: in the slowest replica"
    assert {core for stage in least_late.stages for core in stage.cores} <= {4, 5, 6, 7}
    assert predict(least_late).latency_s < BIG


def plan_for_rk3588(graph: Graph, **goal: Any) -> Plan:
    """Return a plan for the cores of an RK3588, of a model that takes a big one 0.1 s."""
    board = boards.get("rk3588")
    big, little = board.devices[0].clusters
    # The board's own speed is an estimate that changes.
    device = replace(board.devices[0], clusters=(big, replace(little, speed=BIG / LITTLE)))
    cpu = replace(board, devices=(device,), links=())
    return plan_with_times(graph, cpu, seconds=[BIG / 6] * 6, **goal)
