"""The program of the page on other tool chains makes the inputs that later stages are calibrated with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

import pipeline
from tests.support.onnx_models import KERNEL, node, save
from tests.support.snippets import snippets


def test_calibration(root: Path, tmp_path: Path) -> None:
    nodes = [
        node("Conv", "x w", "c", "conv", pads=[1] * 4), node("Relu", "c", "layer/relu"),
        node("Conv", "layer/relu w", "y", "second", pads=[1] * 4),
    ]  # fmt: skip
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y"], KERNEL))
    pipeline.export_stages(graph, pipeline.plan(graph, stages=2), tmp_path / "parts")
    images = np.random.default_rng(0).standard_normal((3, 1, 4, 6, 6)).astype(np.float32)
    np.save(tmp_path / "images.npy", images)
    page = (root / "docs" / "vendors.md").read_text(encoding="utf-8")
    program = next(snippet.text for snippet in snippets(page) if snippet.title == "calibrate.py")
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "stage0-x.npy"), images[:, 0])
    second = np.load(tmp_path / "stage1-layer_relu.npy")
    assert (second.shape, second.min()) == ((3, 4, 6, 6), 0)
