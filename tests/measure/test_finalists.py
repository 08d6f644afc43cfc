"""Plans of several runtimes that stream in turns: which one is chosen, and what its times become."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.plan import Plan
from pipeline.errors import PlanError
from pipeline.measure.cost_cache import CostCache
from pipeline.measure.finalists import choose_runtimes
from pipeline.measure.sampling import Sampling
from pipeline.prediction.predict import predict
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem.request import PlanChoices
from pipeline.split.planning.problem.spans import SpanTimes
from pipeline.workflow.plan import PlannerOptions, make_planner
from tests.support.onnx_models import node, save, weights

BRIEF = Sampling(turns=1, rounds=2, turn_s=0.01, stream_s=0.02)
CPU = Device("cpu", cores=(0, 1), runtimes=("tvm", "onnxruntime"))


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Planner:
    nodes = [node("Conv", "x w", "t", "t", pads=[1] * 4), node("Conv", "t w", "y", "y", pads=[1] * 4)]
    file = tmp_path_factory.mktemp("finalists") / "m.onnx"
    graph = pipeline.read(save(file, nodes, {"x": (1, 4, 16, 16)}, ["y"], {"w": weights(4, 4, 3, 3) / 6}))
    made = make_planner(graph, Board("b", (CPU,)), PlannerOptions(measure=True, sampling=BRIEF))
    # Both runtimes take half a second for each of the two groups, so that each comes to the end.
    positions = np.arange(3)
    seconds = np.where(positions[:, None] > positions, (positions[:, None] - positions) / 2, np.inf)
    spans = {name: SpanTimes((0, 1, 2), seconds) for name in made.spans}
    return replace(made, spans=spans, isolated={name: [0.5, 0.5] for name in ("cpu", "cpu/onnxruntime")}, contended={})


def streaming(rates: Callable[[str], float]) -> Any:
    """Return what says the frames per second of plans by the first stage's device, and counts its calls."""

    def stream(_: object, plans: Sequence[Plan], *__: object) -> list[float]:
        stream.calls += 1  # type: ignore[attr-defined]
        return [rates(plan.stages[0].device) for plan in plans]

    stream.calls = 0  # type: ignore[attr-defined]
    return stream


@pytest.mark.parametrize("fastest", ["cpu", "cpu/onnxruntime"])
def test_the_fastest_runtime_is_chosen_with_its_measured_time(planner: Planner, fastest: str) -> None:
    stream = streaming(lambda device: 8.0 if device == fastest else 4.0)
    chosen = choose_runtimes(planner, {}, cache=CostCache(None), stream=stream)
    plan = chosen.plan
    assert {stage.device for stage in plan.stages} == {fastest}
    assert predict(plan).interval_s == pytest.approx(1 / 8, rel=1e-3)
    # As if it had been planned with the measured times.
    assert plan == chosen.planner.plan()


def test_a_runtime_that_cannot_run_is_not_chosen(planner: Planner) -> None:
    stream = streaming(lambda device: 4.0 if device == "cpu" else 0.0)
    plan = choose_runtimes(planner, {}, cache=CostCache(None), stream=stream).plan
    assert {stage.device for stage in plan.stages} == {"cpu"}
    nothing = streaming(lambda _: 0.0)
    assert choose_runtimes(planner, {}, cache=CostCache(None), stream=nothing).planner is planner


def test_rates_are_kept(planner: Planner, tmp_path: Path) -> None:
    stream = streaming(lambda device: 8.0 if device == "cpu" else 4.0)
    first, second = (choose_runtimes(planner, {}, cache=CostCache(tmp_path), stream=stream).plan for _ in range(2))
    assert first == second
    assert stream.calls == 1
    choose_runtimes(planner, {}, cache=CostCache(tmp_path, fresh=True), stream=stream)
    assert stream.calls == 2


@pytest.mark.parametrize("request_", [{"objective": "latency"}, {"fps": 0.1}, {"devices": ["cpu"]}])
def test_nothing_streams_where_there_is_nothing_to_choose(planner: Planner, request_: PlanChoices) -> None:
    stream = streaming(lambda _: pytest.fail("streams"))
    assert choose_runtimes(planner, request_, cache=CostCache(None), stream=stream).planner is planner


def test_plans_on_other_machines_are_not_compared(planner: Planner) -> None:
    far = Device("far", memory="far", address="remote://127.0.0.1:9190/cpu")
    board = replace(planner.board, devices=(CPU, far), links=(Link(("host", "far"), 1e9),))
    isolated = {**dict(planner.isolated or {}), "far": [0.01, 0.01]}  # type: ignore[arg-type]
    wider = replace(planner, board=board, isolated=isolated)
    assert "far" in {stage.device for stage in wider.plan().stages}
    stream = streaming(lambda _: pytest.fail("streams"))
    assert choose_runtimes(wider, {}, cache=CostCache(None), stream=stream).planner is wider


def test_an_impossible_request_is_refused(planner: Planner) -> None:
    with pytest.raises(PlanError, match="cut"):
        choose_runtimes(planner, {"stages": 9}, cache=CostCache(None))


def test_plans_are_built_and_streamed(planner: Planner) -> None:
    texts: list[str] = []
    plan = choose_runtimes(planner, {}, cache=CostCache(None), sampling=BRIEF, progress=texts.append).plan
    assert "building plan 2 of 2" in texts
    # By no means a second.
    assert 0 < predict(plan).interval_s < 0.1
    assert plan.measured
