"""Plans are made by the times of the kernels that will be built."""

from __future__ import annotations

import pytest

import boards
from pipeline.core.plan.stage_options import StageOptions
from pipeline.split.planning.advice.stage_times import with_times
from pipeline.split.planning.planner import Planner

published_models = pytest.importorskip("published_models")


def test_resnet_is_cut_where_its_winograd_times_are_even() -> None:
    """It was cut by the times of direct convolutions."""
    graph, board = published_models.graph("resnet18"), boards.get("raspberry-pi-4")
    winograd = Planner(graph, board, options=StageOptions("float32"))
    plan = winograd.plan(stages=2)
    assert [stage.options for stage in plan.stages] == [StageOptions("float32")] * 2
    assert plan.stages[0].seconds == pytest.approx(plan.stages[1].seconds, rel=0.1)
    # The best cut of direct convolutions is another one.
    direct = Planner(graph, board, options=StageOptions("float32-exact")).plan(stages=2)
    assert direct.stages[0].operators != plan.stages[0].operators
    old_cut = winograd.plan(cuts=[direct.stages[0].operators[-1]])
    assert max(stage.seconds for stage in old_cut.stages) > 1.05 * max(stage.seconds for stage in plan.stages)


def test_a_stage_s_own_options_change_its_time() -> None:
    graph, board = published_models.graph("resnet18"), boards.get("raspberry-pi-4")
    planner = Planner(graph, board, options=StageOptions("float32-exact"))
    plan = planner.plan(stages=2)
    assert with_times(planner, plan).plan == plan
    first, second = with_times(planner, plan.with_options("stage1", precision="float32")).plan.stages
    assert first == plan.stages[0]
    assert second.seconds < 0.9 * plan.stages[1].seconds
    # As if all had been planned with it.
    winograd = Planner(graph, board, options=StageOptions("float32")).plan(cuts=[first.operators[-1]])
    assert second.seconds == pytest.approx(winograd.stages[1].seconds)
