"""Steps on a device of another machine, which workers here borrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device, Link
from tests.support.onnx_models import node, save, weights

BOARD = Board(
    "two machines", (Device("cpu", cores=(0, 1)), Device("far", memory="far")), (Link(("host", "far"), 1e9, 1e-5),)
)


@pytest.fixture
def bundle(tmp_path: Path) -> pipeline.Bundle:
    """Two workers with cores here, which borrow the other device in the middle of each frame."""
    nodes = [
        node("Conv", "data w", "c1", "conv1", pads=[1, 1, 1, 1]),
        node("Conv", "c1 w", "c2", "conv2", pads=[1, 1, 1, 1]),
        node("Conv", "c2 w", "y", "conv3", pads=[1, 1, 1, 1]),
    ]
    model = save(tmp_path / "net.onnx", nodes, {"data": (1, 4, 8, 8)}, ["y"], {"w": weights(4, 4, 3, 3)})
    graph = pipeline.read(model)
    plan = pipeline.plan(graph, BOARD, cuts=["conv1", "conv2"], devices=["cpu", "far", "cpu"])
    return pipeline.build(graph, plan.join("stage0", "stage2", cores=(0, 1), replicas=2))


def stream(bundle: pipeline.Bundle, **options: Any) -> list[np.ndarray]:
    frames = [weights(1, 4, 8, 8, seed=seed) for seed in range(6)]
    with pipeline.load(bundle, **options) as running:
        return [np.array(result) for result in running.map(frames)]


def test_workers_borrow_a_device_of_another_machine(bundle: pipeline.Bundle, serve: Callable[..., Any]) -> None:
    server = serve("--accept-uploads")
    here = stream(bundle)
    there = stream(bundle, devices={"far": f"remote://127.0.0.1:{server.port}/cpu"})
    for result, expected in zip(there, here, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
