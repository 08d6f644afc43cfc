"""What is not converted of a TFLite model is computed by LiteRT, and is cut, built, saved and run like any other."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

import pipeline
from pipeline.comparison.random_frame import random_frame
from pipeline.errors import MissingExtra, ModelError
from pipeline.frontends.tflite import reference
from pipeline.system.distribution import install_command
from tests.frontends.tflite.test_tflite import Writer, schema
from tests.support.alive import count_alive
from tests.support.onnx_models import kinds, weights


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    """An operator that nobody converts, between others."""
    writer = Writer(1, 4, 8)
    first = writer.add("RELU", [0], writer.tensor("first", (1, 4, 8)))
    ids = writer.constant("ids", np.array([0, 0, 1, 1], np.int32))
    rows = writer.add(
        "RESHAPE", [first, writer.constant("shape", np.array([4, 8], np.int32))], writer.tensor("rows", (4, 8))
    )
    segments = writer.add("SEGMENT_SUM", [rows, ids], writer.tensor("segments", (2, 8)))
    return writer.save(tmp_path / "sums.tflite", writer.add("TANH", [segments], writer.tensor("y", (2, 8))))


def test_an_operator_between_others(sums: Path) -> None:
    graph = pipeline.read(sums)
    assert kinds(graph) == ["relu", "reshape", "litert", "tanh"]
    (island,) = graph.islands
    assert (island.tensor, island.operators, island.reason) == (
        "segments",
        ("SEGMENT_SUM (segments)",),
        "not supported",
    )
    assert pipeline.verify(graph, sums).relative < 1e-5


def test_a_bundle_in_three_stages(sums: Path, tmp_path: Path) -> None:
    graph = pipeline.read(sums)
    bundle = pipeline.build(graph, pipeline.plan(graph, cuts=["rows", "segments"]))
    assert [code.runtimes for code in bundle.codes] == [(), ("litert",), ()]
    bundle.save(tmp_path / "sums.bundle")
    frames = [random_frame(graph.inputs, seed) for seed in range(10)]
    with pipeline.load(tmp_path / "sums.bundle") as running:
        for frame, outputs in zip(frames, running.map(frames), strict=True):
            np.testing.assert_allclose(outputs, reference.evaluate(sums, frame)[0], rtol=1e-5)


def test_replicas_have_interpreters_of_their_own(sums: Path) -> None:
    graph = pipeline.read(sums)
    count = count_alive("Interpreter")
    plan = pipeline.plan(graph, stages=1)
    plan = dataclasses.replace(plan, stages=(dataclasses.replace(plan.stages[0], replicas=2, cores=()),))
    bundle = pipeline.build(graph, plan)
    frames = [random_frame(graph.inputs, seed) for seed in range(40)]
    with pipeline.load(bundle) as running:
        for frame, outputs in zip(frames, running.map(frames), strict=True):
            np.testing.assert_allclose(outputs, reference.evaluate(sums, frame)[0], rtol=1e-5)
    del bundle, running
    assert count_alive("Interpreter") == count


def test_without_the_runtime_a_bundle_is_refused(sums: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = pipeline.read(sums)
    pipeline.build(graph, pipeline.plan(graph, stages=1)).save(tmp_path / "sums.bundle")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ai_edge_litert" else find(name))
    with pytest.raises(MissingExtra, match=re.escape(f"stage0 needs LiteRT; run: {install_command('litert')}")):
        pipeline.load(tmp_path / "sums.bundle")


def test_custom_operators_that_nobody_has_are_named(tmp_path: Path) -> None:
    writer = Writer(1, 4)
    first = writer.add("RELU", [0], writer.tensor("a", (1, 4)))
    last = writer.add("CUSTOM", [first], writer.tensor("y", (1, 4)))
    writer.model.operatorCodes[-1].customCode = "abacus-custom-op"
    path = writer.save(tmp_path / "m.tflite", last)
    with pytest.raises(ModelError, match=r"neither TVM nor LiteRT has: CUSTOM abacus-custom-op \(y\)"):
        pipeline.read(path)


def test_a_quantised_operator_is_computed_exactly(tmp_path: Path) -> None:
    writer = Writer(1, 64)
    numbers = writer.add("QUANTIZE", [0], writer.tensor("q", (1, 64), "int8", 0.05, 3))
    result = writer.add(
        "SOFTMAX", [numbers], writer.tensor("y", (1, 64), "int8", 1 / 256, -128), options="SoftmaxOptions", beta=1.0
    )
    writer.model.operatorCodes[-1].version = 2
    path = writer.save(tmp_path / "m.tflite", result)
    assert pipeline.verify(pipeline.read(path), path, tolerance=0).largest_error == 0


def hybrid_model(folder: Path, dtype: str) -> Path:
    """Write a model of float operators, then some of which only the weights are quantised, then one more."""
    writer = Writer(1, 64)
    last = writer.add("TANH", [0], writer.tensor("first", (1, 64)))
    generator = np.random.default_rng(0)
    for number in range(20):
        kernel = writer.constant(f"kernel{number}", generator.integers(0, 127, (64, 64)).astype(dtype), 0.002)
        dense = writer.tensor(f"dense{number}", (1, 64))
        last = writer.add("FULLY_CONNECTED", [last, kernel, -1], dense, options="FullyConnectedOptions")
        writer.model.operatorCodes[-1].version = 3
    return writer.save(folder / "hybrid.tflite", writer.add("ABS", [last], writer.tensor("y", (1, 64))))


def test_what_is_quantised_anew_by_litert_is_computed_exactly(tmp_path: Path) -> None:
    """Here with unsigned weights, which no converter takes."""
    path = hybrid_model(tmp_path, "uint8")
    graph = pipeline.read(path)
    # What comes before is rounded by it; and islands are no obstacle to cuts.
    assert kinds(graph) == [*["litert"] * 21, "abs"]
    assert graph.islands[0].operators == ("TANH (first)",)
    assert pipeline.verify(graph, path, tolerance=0).largest_error == 0
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=4))
    assert [code.runtimes for code in bundle.codes] == [("litert",)] * 4
    with pytest.raises(ModelError, match=r"FULLY_CONNECTED \(that makes 'dense0'\): only its weights are quantised"):
        pipeline.read(path, fallback=False)


def test_constants_are_made_as_in_the_file(tmp_path: Path) -> None:
    """LiteRT computes with weights in 16 bits in a way of its own, which others that are restored would not get."""
    writer = Writer(1, 8)
    half = writer.constant("half", weights(8, 8).astype(np.float16))
    kernel = writer.add("DEQUANTIZE", [half], writer.tensor("kernel", (8, 8)))
    dense = writer.add(
        "FULLY_CONNECTED", [0, kernel, -1], writer.tensor("dense", (1, 8)), options="FullyConnectedOptions"
    )
    rows = writer.add(
        "SEGMENT_SUM", [dense, writer.constant("ids", np.array([0], np.int32))], writer.tensor("s", (1, 8))
    )
    last = writer.add(
        "SEGMENT_SUM", [kernel, writer.constant("all", np.zeros(8, np.int32))], writer.tensor("k", (1, 8))
    )
    total = writer.add("ADD", [rows, last], writer.tensor("y", (1, 8)), options="AddOptions")
    path = writer.save(tmp_path / "m.tflite", total)
    graph = pipeline.read(path)
    assert kinds(graph) == ["matmul", "litert", "add"]
    assert pipeline.verify(graph, path).relative < 1e-6


def test_graphs_that_an_operator_runs_go_along(tmp_path: Path) -> None:
    """A loop that doubles its input until the counter is at three."""
    writer = Writer(1, 4)
    start = writer.constant("start", np.array([0], np.int32))
    outputs = [writer.tensor("counter", (1,), "int32"), writer.tensor("doubled", (1, 4))]
    writer.add("WHILE", [start, 0], outputs[0], options="WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2)
    writer.graph.operators[-1].outputs = outputs
    writer.add("TANH", [outputs[1]], writer.tensor("y", (1, 4)))
    main = writer.graph
    for name in ("condition", "body"):
        writer.graph = schema.SubGraphT()
        writer.graph.tensors, writer.graph.operators = [], []
        inputs = [writer.tensor(f"{name}/counter", (1,), "int32"), writer.tensor(f"{name}/data", (1, 4))]
        limit = writer.constant(f"{name}/number", np.array([3 if name == "condition" else 1], np.int32))
        if name == "condition":
            writer.graph.outputs = [writer.add("LESS", [inputs[0], limit], writer.tensor("less", (1,), "bool"))]
        else:
            counter = writer.add("ADD", [inputs[0], limit], writer.tensor("next", (1,), "int32"), options="AddOptions")
            twice = writer.add("ADD", [inputs[1]] * 2, writer.tensor("twice", (1, 4)), options="AddOptions")
            writer.graph.outputs = [counter, twice]
        writer.graph.inputs = inputs
        writer.model.subgraphs.append(writer.graph)
    writer.graph = main
    path = writer.save(tmp_path / "loop.tflite", len(main.tensors) - 1)
    graph = pipeline.read(path)
    assert kinds(graph) == ["litert", "tanh"]
    assert not graph.keeps_state
    assert pipeline.verify(graph, path).relative < 1e-6


def test_other_shapes_reach_into_an_island(tmp_path: Path) -> None:
    writer = Writer(1, 8)
    writer.graph.tensors[0].shapeSignature = [-1, 8]
    kernel = writer.constant("kernel", np.arange(32).reshape(4, 8).astype(np.uint8), 0.01)
    dense = writer.add("FULLY_CONNECTED", [0, kernel, -1], writer.tensor("d", (1, 4)), options="FullyConnectedOptions")
    writer.model.operatorCodes[-1].version = 3
    path = writer.save(tmp_path / "m.tflite", writer.add("TANH", [dense], writer.tensor("y", (1, 4))))
    graph = pipeline.read(path, {"x": (3, 8)})
    assert kinds(graph) == ["litert", "tanh"]
    assert graph.outputs[0].shape == (3, 4)
    assert pipeline.verify(graph, path).relative < 1e-6


def test_without_the_runtime_quantised_operators_are_approximated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(1, 64)
    numbers = writer.add("QUANTIZE", [0], writer.tensor("q", (1, 64), "int8", 0.05, 3))
    result = writer.add("COS", [numbers], writer.tensor("y", (1, 64), "int8", 1 / 128, 0))
    path = writer.save(tmp_path / "m.tflite", result)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ai_edge_litert" else find(name))
    graph = pipeline.read(path)
    assert not graph.islands
    assert "cos" in kinds(graph)
