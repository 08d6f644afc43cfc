"""The demo's network on the simulated Ultra96: the first convolution on the CPU, what follows on VTA."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import boards
import pipeline
from pipeline.quantization.loss import outputs
from pipeline.quantization.quantize import Frames
from pipeline.split.planning.problem.costs import runs

pytestmark = pytest.mark.thorough

BOARD = "ultra96-simulated"
DEVICES = ("cpu", "vta-simulated", "cpu")
FEW = 5
"""Frames of the fast tests: VTA is simulated."""


@pytest.fixture(scope="module")
def bundle(quantized_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network built for the board, as a user would."""
    graph = pipeline.read(quantized_model)
    path = tmp_path_factory.mktemp("vta") / "digits.bundle"
    new_bundle = pipeline.build(graph, pipeline.plan(graph, BOARD, devices=DEVICES))
    assert new_bundle.parity is not None
    assert new_bundle.parity.largest_error == 0
    new_bundle.save(path)
    return path


def test_the_plan_leaves_to_the_cpu_what_vta_cannot_run(quantized_model: Path) -> None:
    graph = pipeline.read(quantized_model)
    plan = pipeline.plan(graph, BOARD)
    first, *_, last = plan.stages
    assert "vta-simulated" in [stage.device for stage in plan.stages]
    assert (first.device, last.device) == ("cpu", "cpu")


def test_first_convolutions_run_on_vta_if_asked(quantized_model: Path, held_out: tuple[Frames, np.ndarray]) -> None:
    board = boards.get(BOARD)
    eager_board = board.with_target(DEVICES[1], {"fewest_channels": 1})
    graph = pipeline.read(quantized_model)
    first = next(each for each in graph.operators if each.kind == "conv2d")
    able = [runs(graph, each.device(DEVICES[1]))[first.group] for each in (board, eager_board)]
    assert able == [False, True]
    cuts = ["image_QuantizeLinear", "block3.relu2_QuantizeLinear"]
    plan = pipeline.plan(graph, eager_board, cuts=cuts, devices=DEVICES)
    # Compared with ONNX Runtime here.
    check(pipeline.build(graph, plan, check=False), quantized_model, held_out[0][:FEW])


def test_results_are_those_of_onnx_runtime(
    bundle: Path, quantized_model: Path, held_out: tuple[Frames, np.ndarray]
) -> None:
    check(bundle, quantized_model, held_out[0][:FEW])


@pytest.mark.slow
def test_all_results_are_those_of_onnx_runtime(
    bundle: Path, quantized_model: Path, digits_onnx: Path, held_out: tuple[Frames, np.ndarray]
) -> None:
    frames, labels = held_out
    right = check(bundle, quantized_model, frames) == labels
    original_right = np.array([each.argmax() for each in outputs(digits_onnx, frames)]) == labels
    assert abs(right.mean() - original_right.mean()) <= 0.01


def check(bundle: Path | pipeline.Bundle, quantized_model: Path, frames: Frames) -> np.ndarray:
    """Compare all values, and return the classes."""
    # Operator by operator, as ONNX defines them: fused, ONNX Runtime's sums overflow on processors without VNNI.
    references = outputs(quantized_model, frames, fused=False)
    with pipeline.load(bundle) as running:
        results = [np.asarray(each, np.float64) for each in running.map(frames)]
    for result, reference in zip(results, references, strict=True):
        np.testing.assert_array_equal(result, reference)
    return np.array([each.argmax() for each in results])
