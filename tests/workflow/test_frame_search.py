"""A build finds a frame that the model takes, and says which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.comparison.random_frame import random_frame
from pipeline.errors import BuildError, ModelError
from pipeline.measure.comparison import compare
from pipeline.split.graph import Graph
from tests.support.onnx_models import node, save

FRAME = {
    "boxes": np.random.default_rng(0).random((1, 20, 4), np.float32),
    "scores": np.random.default_rng(1).random((1, 2, 20), np.float32),
    "threshold": np.array([0.45], np.float32),
}


@pytest.fixture(scope="module")
def detections(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Return non-maximum suppression whose threshold, a share, is an input."""
    return read(tmp_path_factory.mktemp("model"), "boxes scores most threshold", {})


@pytest.mark.parametrize("verify", [None, False])
def test_a_threshold_is_tried_as_a_share(detections: Graph, verify: bool | None) -> None:
    """Non-maximum suppression refuses thresholds that are no shares, as half of the normal numbers are."""
    seed = next(seed for seed in range(20) if random_frame(detections.inputs, seed)["threshold"] < 0)
    bundle = pipeline.build(detections, pipeline.plan(detections, stages=1), seed=seed, verify=verify)
    assert bundle.parity.frame == "floats between 0 and 1"
    assert (bundle.verification is None) == (verify is False)


def test_the_user_s_frame_takes_the_place_of_random_ones(detections: Graph) -> None:
    bundle = pipeline.build(detections, pipeline.plan(detections, stages=1), verify=[FRAME])
    assert bundle.verification is not None
    assert bundle.parity.frame == "the first of your frames"


def test_a_frame_of_the_user_s_that_is_not_valid_is_named(detections: Graph) -> None:
    frames = [FRAME, {**FRAME, "threshold": np.array([2.0], np.float32)}]
    with pytest.raises(BuildError, match=r"the model fails on frame 1 of yours: .*threshold"):
        pipeline.build(detections, pipeline.plan(detections, stages=1), verify=frames)


def test_verify_looks_for_a_frame_too(detections: Graph) -> None:
    assert pipeline.verify(detections).relative == 0


def test_a_model_that_takes_no_random_frame_is_built_and_the_reason_said(tmp_path: Path) -> None:
    graph = read(tmp_path, "boxes scores most wrong", {"wrong": np.array([5], np.float32)})
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1))
    assert bundle.parity is None
    assert "takes no random frame" in bundle.unverified
    assert "--verify" in bundle.unverified
    with pytest.raises(ModelError, match=r"takes no random frame .*--verify"):
        pipeline.build(graph, pipeline.plan(graph, stages=1), verify=True)


def test_outputs_that_overflow_are_compared_on_smaller_values(tmp_path: Path) -> None:
    nodes = [node("Exp", "x", "e"), *[node("Mul", f"{a} {a}", b) for a, b in zip("efghijk", "fghijkl", strict=True)]]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": [1, 500]}, ["l"]))
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1))
    assert bundle.verification is not None


def read(folder: Path, operands: str, constants: dict[str, Any]) -> Graph:
    inputs: dict[str, list[int | str]] = {"boxes": [1, 20, 4], "scores": [1, 2, 20]}
    if not constants:
        inputs["threshold"] = [1]
    nodes = [node("NonMaxSuppression", operands, "y")]
    constants = {"most": np.array([5]), **constants}
    return pipeline.read(save(folder / "m.onnx", nodes, inputs, ["y"], constants, dtypes={"y": 7}))


def test_measuring_takes_a_frame_that_the_model_takes(detections: Graph) -> None:
    """Of the usual frames some have a threshold that is no share."""
    assert min(random_frame(detections.inputs, seed)["threshold"] for seed in range(4)) < 0
    bundle = pipeline.build(detections, pipeline.plan(detections, stages=1))
    comparison = compare(detections, bundle, frames=4, rounds=1)
    assert len(comparison.variants) > 1
    assert comparison.pipelined.frames_per_s > 0
