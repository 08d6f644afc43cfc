"""Islands of TFLite that a stage has side by side become one file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

import pipeline
from pipeline.comparison.random_frame import random_frame
from pipeline.frontends.tflite import reference
from pipeline.split import extract
from pipeline.split.cuts import legal_cuts
from tests.frontends.tflite.test_tflite import Writer
from tests.support.onnx_models import in_stages, kinds


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    """Three operators that nobody converts; two constants of theirs lie at the same places of their files."""
    writer = Writer(8, 4)
    ids = [writer.constant(f"ids{size}", np.arange(size, dtype=np.int32) // 2) for size in (8, 4)]
    first = writer.add("SEGMENT_SUM", [0, ids[0]], writer.tensor("first", (4, 4)))
    second = writer.add("SEGMENT_SUM", [first, ids[1]], writer.tensor("second", (2, 4)))
    third = writer.add("SEGMENT_SUM", [first, ids[1]], writer.tensor("third", (2, 4)))
    return writer.save(tmp_path / "sums.tflite", writer.add("ADD", [second, third], writer.tensor("y", (2, 4))))


def test_neighbours_become_one(sums: Path) -> None:
    graph = pipeline.read(sums)
    assert kinds(graph) == ["litert", "litert", "litert", "add"]
    (part,) = extract.parts(graph, [])
    module = str(extract.module(part))
    assert module.count("call_dps_packed") == 1
    frame = random_frame(graph.inputs, 0)
    np.testing.assert_allclose(in_stages(graph, [], frame)["y"], reference.evaluate(sums, frame)[0], rtol=1e-5)


def test_a_cut_keeps_them_apart(sums: Path) -> None:
    graph = pipeline.read(sums)
    frame = random_frame(graph.inputs, 0)
    cuts = legal_cuts(graph)
    assert {"first", "second", "third"} <= {cut.after for cut in cuts}
    for cut in cuts:
        results = in_stages(graph, [cut.position], frame)
        np.testing.assert_allclose(results["y"], reference.evaluate(sums, frame)[0], rtol=1e-5)
