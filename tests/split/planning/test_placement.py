"""Each stage of a plan says why it lies on its device."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.plan import Plan
from pipeline.split.graph import Graph
from pipeline.split.planning.advice.explanation import explain
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem.pins import resolve_pins
from tests.support.planning import chain_graph

CPU = Device("cpu", cores=(0,))
NPU = Device("npu", "simulated")
SLOW, FAST = [1.0] * 6, [0.1] * 6


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return chain_graph(tmp_path_factory.mktemp("chain"))


def causes(plan: Plan) -> list[tuple[str, str]]:
    return [(stage.device, stage.cause) for stage in plan.stages]


def planner(chain: Graph, *devices: Device, seconds: dict[str, list[float]] | None = None) -> Planner:
    return Planner(chain, Board("board", devices), isolated=seconds)


def test_the_only_device(chain: Graph) -> None:
    assert causes(planner(chain, CPU).plan()) == [("cpu", "the only device")]


def test_the_device_that_measured_fastest(chain: Graph) -> None:
    plan = planner(chain, CPU, NPU, seconds={"cpu": SLOW, "npu": FAST}).plan(objective="latency")
    assert causes(plan) == [("npu", "measured fastest: 600 ms, cpu 6 s")]


def test_the_device_that_is_estimated_fastest(chain: Graph) -> None:
    plan = planner(chain, CPU, NPU, seconds={"npu": FAST}).plan(objective="latency")
    assert plan.stages[0].cause.startswith("estimated fastest: ")


def test_the_only_device_that_runs_an_operator(chain: Graph) -> None:
    plan = planner(chain, CPU, replace(NPU, families=("convolution",))).plan()
    assert causes(plan) == [("cpu", "the only device that runs 'n0' (softmax)")]


def test_what_the_user_says(chain: Graph) -> None:
    on_both = planner(chain, CPU, NPU, seconds={"cpu": SLOW, "npu": FAST})
    assert causes(on_both.plan(devices=["npu", "cpu"])) == [("npu", "asked for"), ("cpu", "asked for")]
    first = "the first device that runs it, since its cuts are given"
    assert causes(on_both.plan(cuts=["t3"])) == [("cpu", first), ("cpu", first)]
    pinned = replace(on_both, pins=resolve_pins(chain, on_both.board, {"n0": "cpu"}))
    assert causes(pinned.plan())[0] == ("cpu", "'n0' is pinned to 'cpu'")


def test_a_device_without_memory_for_it(chain: Graph) -> None:
    small = replace(NPU, memory="npu", memory_bytes=1000)
    board = Board("board", (CPU, small), (Link(("host", "npu"), 1e12, 0.0),))
    plan = Planner(chain, board, isolated={"cpu": SLOW, "npu": FAST}).plan()
    assert causes(plan) == [("cpu", "no memory on npu, which computes it in 600 ms")]


def test_a_device_that_another_stage_has(chain: Graph) -> None:
    seconds = {"cpu": SLOW, "npu": [0.9] * 6}
    plan = planner(chain, CPU, NPU, seconds=seconds).plan(stages=2)
    (cause,) = (cause for device, cause in causes(plan) if device == "cpu")
    assert cause.startswith("npu, which computes it in ")
    assert cause.endswith(("has stage0", "has stage1"))


def test_a_device_behind_a_slow_link(chain: Graph) -> None:
    board = Board("board", (CPU, replace(NPU, memory="npu")), (Link(("host", "npu"), 1e3, 0.0),))
    plan = Planner(chain, board, isolated={"cpu": SLOW, "npu": FAST}).plan(objective="latency")
    assert [stage.device for stage in plan.stages] == ["cpu"]
    assert plan.stages[0].cause.startswith("fastest with its transfers: 6 s, npu ")


def test_the_least_energy(chain: Graph) -> None:
    devices = replace(CPU, watts_busy=0.1), replace(NPU, watts_busy=10.0)
    plan = planner(chain, *devices, seconds={"cpu": SLOW, "npu": [0.9] * 6}).plan(objective="energy")
    assert causes(plan) == [("cpu", "least energy; npu computes it in 5.4 s")]


def test_causes_are_part_of_the_file_and_of_the_explanation(chain: Graph, tmp_path: Path) -> None:
    alone = planner(chain, CPU)
    plan = alone.plan()
    plan.save(tmp_path / "plan.json")
    assert pipeline.Plan.load(tmp_path / "plan.json") == plan
    assert [stage.cause for stage in explain(alone, plan).stages] == ["the only device"]


def test_a_file_from_before_causes_is_read(chain: Graph, tmp_path: Path) -> None:
    alone = planner(chain, CPU)
    alone.plan().save(tmp_path / "plan.json")
    fields = json.loads((tmp_path / "plan.json").read_text())
    for stage in fields["stages"]:
        del stage["cause"]
    (tmp_path / "plan.json").write_text(json.dumps(fields))
    plan = pipeline.Plan.load(tmp_path / "plan.json")
    assert [stage.cause for stage in plan.stages] == [""]
    assert [stage.cause for stage in explain(alone, plan).stages] == [""]


def test_stages_that_a_user_joins(chain: Graph) -> None:
    plan = planner(chain, CPU, NPU, seconds={"cpu": SLOW, "npu": [0.9] * 6}).plan(stages=2)
    assert causes(plan.join("stage0", "stage1")) == [("cpu", "asked for")]


def test_workers_that_borrow_a_device(chain: Graph) -> None:
    times = {"cpu": [1.0, 0.1] * 3, "npu": [0.1, 1.0] * 3}
    plan = planner(chain, replace(CPU, cores=(0, 1)), replace(NPU, kind="vta"), seconds=times).plan()
    assert causes(plan) == [("cpu", "its workers borrow npu for some of its operators")]
