"""The four public functions, from a file to results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.errors import BoardError, BuildError, BundleError, ModelError, PlanError
from tests.support.onnx_models import Arrays, assert_close, by_onnxruntime, frame, node, save, weights


@pytest.fixture
def model(tmp_path: Path) -> Path:
    nodes = [
        node("MatMul", "a w", "m", "dense"),
        node("Softmax", "m", "s", "soft"),
        node("Add", "s b", "y", "last"),
    ]
    return save(tmp_path / "model.onnx", nodes, {"b": (2, 5), "a": (2, 3)}, ["y", "s"], {"w": weights(3, 5)})


def outputs_by_name(result: Any, names: list[str]) -> Arrays:
    if isinstance(result, dict):
        return {name: np.asarray(result[name]) for name in names}
    return dict(zip(names, map(np.asarray, result), strict=True))


@pytest.mark.parametrize("options", [{"stages": 1}, {"stages": 2}, {"cuts": ["m"]}, {"cuts": [1]}, {}], ids=str)
def test_from_file_to_results(model: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    graph = pipeline.read(model)
    bundle = pipeline.build(graph, pipeline.plan(graph, **options))
    bundle.save(tmp_path / "model.bundle")
    values = frame(graph)
    expected = by_onnxruntime(model, values)
    for source in (bundle, tmp_path / "model.bundle", str(tmp_path / "model.bundle")):
        with pipeline.load(source) as running:
            assert_close(outputs_by_name(running.submit(values).result(60), ["y", "s"]), expected)
            for result in running.map([values] * 3):
                assert_close(outputs_by_name(result, ["y", "s"]), expected)


def test_several_devices_of_one_board(model: Path) -> None:
    graph = pipeline.read(model)
    board = Board("two", (Device("one"), Device("two")))
    plan = pipeline.plan(graph, board, devices=["one", "two"])
    assert [stage.device for stage in plan.stages] == ["one", "two"]
    values = frame(graph)
    with pipeline.load(pipeline.build(graph, plan)) as running:
        assert_close(outputs_by_name(running.submit(values).result(60), ["y", "s"]), by_onnxruntime(model, values))


def test_boards_are_given_by_name_or_value(model: Path) -> None:
    graph = pipeline.read(model)
    assert pipeline.plan(graph).board.name == "host"
    with pytest.raises(BoardError, match="unknown board 'moon'"):
        pipeline.plan(graph, "moon")


def test_mistakes_are_found_where_they_are_made(model: Path, tmp_path: Path) -> None:
    graph = pipeline.read(model)
    with pytest.raises(PlanError, match="stages is 0"):
        pipeline.plan(graph, stages=0)
    with pytest.raises(PlanError, match="9 stages need 8 cuts"):
        pipeline.plan(graph, stages=9)
    with pytest.raises(PlanError, match="unknown cut 'sofft'; did you mean 'soft'"):
        pipeline.plan(graph, cuts=["sofft"])
    with pytest.raises(BundleError, match="does not exist"):
        pipeline.load(tmp_path / "gone.bundle")


def test_the_public_names_are_there() -> None:
    for name in pipeline.__all__:
        assert getattr(pipeline, name) is not None
    assert set(dir(pipeline)) >= set(pipeline.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'reed'"):
        pipeline.reed  # noqa: B018


def test_extents_that_are_too_small_are_refused_with_the_remedy(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "a"), node("Conv", "a v", "y")]
    constants = {"w": weights(2, 1, 3, 3), "v": weights(1, 2, 3, 3)}
    path = save(tmp_path / "m.onnx", nodes, {"x": (1, 1, "H", 8)}, ["y"], constants)
    with pytest.raises(ModelError, match=r"'y' of model 'm' has the shape \[1, 1, -1, 4\]; give inputs larger extents"):
        pipeline.read(path, shapes={"x": (1, 1, 3, 8)})
    graph = pipeline.read(path, shapes={"x": (1, 1, 4, 8)})
    with pytest.raises(BuildError, match=r"\(with x=1,1,4,8 'y' has no elements; give larger extents"):
        pipeline.build(graph, pipeline.plan(graph, stages=1))
