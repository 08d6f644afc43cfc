"""The planner against every division of small graphs in every order, on unlike cores."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.prediction.predict import predict
from pipeline.split.planning.planner import Planner
from tests.support.every_order import Case, Division, least, random_case

# By what plans may differ: an order has to gain 1 %, and fewer stages are worth 2 % of the rate.
ORDER, SIZE = 1.01, 1.02
# To which share the rate of plans of little latency is looked for.
PRECISION = 1.01

PROBLEMS = [*range(40), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(40, 400))]


def planner_of(case: Case) -> Planner:
    return Planner(case.graph, case.board, isolated=case.seconds)


def check_rate(plan: Plan, divisions: list[Division]) -> None:
    """Check the rule for rate and latency by all divisions."""
    latency = predict(plan).latency_s
    fastest, quickest = least(divisions, lambda each: each.interval), least(divisions, lambda each: each.latency)
    prompt = least([each for each in divisions if each.latency <= 2 * quickest], lambda each: each.interval)
    if latency > 2 * quickest * ORDER:
        assert fastest * 1.2 <= prompt * PRECISION * ORDER
        assert predict(plan).interval_s <= fastest * SIZE * ORDER
    else:
        assert predict(plan).interval_s <= prompt * SIZE * ORDER * PRECISION


@pytest.mark.parametrize("seed", PROBLEMS)
@pytest.mark.one_in(4)
def test_no_order_is_better(seed: int) -> None:
    case = random_case(seed)
    divisions, planner = list(case.divisions()), planner_of(case)
    check_rate(planner.plan(objective="throughput", heterogeneous=False), divisions)
    latency = predict(planner.plan(objective="latency", heterogeneous=False)).latency_s
    assert latency <= least(divisions, lambda each: each.latency) * ORDER
    joules = predict(planner.plan(objective="energy", heterogeneous=False)).joules
    assert joules is not None
    assert joules <= least(divisions, lambda each: each.joules) * ORDER
    interval = least(divisions, lambda each: each.interval) / np.random.default_rng(seed).uniform(0.3, 0.95)
    plan = planner.plan(fps=1 / interval, heterogeneous=False)
    assert predict(plan).interval_s <= interval * (1 + 1e-6)
    assert predict(plan).latency_s <= least(divisions, lambda each: each.latency, interval) * ORDER
