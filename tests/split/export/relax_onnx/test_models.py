"""Models of each frontend, cut in three and written as ONNX, have the answers of the unsplit model."""

from __future__ import annotations

from pathlib import Path

import pytest

import pipeline
from tests.support.onnx_models import frame, in_stages
from tests.support.onnx_stages import assert_same, run_exported


def test_the_demos_network(digits_onnx: Path) -> None:
    graph = pipeline.read(digits_onnx)
    values = frame(graph)
    assert_same(run_exported(graph, values), in_stages(graph, [], values))


@pytest.mark.parametrize("name", ["mlp", "multi", "squeezenet"])
def test_relay_programs(shared: Path, name: str) -> None:
    graph = pipeline.read(shared / "relay" / f"{name}.relay")
    values = frame(graph)
    assert_same(run_exported(graph, values), in_stages(graph, [], values))
