"""A measured board in a file gives the same plan on any machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import boards
import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.errors import BoardError, InputError
from pipeline.measure.board_export import export_profile, read_profile
from pipeline.measure.profile import Profile
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem.spans import SpanTimes
from tests.support.onnx_models import node, save

SHAPE = (1, 4, 8, 8)


def profiled(tmp_path: Path) -> tuple[pipeline.Graph, Profile]:
    """A chain of three groups, and made-up times: 3 ms at the end, which the NPU cannot run."""
    nodes = [node("Softmax", source, target, axis=1) for source, target in ("xa", "ab", "by")]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": SHAPE}, ["y"]))
    board = Board("host", (Device("cpu", cores=(0, 1)), Device("npu", "simulated")))
    seconds = {"cpu": (2e-3, 2e-3, 3e-3), "npu": (1e-3, 1e-3, float("inf"))}
    return graph, Profile(board, seconds, contended={"cpu": (2e-3, 2e-3, 3e-3)})


def test_the_plan_is_the_same_elsewhere(tmp_path: Path) -> None:
    graph, profile = profiled(tmp_path)
    here = Planner(graph, profile.board, isolated=profile.measured, contended=profile.contended).plan()
    export_profile(tmp_path / "mine.json", graph, profile)
    there = pipeline.plan(graph, str(tmp_path / "mine.json"))
    assert there.stages == here.stages
    assert there.measured
    # Elsewhere, "this machine" is another one.
    assert there.board.device("cpu").target is not None
    assert there.board.name == "mine"


def test_times_of_spans_stay(tmp_path: Path) -> None:
    graph, profile = profiled(tmp_path)
    matrix = [[float("inf")] * 3, [1e-3, float("inf"), float("inf")], [2e-3, 1.5e-3, float("inf")]]
    spans = {"npu": SpanTimes((0, 2, 3), np.array(matrix), {2: 0.6}, 1.25)}
    export_profile(tmp_path / "mine.json", graph, replace(profile, spans=spans))
    read = read_profile(tmp_path / "mine.json", graph)
    assert read is not None
    assert read.spans["npu"].matrix(2, contended=True).tolist() == spans["npu"].matrix(2, contended=True).tolist()
    assert read.seconds == profile.seconds


def test_further_models_are_added(tmp_path: Path) -> None:
    graph, profile = profiled(tmp_path)
    other = pipeline.read(save(tmp_path / "other.onnx", [node("Relu", "x", "y")], {"x": SHAPE}, ["y"]))
    export_profile(tmp_path / "mine.json", graph, profile)
    for seconds in (1.0, 2.0):
        export_profile(tmp_path / "mine.json", other, Profile(profile.board, {"cpu": (seconds,)}))
    models = json.loads((tmp_path / "mine.json").read_text())["models"]
    assert [entry["model"] for entry in models.values()] == ["m", "other"]
    assert read_profile(tmp_path / "mine.json", graph) is not None


def test_another_model_is_estimated(tmp_path: Path) -> None:
    graph, profile = profiled(tmp_path)
    export_profile(tmp_path / "mine.json", graph, profile)
    other = pipeline.read(save(tmp_path / "other.onnx", [node("Relu", "x", "y")], {"x": SHAPE}, ["y"]))
    assert not pipeline.plan(other, str(tmp_path / "mine.json")).measured


def test_other_files_are_refused(tmp_path: Path) -> None:
    graph, profile = profiled(tmp_path)
    with pytest.raises(InputError, match=r"ends in \.json"):
        export_profile(tmp_path / "mine.toml", graph, profile)
    (tmp_path / "mine.json").write_text('{"boards": []}')
    with pytest.raises(BoardError, match="'profile --export' has written"):
        boards.get(str(tmp_path / "mine.json"))
