"""Operators that TVM cannot import are computed by ONNX Runtime, and are cut, built, saved and run like any other."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.errors import MissingExtra, ModelError, PlanError
from pipeline.executor import source_runtimes
from pipeline.split.cuts import legal_cuts
from tests.support.alive import count_alive
from tests.support.onnx_models import (
    assert_close,
    by_onnxruntime,
    check_outputs,
    frame,
    in_stages,
    kinds,
    node,
    save,
    weights,
)

pytestmark = pytest.mark.thorough

BINARY = [
    node("Conv", "x w", "c", "conv", pads=[1, 1, 1, 1]),
    node("Relu", "c", "r", "relu"),
    node("Reshape", "r shape", "rows", "rows"),
    node("Binarizer", "rows", "l", "binarizer", domain="ai.onnx.ml", threshold=0.25),
    node("Transpose", "l", "s", "turn"),
    node("Relu", "s", "y", "last"),
]
BINARY_CONSTANTS = {
    "w": weights(8, 4, 3, 3),
    "shape": np.array([8, 64]),
}


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    return save(tmp_path / "binarizer.onnx", BINARY, {"x": (1, 4, 8, 8)}, ["y"], BINARY_CONSTANTS)


def test_an_operator_between_others(binary: Path) -> None:
    graph = check_outputs(binary)
    assert kinds(graph) == ["conv2d", "relu", "reshape", "onnxruntime", "permute_dims", "relu"]
    (island,) = graph.islands
    assert (island.tensor, island.operators, island.reason) == ("l", ("Binarizer (binarizer)",), "not supported")
    binarizer = next(operator for operator in graph.operators if operator.name == "binarizer")
    # Its own model is a parameter as any other.
    assert binarizer.parameter_bytes > 100


def test_shapes_behind_an_operator_of_microsoft(tmp_path: Path) -> None:
    """Only ONNX Runtime infers them; the reshape takes its target of one."""
    nodes = [
        node("Attention", "x w b", "a", domain="com.microsoft", num_heads=2),
        node("Shape", "a", "s"),
        node("Gather", "s ends", "target"),
        node("Reshape", "a target", "swapped"),
        node("Relu", "swapped", "y"),
    ]
    constants = {"w": weights(8, 24), "b": weights(24), "ends": np.array([0, 2, 1])}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (1, 4, 8)}, ["y"], constants))
    assert kinds(graph) == ["onnxruntime", "reshape", "relu"]
    assert [island.operators for island in graph.islands] == [("Attention (a)",)]


def test_every_cut(binary: Path) -> None:
    graph = pipeline.read(binary)
    values = frame(graph)
    reference = by_onnxruntime(binary, values)
    cuts = legal_cuts(graph)
    assert {"rows", "binarizer"} <= {cut.after for cut in cuts}
    for cut in cuts:
        assert_close(in_stages(graph, [cut.position], values), reference)


def test_a_bundle_in_three_stages(binary: Path, tmp_path: Path) -> None:
    graph = pipeline.read(binary)
    bundle = pipeline.build(graph, pipeline.plan(graph, cuts=["rows", "binarizer"]))
    assert bundle.parity is not None
    assert [code.runtimes for code in bundle.codes] == [(), ("onnxruntime",), ()]
    (general,) = (stage for stage in bundle.general if stage.stage == "stage1")
    assert [(operator.name, operator.kind) for operator in general.operators] == [("binarizer", "onnxruntime")]
    bundle.save(tmp_path / "binarizer.bundle")
    values = frame(graph)
    with pipeline.load(tmp_path / "binarizer.bundle") as running:
        futures = [running.submit(values) for _ in range(20)]
        for future in futures:
            assert_close(future.outputs(30), by_onnxruntime(binary, values))


def test_no_session_outlives_its_code(binary: Path) -> None:
    graph = pipeline.read(binary)
    count = count_alive("InferenceSession")
    for _ in range(3):
        bundle = pipeline.build(graph, pipeline.plan(graph, stages=1))
        with pipeline.load(bundle) as running:
            running.submit(frame(graph)).outputs(30)
        assert count_alive("InferenceSession") > count
        del bundle, running
        assert count_alive("InferenceSession") == count


def test_the_share_of_the_time_is_measured(binary: Path) -> None:
    graph = pipeline.read(binary)
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1))
    shares = {kernel.operators[0].name: kernel.share for kernel in bundle.general[0].kernels}
    assert 0 < (shares["binarizer"] or 0) <= 1


def test_without_the_runtime_a_bundle_is_refused(binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = pipeline.read(binary)
    pipeline.build(graph, pipeline.plan(graph, stages=1)).save(tmp_path / "binarizer.bundle")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else find(name))
    with pytest.raises(MissingExtra, match="stage0 needs ONNX Runtime; run: pip install 'onnxruntime<"):
        pipeline.load(tmp_path / "binarizer.bundle")
    with pytest.raises(
        ModelError,
        match=r"not supported: ai.onnx.ml.Binarizer \(node 'binarizer'\); ONNX Runtime .* pip install 'onnxruntime<",
    ):
        pipeline.read(binary)


def test_a_runtime_that_nobody_knows() -> None:
    """A manifest's text comes from others, and is imported by no means."""
    assert "'os.path', which this version does not know" in source_runtimes.why_missing(["os.path"])


