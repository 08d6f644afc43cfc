"""A small built pipeline for the tests of bundles."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.executor.bundle import Bundle
from pipeline.split.graph import Graph
from tests.support.onnx_models import node, save, weights


@pytest.fixture(scope="session")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Two inputs, two outputs, a tensor that skips a stage, and parameters in two stages."""
    nodes = [
        node("Conv", "x w b", "c", pads=[1] * 4),
        node("Relu", "c", "r"),
        node("Softmax", "r", "s", axis=1),
        node("Conv", "s w", "d", pads=[1] * 4),
        node("Concat", "d r z", "y", axis=1),
    ]
    constants = {"w": weights(4, 4, 3, 3), "b": weights(4)}
    inputs = {"z": (1, 2, 6, 6), "x": (1, 4, 6, 6)}
    path = save(tmp_path_factory.mktemp("model") / "little.onnx", nodes, inputs, ["y", "s"], constants)
    return pipeline.read(path)


@pytest.fixture(scope="session")
def board() -> Board:
    return Board("test", (Device("cpu"), Device("second", index=0)))


@pytest.fixture(scope="session")
def small_bundle(graph: Graph, board: Board) -> Bundle:
    plan = pipeline.plan(graph, board, cuts=["r", "s"], devices=["cpu", "second", "cpu"])
    return pipeline.build(graph, plan)


@pytest.fixture(scope="session")
def pristine(small_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle as a folder; copy it, never change it."""
    path = tmp_path_factory.mktemp("bundle") / "little.bundle"
    small_bundle.save(path)
    return path


@pytest.fixture
def bundle_copy(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "copied.bundle"))
