"""Frames whose values a kernel must not use: each fails with a reason, and the runner goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto

import pipeline
from tests.support.onnx_models import node, save
from tests.support.runner import FAILED, OK, Library


def test_indices_and_divisors(library: Library, tmp_path: Path) -> None:
    nodes = [node("Div", "n d", "i"), node("Gather", "x i", "y")]
    dtypes = dict.fromkeys("nd", TensorProto.INT64)
    path = save(tmp_path / "m.onnx", nodes, {"x": (9, 4), "n": (3,), "d": (3,)}, ["y"], dtypes=dtypes)
    graph = pipeline.read(path)
    pipeline.build(graph, pipeline.plan(graph, stages=1), check=False, verify=False).save(tmp_path / "m.bundle")
    x, numbers = np.arange(36, dtype=np.float32).reshape(9, 4), np.array([2, 8, 4])
    frames = [
        {"x": x, "n": numbers * factor, "d": np.array([2, 1, last])}
        for factor, last in ((1, 4), (1, 0), (2, 4), (2**40, 1), (1, 4))
    ]
    with library.open(tmp_path / "m.bundle") as running:
        results = sorted(running.stream(frames), key=lambda result: result.frame)
    assert [result.status for result in results] == [OK, FAILED, FAILED, FAILED, OK]
    assert "a whole number is divided by zero" in results[1].reason
    assert "an index is outside of the 9 places of axis 0" in results[2].reason
    np.testing.assert_array_equal(results[4].arrays["y"], x[[1, 8, 1]])
