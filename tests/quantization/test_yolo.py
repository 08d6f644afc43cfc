"""VTA runs the convolutions of a network of YOLOv8n's kind, and the CPU runs operators that VTA has not."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

import boards
import pipeline
from pipeline.quantization import loss
from pipeline.quantization.quantize import quantize
from pipeline.split.graph import Graph
from pipeline.split.offload import verdicts
from pipeline.split.planning.problem.costs import runs
from pipeline.split.planning.problem.group_work import groups
from tests.support.onnx_models import weights

pytest.importorskip("onnxruntime")

BOARD = "ultra96-simulated"
VTA = boards.get(BOARD).device("vta-simulated")
SIZE = 32
FRAMES = [{"image": weights(1, 3, SIZE, SIZE, seed=seed)} for seed in range(4)]


@pytest.fixture(scope="module")
def quantized_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network, quantised for the board."""
    from tests.support import yolo

    folder = tmp_path_factory.mktemp("yolo")
    quantize(yolo.write(folder / "yolo.onnx", SIZE), FRAMES, folder / "int8.onnx", board=BOARD)
    return folder / "int8.onnx"


@pytest.fixture(scope="module")
def graph(quantized_model: Path) -> Graph:
    """Its graph."""
    return pipeline.read(quantized_model)


def test_vta_runs_all_convolutions_but_the_first(graph: Graph) -> None:
    """A sigmoid in the group of each convolution cost VTA all of them, and so 98.6 % of YOLOv8n's work."""
    total, able = 0, 0
    for group, verdict in zip(groups(graph), verdicts(graph, groups(graph), VTA), strict=True):
        work = sum(operator.flops for operator in group if operator.kind == "conv2d")
        total, able = total + work, able + (0 if verdict.reason else work)
    assert able / total > 0.95


def test_what_vta_leaves_to_the_cpu_is_named(graph: Graph) -> None:
    reasons = {each.reason for each in verdicts(graph, groups(graph), VTA)}
    assert {"VTA has no sigmoid", "VTA has no split", "VTA has no resize2d"} <= reasons


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_convolutions_on_vta_and_sigmoids_on_the_cpu_give_what_onnx_runtime_does(
    graph: Graph, quantized_model: Path
) -> None:
    ends = [sum(1 for _ in members) for _, members in groupby(graph.operators, lambda operator: operator.group)]
    able = runs(graph, VTA)
    pieces = [(on_vta, len(list(members))) for on_vta, members in groupby(able)]
    devices = ["vta-simulated" if on_vta else "cpu" for on_vta, _ in pieces]
    assert devices.count("vta-simulated") >= 20
    sizes = np.cumsum([count for _, count in pieces])
    cuts = [sum(ends[:size]) for size in sizes[:-1]]
    plan = pipeline.plan(graph, BOARD, cuts=cuts, devices=devices)
    with pipeline.load(pipeline.build(graph, plan)) as running:
        results = list(running.map(FRAMES[:2]))
    name = graph.outputs[0].name
    for result, reference in zip(results, loss.outputs(quantized_model, FRAMES[:2], fused=False), strict=True):
        np.testing.assert_array_equal(result[name], reference)
