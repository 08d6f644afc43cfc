"""Vela says what Ethos-U runs, in how many cycles: the real compiler (slow)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="the reader of TFLite files is not installed")
from tflite_writer import TfliteWriter

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.measure.cost_cache import CostCache
from pipeline.measure.quotes import find_quotes
from pipeline.measure.quotes.compilers import variable


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("chip", ["ethos-u65-256", "ethos-u85-256"])
def test_the_real_compiler_counts_cycles(chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = Path(os.environ.get(variable("vela")) or ".venv/vela/bin/python").absolute()
    if not python.exists():
        pytest.skip("ethos-u-vela is not installed; run: make vela")
    monkeypatch.setenv(variable("vela"), str(python))
    quotes = {"compiler": "vela", "chip": chip, "clock_hz": 1e9}
    npu = Device(
        "npu", "litert", launch_s=1e-7, bytes_per_s=1e9, flops=1e9, target={"kind": "litert", "quotes": quotes}
    )
    writer = TfliteWriter()
    x = writer.input((1, 16, 16, 8), "int8", 0.05, 0)
    weights = writer.constant(np.ones((8, 3, 3, 8), np.int8), np.full(8, 0.01), np.zeros(8, np.int64))
    bias = writer.constant(np.zeros(8, np.int32), np.full(8, 0.0005), np.zeros(8, np.int64))
    y = writer.tensor((1, 16, 16, 8), "int8", 0.05, 0)
    writer.add("CONV_2D", [x, weights, bias], [y], 3, options="Conv2DOptions", strideH=1, strideW=1)
    z = writer.tensor((1, 16, 16, 8), "float32")
    writer.add("DEQUANTIZE", [y], [z], 2)
    graph = pipeline.read(writer.save(tmp_path / "m.tflite", z))
    answer = find_quotes(graph, Board("b", (Device("cpu", cores=(0,)), npu)), cache=CostCache(tmp_path / "cache"))
    last = graph.operators[-1].group
    assert answer.refusals["npu"] == {last: "its compiler leaves it to the CPU"}
    assert "are ethos-u-vela" in answer.notes[0]
