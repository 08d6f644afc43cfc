"""Long chains of quantised operators, which TVM's fusion makes one function of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
from tflite_writer import TfliteWriter

import pipeline


def test_a_chain_of_quantised_operators_is_compiled_in_seconds(tmp_path: Path) -> None:
    """A pose network's map of distances, nested into one expression, did not end in ten minutes."""
    writer = TfliteWriter()
    shape = (1, 17, 3)
    last = writer.input(shape, "int8", 0.04, 3)
    centre = writer.constant(np.arange(51).reshape(shape).astype(np.int8), 0.03, -2)
    for _ in range(2):
        difference, square = writer.tensor(shape, "int8", 0.05, 1), writer.tensor(shape, "int8", 0.06, -3)
        writer.add("SUB", [last, centre], [difference], options="SubOptions")
        writer.add("MUL", [difference, difference], [square], options="MulOptions")
        last = square
    graph = pipeline.read(writer.save(tmp_path / "chain.tflite", last))
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1))
    assert bundle.verification is None or bundle.verification.largest_error == 0
