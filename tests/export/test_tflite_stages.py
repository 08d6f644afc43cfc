"""Stages cut out of TFLite files: run one after the other by LiteRT they compute what the file does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

import pipeline
from pipeline.errors import BuildError
from pipeline.export.stage_export import StageExport
from pipeline.frontends.tflite.reference import open_interpreter
from pipeline.split.cuts import legal_cuts
from pipeline.split.graph import Graph
from tests.export.test_stage_export import in_stages, stages
from tests.frontends.tflite.test_tflite import Writer, byte_convolutions, classifier


def by_litert(export: StageExport, frame: Mapping[str, np.ndarray], _: Sequence[str]) -> list[Any]:
    """Run a stage by LiteRT."""
    interpreter = open_interpreter(model_content=export.tflite())
    for array, detail in zip(frame.values(), interpreter.get_input_details(), strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [np.array(interpreter.get_tensor(detail["index"])) for detail in interpreter.get_output_details()]


def check_equal(graph: Graph, cuts: Sequence[str]) -> None:
    actual, expected = in_stages(graph, cuts, by_litert)
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=0, atol=1e-6)


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    """An operator that LiteRT computes in ours, too, and a tensor that crosses two cuts."""
    writer = Writer(1, 4, 8)
    first = writer.add("RELU", [0], writer.tensor("first", (1, 4, 8)))
    ids = writer.constant("ids", np.array([0, 0, 1, 1], np.int32))
    shape = writer.constant("shape", np.array([4, 8], np.int32))
    rows = writer.add("RESHAPE", [first, shape], writer.tensor("rows", (4, 8)))
    sums = writer.add("SEGMENT_SUM", [rows, ids], writer.tensor("segments", (2, 8)))
    fourfold = writer.add(
        "CONCATENATION", [sums, sums], writer.tensor("fourfold", (4, 8)), options="ConcatenationOptions", axis=0
    )
    mixed = writer.add("ADD", [fourfold, rows], writer.tensor("mixed", (4, 8)), options="AddOptions")
    return writer.save(tmp_path / "segments.tflite", writer.add("TANH", [mixed], writer.tensor("y", (4, 8))))


def test_islands_and_skip_connections(segments: Path) -> None:
    graph = pipeline.read(segments)
    assert graph.islands
    check_equal(graph, ["rows", "segments"])


def test_no_onnx_model_of_an_island(segments: Path) -> None:
    graph = pipeline.read(segments)
    export = stages(graph, ["rows", "segments"])[1][0]
    with pytest.raises(
        BuildError, match="has no form in ONNX: its model is not read from an ONNX file, and it cannot be written"
    ):
        export.onnx()


def test_a_classifier(tmp_path: Path) -> None:
    check_equal(pipeline.read(classifier(tmp_path / "net.tflite")), ["dw", "pool"])


@pytest.fixture
def whole_numbers(tmp_path: Path) -> Graph:
    """Two convolutions of int8."""
    return pipeline.read(byte_convolutions(tmp_path / "bytes.tflite"))


def test_bytes_travel_between_quantised_stages(whole_numbers: Graph) -> None:
    ends = [spec.dtype for _, inputs, _ in stages(whole_numbers, ["q", "first"]) for spec in inputs]
    assert ends == ["float32", "int8", "int8"]
    check_equal(whole_numbers, ["q", "first"])


def test_each_cut_of_a_quantised_file_can_be_exported(tmp_path: Path) -> None:
    """Cuts lie between the file's operators, whose names they have."""
    graph = pipeline.read(byte_convolutions(tmp_path / "m.tflite"))
    assert [operator.name for operator in graph.operators] == ["q", "first", "second", "y"]
    cuts = legal_cuts(graph)
    assert cuts
    for cut in cuts:
        assert all(export.tflite() for export, *_ in stages(graph, [cut.after]))
