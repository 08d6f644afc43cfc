"""The commands with a plan of a stage that borrows a device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device, Link

BOARD = Board(
    "two memories", (Device("cpu", cores=(0, 1)), Device("far", memory="far")), (Link(("host", "far"), 1e9, 1e-5),)
)


@pytest.fixture
def plan(small_onnx: Path, tmp_path: Path) -> Path:
    """A plan of one stage, which computes on cores and on what it borrows."""
    graph = pipeline.read(small_onnx)
    stages = pipeline.plan(graph, BOARD, stages=2, devices=["cpu", "far"])
    path = tmp_path / "plan.json"
    stages.join("stage0", "stage1", cores=(0,)).save(path)
    return path


def test_from_a_plan_to_a_drawing(command: Any, small_onnx: Path, plan: Path, tmp_path: Path) -> None:
    bundle, frames, trace = tmp_path / "small.bundle", tmp_path / "frames.npy", tmp_path / "trace.json"
    np.save(frames, np.zeros((40, 1, 4, 8, 8), np.float32))
    assert command("build", small_onnx, "--plan", plan, "-o", bundle).status == 0
    result = command("run", bundle, "--input", frames, "--trace", trace, "--json")
    assert result.status == 0
    (stage,) = json.loads(result.out)["stages"]
    assert [step["device"] for step in stage["steps"]] == ["cpu", "far"]
    assert command("simulate", plan).status == 0
    assert command("bench", bundle, "--rounds", 1, "--frames", 8).status == 0
    pytest.importorskip("matplotlib")
    drawing = tmp_path / "both.svg"
    result = command("simulate", plan, "--drawing", drawing, "--against", trace)
    assert (result.status, result.err) == (0, "")
    assert all(
        f"{row} {side}" in drawing.read_text() for row in ("far", "stage0") for side in ("predicted", "measured")
    )


def test_split_writes_a_file_for_each_step(command: Any, small_onnx: Path, plan: Path, tmp_path: Path) -> None:
    result = command("split", small_onnx, "--plan", plan, "-o", tmp_path / "parts")
    assert (result.status, result.err) == (0, "")
    assert "stage0.step1" in result.out
