"""What limits a plan, what is idle, and what would change it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.stage_options import NO_OPTIONS, StageOptions
from pipeline.split.graph import Graph
from pipeline.split.planning.advice import outlook
from pipeline.split.planning.advice.explanation import explain
from pipeline.split.planning.planner import Planner
from tests.support.onnx_models import node, save, weights

SLOW = Device("cpu", cores=(0,), flops=1e9, bytes_per_s=1e11, launch_s=0.0, efficiency={"convolution": 1.0})


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """Four equal convolutions of a picture."""
    nodes = [node("Conv", f"t{index} w", f"t{index + 1}", pads=[1] * 4) for index in range(4)]
    return pipeline.read(
        save(tmp_path / "m.onnx", nodes, {"t0": (1, 16, 32, 32)}, ["t4"], {"w": weights(16, 16, 3, 3)})
    )


def gains(graph: Graph, device: Device, options: StageOptions = NO_OPTIONS) -> dict[str, float]:
    planner = Planner(graph, Board("b", (device,)), options=options)
    return {change.name: change.gain for change in outlook.changes(planner)}


def test_gains_are_those_of_the_board_s_own_rates(graph: Graph) -> None:
    device = replace(SLOW, int8_flops=4e9, float16_flops=8e9)
    found = gains(graph, device)
    # A quarter of the results take a quarter of the time, and rates are as the board has them.
    assert found["half the input's size"] == pytest.approx(4, rel=0.05)
    # Of convolutions by Winograd's transforms, which take 1.8 times less, and are in float32 at both ends.
    assert found["int8"] == pytest.approx(4 / 1.8, rel=0.1)
    assert found["--precision float16"] == pytest.approx(1 / 1.8 / (0.5 / 1.8 + 0.5 / 8), rel=0.1)
    assert list(found) == sorted(found, key=lambda name: -found[name])


def test_weights_in_int8_may_stay_in_the_chip(graph: Graph) -> None:
    # The four kernels take 37 kB in float32.
    device = replace(SLOW, resident_bytes=20_000, refill_bytes_per_s=1e5)
    assert gains(graph, device)["int8"] > 5


def test_what_is_planned_with_already_is_no_change(graph: Graph) -> None:
    assert not {"--precision float16"} & set(gains(graph, SLOW, StageOptions("float16")))


def test_idle_devices_cores_and_stages_are_named(graph: Graph) -> None:
    cpu = Device("cpu", cores=(0, 1, 2), flops=1e9)
    planner = Planner(graph, Board("b", (cpu, Device("npu", "null", flops=1e3))))
    plan = planner.plan(cuts=[1], devices=["cpu", "cpu"])
    first, second = plan.stages
    plan = replace(plan, stages=(replace(first, cores=(0,)), replace(second, cores=(1,))))
    explanation = explain(planner, plan)
    assert explanation.idle[:2] == ("core 2 of cpu", "npu")
    # One convolution beside three.
    (rest,) = [text for text in explanation.idle if text.startswith("stage0 (")]
    assert 60 <= int(rest.split()[2].removesuffix("%")) <= 70
    assert 0 < explanation.traffic_share < 1
