"""The light networks: read, and run in one piece, once per process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnxruntime
import pytest

import pipeline
from pipeline.split.graph import Graph


@dataclass(frozen=True)
class Network:
    """A network, a frame, and what the frame gives in the unsplit model and in ONNX Runtime."""

    graph: Graph
    frame: np.ndarray
    unsplit: np.ndarray
    onnxruntime: np.ndarray
    parameter_bytes: int

    def check(self, **plan_options: Any) -> None:
        """Cut, build and stream as `pipeline.plan` is told, and compare the result."""
        answer, _ = run(self.graph, [self.frame], **plan_options)
        expect(answer, self.unsplit, 1e-5)
        expect(answer, self.onnxruntime, 1e-4)


@pytest.fixture(scope="session")
def network() -> Callable[[str], Network]:
    """Return the function that makes a network by its name."""
    return _network


# Only the last one: the largest takes a gigabyte.
@lru_cache(maxsize=1)
def _network(name: str) -> Network:
    with tempfile.TemporaryDirectory() as folder:
        file = models.write(name, Path(folder))
        graph = pipeline.read(file)
        frame = np.random.default_rng(0).standard_normal(graph.inputs[0].shape, np.float32)
        reference = _run_onnxruntime(file, frame)
    _expect_spread(reference)
    total, nbytes = run(graph, [frame], stages=1)
    return Network(graph, frame, total, reference, nbytes)


def _expect_spread(answer: np.ndarray) -> None:
    """A comparison is worth something only if answers are neither all alike nor out of range."""
    largest = np.abs(answer).max()
    assert 0.01 < largest < 1e4
    assert answer.std() > largest / 100
    assert len(np.unique(answer)) > answer.size / 2


def _run_onnxruntime(file: Path, frame: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    result: np.ndarray = session.run(None, {session.get_inputs()[0].name: frame})[0]
    return result


def run(graph: Graph, frames: Sequence[np.ndarray], **plan_options: Any) -> tuple[np.ndarray, int]:
    """Return the last frame's result from the pipeline, and the size of all stages' parameters."""
    bundle = pipeline.build(graph, pipeline.plan(graph, **plan_options), check=False)
    with pipeline.load(bundle) as running:
        results = list(running.map(frames))
    nbytes = sum(array.nbytes for code in bundle.codes if code is not None for array in code.parameters.values())
    return results[-1], nbytes


def expect(outputs: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Assert that no element differs by more than `tolerance` of the largest value."""
    assert outputs.shape == expected.shape
    largest = np.abs(expected).max()
    assert np.isfinite(outputs).all()
    assert np.abs(outputs - expected).max() <= tolerance * largest
