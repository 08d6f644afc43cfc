"""A small graph to plan."""

from __future__ import annotations

import pytest

import pipeline
from pipeline.split.graph import Graph
from tests.support.onnx_models import node, save


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Six operators that do not fuse, all alike."""
    nodes = [node("Softmax", f"t{number}", f"t{number + 1}", f"n{number}") for number in range(6)]
    path = save(tmp_path_factory.mktemp("chain") / "m.onnx", nodes, {"t0": (64, 64)}, ["t6"])
    return pipeline.read(path)
