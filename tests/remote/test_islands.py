"""A stage with operators that ONNX Runtime computes, on a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pipeline
from pipeline.core.board.board import Board, Device
from tests.remote.conftest import Child
from tests.support.onnx_models import by_onnxruntime, node, save


def test_it_is_uploaded_with_the_stage(serve: Callable[..., Child], tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "r"), node("Binarizer", "r", "c", "curve", domain="ai.onnx.ml"), node("Exp", "c", "y")]
    path = save(tmp_path / "m.onnx", nodes, {"x": (4, 4)}, ["y"])
    server = serve("--accept-uploads", "--uploads", tmp_path / "uploads")
    board = Board("two machines", (Device("here"), Device("there", "remote", address=server.address("cpu"))))
    graph = pipeline.read(path)
    plan = pipeline.plan(graph, board, cuts=["r"], devices=["here", "there"])
    bundle: Any = pipeline.build(graph, plan)
    assert [code.runtimes for code in bundle.codes] == [(), ("onnxruntime",)]
    values = {"x": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)}
    with pipeline.load(bundle) as running:
        result = running.submit(values).outputs(60)["y"]
    np.testing.assert_allclose(result, by_onnxruntime(path, values)["y"], rtol=1e-5)
