"""Nine well-known networks in two stages, each by another runtime: the answer is that of the unsplit model."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.frontends import references

SLOW = (pytest.mark.slow, pytest.mark.timeout(900))
RUNTIMES = {"tvm": "cpu", "onnxruntime": "cpu/onnxruntime", "openvino": "cpu/openvino"}
BOARD = Board("two cores", (Device("cpu", cores=(0, 1), runtimes=tuple(RUNTIMES)),))
QUICK = "shufflenet"


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == QUICK else SLOW) for name in models.NAMES])
def test_any_pair_of_runtimes_gives_the_unsplit_answer(name: str, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    file = models.write(name, tmp_path)
    graph = pipeline.read(file)
    frame = np.random.default_rng(0).standard_normal(graph.inputs[0].shape, np.float32)
    ((expected,),) = [references.run(file, {graph.inputs[0].name: frame})[1]]
    # Of the fast one, each runtime in front and behind.
    for pair in (
        zip(RUNTIMES, [*list(RUNTIMES)[1:], "tvm"], strict=True) if name == QUICK else product(RUNTIMES, repeat=2)
    ):
        outputs = _run(graph, [RUNTIMES[runtime] for runtime in pair], frame, tmp_path / "pair.bundle")
        assert np.abs(outputs - expected).max() <= 1e-4 * np.abs(expected).max(), pair


def _run(graph: Any, devices: list[str], frame: np.ndarray, path: Path) -> np.ndarray:
    """Return the output of two stages on these devices, saved and loaded."""
    bundle = pipeline.build(graph, pipeline.plan(graph, BOARD, devices=devices), check=False)
    assert [stage.device for stage in bundle.plan.stages] == devices
    bundle.save(path)
    with pipeline.load(path) as running:
        output: np.ndarray = next(iter(running.submit(frame).outputs().values()))
    return output
