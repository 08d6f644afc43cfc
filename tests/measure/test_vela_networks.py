"""Vela compiles all that plans give to an Ethos-U of ten networks, and leaves the rest to the CPU by its own report.

The real compiler, for two chips (slow).  It simulates nothing, so that no numbers are compared.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("ai_edge_litert", reason="the reader of TFLite files is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")
import published_models

import boards
import pipeline
from pipeline.core.board.board import Board
from pipeline.measure.quotes.compilers import variable
from pipeline.split.graph import Graph
from pipeline.workflow.plan import make_planner
from tests.support import int8_tflite

SIDES = {
    "resnet18": 64, "mobilenet_v2": 96, "efficientnet_lite0": 96, "yolov8n": 160, "yolo11n": 160, "yolox_nano": 160,
    "fastestdet": 160, "deeplab_v3_dm05": 129, "posenet_mobilenet": 129, "ds_cnn": None,
}  # fmt: skip
"""Sides of the pictures; a compiler takes as long for larger ones, but not we."""
_LEFT = re.compile(r"Warning \(supported operators\) operator: (\w+), ofm: '(.*)'")


def npu_board(python: Path, chip: str) -> Board:
    """Return the board with an Ethos-U, of this chip, for which this Vela compiles, and slow cores beside it."""
    board = boards.get("imx93")
    npu = board.device("npu")
    target = dict(npu.target or {})
    target["compile"] = str(target["compile"]).replace("vela ", f"{python} -m ethosu.vela ").replace(
        "ethos-u65-256", chip
    )  # fmt: skip
    target["quotes"] = {"compiler": "vela", "chip": chip, "clock_hz": 1e9}
    return replace(
        board, devices=(replace(board.device("cpu"), flops=1e8, int8_flops=1e8), replace(npu, target=target))
    )


def operators_left(python: Path, chip: str, model: Path) -> set[str]:
    """Return the tensors of the operators that Vela says it places on the CPU."""
    command: list[str | Path] = [
        python,
        "-m",
        "ethosu.vela",
        model,
        "--accelerator-config",
        chip,
        "--output-dir",
        model.parent,
    ]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = {name for _, name in _LEFT.findall(report)}
    assert f"CPU operators = {len(names)} " in report
    return names


def refused(graph: Graph, groups: object) -> set[str]:
    """Return the results of refused groups."""
    return {operator.outputs[-1] for operator in graph.operators if operator.group in groups}  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("chip", ["ethos-u65-256", "ethos-u85-256"])
@pytest.mark.parametrize("name", SIDES)
def test_stages_for_the_npu_compile_and_the_rest_is_what_vela_leaves(
    name: str, chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = Path(os.environ.get(variable("vela")) or ".venv/vela/bin/python").absolute()
    if not python.exists():
        pytest.skip("ethos-u-vela is not installed; run: make vela")
    monkeypatch.setenv(variable("vela"), str(python))
    model = int8_tflite.write(published_models.build(name, SIDES[name]), tmp_path / f"{name}.tflite")
    graph, board = pipeline.read(model), npu_board(python, chip)
    planner = make_planner(graph, board)
    assert refused(graph, planner.refusals["npu"]) == operators_left(python, chip, model)
    plan = planner.plan()
    assert "npu" in {stage.device for stage in plan.stages}
    # An operator that Vela left in a stage would be an error here.
    bundle = pipeline.build(graph, plan, check=False)
    bundle.save(tmp_path / "m.bundle")
    assert len(list((tmp_path / "m.bundle").rglob("*.tflite"))) == [stage.device for stage in plan.stages].count("npu")
