"""A trained network of ResNet-50's kind, dead channels and all, is quantised for the board and runs on its VTA."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import boards
import pipeline
from pipeline.demo import digits
from pipeline.quantization import loss
from pipeline.quantization.quantize import Frames, quantize
from pipeline.split.planning.problem.costs import runs

pytestmark = pytest.mark.slow

BOARD = "ultra96-simulated"
DEVICES = ("cpu", "vta-simulated", "cpu")


@pytest.fixture(scope="module")
def trained_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network as ONNX."""
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    pytest.importorskip("onnxruntime")
    from tests.support import resnet

    images, labels = digits.training()
    network = resnet.train(np.concatenate(list(images)), np.asarray(labels))
    units = list(network.units())
    assert len(units) == resnet.CONVOLUTIONS == 53
    dead = [(np.abs(unit.fold()[0]).max((1, 2, 3)) < 1e-6).sum() for unit in units]
    assert sum(dead) > 100
    return resnet.export(network, tmp_path_factory.mktemp("resnet") / "resnet.onnx")


def test_a_trained_resnet_with_dead_channels_runs_on_vta(
    trained_model: Path, training: Frames, held_out: tuple[Frames, np.ndarray], tmp_path: Path
) -> None:
    quantized = tmp_path / "int8.onnx"
    quantize(trained_model, training, quantized, board=BOARD)
    frames, labels = held_out
    quantization_loss = loss.measure_loss(trained_model, quantized, frames[:100], labels[:100])
    assert quantization_loss.accuracy_before is not None
    assert quantization_loss.accuracy_after is not None
    assert quantization_loss.accuracy_before > 0.8
    assert quantization_loss.accuracy_after > quantization_loss.accuracy_before - 0.05

    graph = pipeline.read(quantized)
    assert sum(runs(graph, boards.get(BOARD).device("vta-simulated"))) >= 50
    cuts = ["stem.sums.relu_QuantizeLinear", "scores_QuantizeLinear"]
    plan = pipeline.plan(graph, BOARD, cuts=cuts, devices=DEVICES)
    names = [operator.name for operator in graph.operators]
    first, last = (names.index(name) for name in plan.stages[1].operators)
    assert len({operator.group for operator in graph.operators[first : last + 1]}) >= 50
    with pipeline.load(pipeline.build(graph, plan)) as running:
        results = [np.asarray(each, np.float64) for each in running.map(frames[:4])]
    # Operator by operator, as ONNX defines them: fused, ONNX Runtime's sums overflow on processors without VNNI.
    for result, reference in zip(results, loss.outputs(quantized, frames[:4], fused=False), strict=True):
        np.testing.assert_array_equal(result, reference)
