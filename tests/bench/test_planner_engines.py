"""Each search engine of the planner can be left out, and what that costs is said."""

from __future__ import annotations

import planner_engines
import pytest
from planner_engines import ENGINES, measure, small_cases


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_is_called_by_its_name(engine: str) -> None:
    target, name, _ = ENGINES[engine]
    assert hasattr(target, name)


def test_a_row_has_plans_costs_and_time() -> None:
    cases, engines = list(small_cases(1))[:3], ["all divisions of small graphs", "borrowing"]
    rows = list(measure("small graphs", cases, engines))
    assert [row["engine"] for row in rows] == engines
    for row in rows:
        assert row["plans"] == 3
        assert row["worst_ratio"] >= row["mean_ratio"] > 0
        assert row["time_ratio"] > 0


def test_plans_of_much_latency_cost_more() -> None:
    case = next(small_cases(1))
    plan = case.planner.plan(objective="latency")
    cost = planner_engines.cost(plan, "throughput", 0.0)
    assert cost == 1.2 * planner_engines.cost(plan, "throughput", 1e9)
    assert planner_engines.cost(None, "latency", 0.0) == float("inf")