def test_no_accelerator_takes_it(binary: Path) -> None:
    graph = pipeline.read(binary)
    board = Board("jetson", (Device("cpu"), Device("gpu", "cuda")))
    plan = pipeline.plan(graph, board, cuts=["rows", "binarizer"], devices=["gpu", "cpu", "gpu"])
    assert [stage.device for stage in plan.stages] == ["gpu", "cpu", "gpu"]
    with pytest.raises(PlanError, match="binarizer"):
        pipeline.plan(graph, board, devices=["gpu"])


def test_neighbours_are_islands_of_their_own(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "r"),
        node("Binarizer", "r", "n", "first", domain="ai.onnx.ml"),
        node("Binarizer", "n", "c", "second", domain="ai.onnx.ml"),
    ]
    graph = check_outputs(save(tmp_path / "m.onnx", [*nodes, node("Exp", "c", "y")], {"x": (4, 4)}, ["y"]))
    assert kinds(graph) == ["relu", "onnxruntime", "onnxruntime", "exp"]
    assert [island.operators for island in graph.islands] == [("Binarizer (first)",), ("Binarizer (second)",)]


def choice(condition: str, read: str, result: str, extent: int) -> Any:
    """Return a node that computes exp or neg of an outer tensor."""
    branches = [
        helper.make_graph(
            [helper.make_node(kind, [read], [f"{kind}out"])],
            kind,
            [],
            [helper.make_tensor_value_info(f"{kind}out", TensorProto.FLOAT, [extent])],
        )
        for kind in ("Exp", "Neg")
    ]
    return helper.make_node("If", [condition], [result], "choice", then_branch=branches[0], else_branch=branches[1])


def test_what_lies_between_two_islands_is_compiled(tmp_path: Path) -> None:
    """And keeps the two apart, or their one island would read what it makes."""
    nodes = [
        node("Binarizer", "x", "a", domain="ai.onnx.ml"),
        node("Sigmoid", "a", "s"),
        node("ReduceMax", "s", "m", keepdims=0),
        node("Greater", "m half", "c"),
        choice("c", "a", "z", 4),
        node("Relu", "z", "y"),
    ]
    constants = {"half": np.array(0.5, np.float32)}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (4,)}, ["y"], constants))
    assert [kind for kind in kinds(graph) if kind == "onnxruntime"] == ["onnxruntime"] * 2
    assert [len(island.operators) for island in graph.islands] == [1, 1]


def test_shapes_that_depend_on_values_stay_inside(tmp_path: Path) -> None:
    nodes = [
        node("NonZero", "x", "places"),
        node("Shape", "places", "size"),
        node("ReduceMax", "size", "y", keepdims=0),
    ]
    path = save(tmp_path / "m.onnx", nodes, {"x": (4, 4)}, ["y"], dtypes={"y": TensorProto.INT64})
    graph = check_outputs(path)
    assert kinds(graph) == ["onnxruntime", "max"]
    assert "NonZero (places)" in graph.islands[0].operators


@pytest.mark.parametrize("condition", [True, False])
def test_a_choice_between_two_graphs(tmp_path: Path, condition: bool) -> None:
    nodes = [node("Relu", "x", "r"), choice("c", "r", "z", 2), node("Add", "z x", "y")]
    path = save(tmp_path / "m.onnx", nodes, {"x": (2,), "c": ()}, ["y"], dtypes={"c": TensorProto.BOOL})
    graph = pipeline.read(path)
    assert kinds(graph) == ["relu", "onnxruntime", "add"]
    values = {"x": np.array([0.5, -1], np.float32), "c": np.array(condition)}
    assert_close(in_stages(graph, [], values), by_onnxruntime(path, values))


def test_models_joined_in_a_chain_keep_their_islands(binary: Path) -> None:
    head = [node("Relu", "a", "x", "head")]
    first = save(binary.with_name("first.onnx"), head, {"a": (1, 4, 8, 8)}, ["x"])
    chain = pipeline.chain([first, binary])
    (island,) = chain.islands
    assert island.tensor in chain.tensors


def test_a_shape_as_output(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "y"), node("Shape", "x", "z")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (4, 5)}, ["y", "z"], dtypes={"z": TensorProto.INT64}))
    assert kinds(graph) == ["relu", "constant"]


@pytest.mark.parametrize("option", [[], ["--no-fallback"]])
def test_tvm_says_nothing_of_what_it_cannot_import(binary: Path, root: Path, option: list[str]) -> None:
    command = [sys.executable, "-m", "pipeline.cli", "inspect", os.fspath(binary), *option]
    environment = {**os.environ, "PYTHONPATH": os.fspath(root)}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert (process.returncode, process.stderr.count("\n")) == ((2, 1) if option else (0, 0))
