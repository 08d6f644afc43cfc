"""Each device of each board runs something of four kinds of model, or the plan says why not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import boards
import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.errors import PlanError
from pipeline.split.graph import Graph
from pipeline.split.planning.advice.explanation import explain
from pipeline.split.planning.planner import Planner
from tests.support import yolo
from tests.support.onnx_models import node, save, weights

NAMES = [name for name in boards.names() if name != "host"]
KINDS = ("float CNN", "int8 CNN", "transformer", "detector")


def write_cnn(path: Path) -> Path:
    """Write three convolutions and a dense layer, as ONNX."""
    nodes = [
        node("Conv", "x w0", "a", "conv0", pads=[1] * 4),
        node("Relu", "a", "b", "relu0"),
        node("Conv", "b w1", "c", "conv1", pads=[1] * 4),
        node("Relu", "c", "d", "relu1"),
        node("Conv", "d w1", "e", "conv2", pads=[1] * 4),
        node("GlobalAveragePool", "e", "f", "mean"),
        node("Flatten", "f", "g", "flat"),
        node("Gemm", "g w2", "y", "dense"),
    ]
    constants = {"w0": weights(16, 3, 3, 3) / 5, "w1": weights(16, 16, 3, 3) / 12, "w2": weights(16, 16) / 4}
    return save(path, nodes, {"x": (1, 3, 16, 16)}, ["y"], constants)


def write_transformer(path: Path) -> Path:
    """Write one block of attention and normalisation, as ONNX."""
    nodes = [
        *(node("MatMul", f"x {name}", f"{name}x", name) for name in "qkv"),
        node("Transpose", "kx", "kt", "transpose", perm=[0, 2, 1]),
        node("MatMul", "qx kt", "scores", "scores"),
        node("Softmax", "scores", "shares", "softmax", axis=-1),
        node("MatMul", "shares vx", "mix", "mix"),
        node("Add", "mix x", "sum", "residual"),
        node("LayerNormalization", "sum scale bias", "y", "norm", axis=-1),
    ]
    constants = {name: weights(32, 32) / 6 for name in "qkv"} | {"scale": weights(32), "bias": weights(32)}
    return save(path, nodes, {"x": (1, 8, 32)}, ["y"], constants)


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graph]:
    """The four models, as graphs."""
    pytest.importorskip("onnxruntime")
    from pipeline.quantization.quantize import quantize

    folder = tmp_path_factory.mktemp("kinds")
    cnn, rounded = write_cnn(folder / "cnn.onnx"), folder / "int8.onnx"
    quantize(cnn, [{"x": weights(1, 3, 16, 16, seed=seed)} for seed in range(4)], rounded, power_of_two=True)
    paths = (cnn, rounded, write_transformer(folder / "transformer.onnx"), yolo.write(folder / "yolo.onnx", 32))
    return dict(zip(KINDS, map(pipeline.read, paths), strict=True))


def runs(planner: Planner, device: Device) -> bool:
    return bool(np.isfinite(planner.seconds_anywhere(device)).any())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.one_in(3)
def test_each_device_is_usable_or_refused_with_a_reason(graphs: dict[str, Graph], name: str) -> None:
    for kind, graph in graphs.items():
        planner = Planner(graph, boards.get(name))
        idle = [device for device in planner.board.devices if not runs(planner, device)]
        notes = explain(planner, planner.plan(stages=1)).help if idle else ()
        for device in planner.board.devices:
            if device in idle:
                assert any(note.startswith((f"{device.name} runs", f"{device.name} cannot")) for note in notes), kind
            try:
                plan = planner.plan(devices=[device.name])
            except PlanError as error:
                assert device.name in str(error), (kind, error)  # noqa: PT017 - both outcomes are right
            else:
                assert plan.stages[0].device == device.name


@pytest.mark.parametrize("name", [name for name in NAMES if {"vta"} & {d.kind for d in boards.get(name).devices}])
def test_each_vta_takes_the_convolutions_of_a_network_for_it(graphs: dict[str, Graph], name: str) -> None:
    """A KV260 had no target for its VTA, which was never used, and nothing said so."""
    planner = Planner(graphs["int8 CNN"], boards.get(name))
    (vta,) = (device for device in planner.board.devices if device.kind == "vta")
    usable = np.isfinite(planner.seconds_anywhere(vta))
    names = [operator.name for operator in planner.graph.operators if usable[operator.group]]
    assert any("conv1" in operator for operator in names), names


def test_a_device_that_runs_nothing_says_what_it_lacks(graphs: dict[str, Graph]) -> None:
    chip = Device("chip", "vendor", memory="chip", families=("convolution", "matmul"), dtypes=("int8",))
    board = Board("b", (Device("cpu"), chip), (Link(("host", "chip"), 1e9),))
    planner = Planner(graphs["transformer"], board)
    (note,) = (note for note in explain(planner, planner.plan()).help if note.startswith("chip"))
    assert note.startswith("chip runs nothing of this model: it has no ")
    assert "it has no tensors of float32 (4 groups)" in note
    assert "it has no operators of normalization" in note
