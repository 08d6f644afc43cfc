"""Loops of a known number of steps become the nodes of their steps, so that TVM compiles them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import pipeline
from pipeline.errors import ModelError
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

FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64


def value(name: str, dtype: int = FLOAT, shape: Sequence[int] | None = None) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def loop_body(nodes: Sequence[Any], outputs: Sequence[str], constants: dict[str, np.ndarray] | None = None) -> Any:
    """Return a body with one state, ``h``, whose condition is the first output."""
    inputs = [value("i", INT64, []), value("c", BOOL, []), value("h", FLOAT, [2, 3])]
    results = [value(outputs[0], BOOL, []), *map(value, outputs[1:])]
    tensors = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    return helper.make_graph(list(nodes), "body", inputs, results, tensors)


STEP = [
    node("MatMul", "h w", "m"),
    node("Tanh", "m", "next"),
    node("Cast", "i", "n", to=FLOAT),
    node("Add", "next n", "part"),
]
"""What reads the number of the step, and a weight outside of the loop."""


def check_without_fallback(path: Path, operators: int) -> None:
    graph = pipeline.read(path, fallback=False)
    assert len(graph.operators) == operators
    values = frame(graph)
    assert_close(in_stages(graph, [], values), by_onnxruntime(path, values))


def test_a_counted_loop(tmp_path: Path) -> None:
    """As exporters of PyTorch write ``for``: the condition is handed on."""
    body = loop_body([*STEP, node("Identity", "c", "go")], ["go", "next", "part"])
    nodes = [helper.make_node("Loop", ["count", "yes", "x"], ["y", "all"], body=body), node("Relu", "all", "z")]
    constants = {"count": np.array(3), "yes": np.array(True), "w": weights(3, 3)}
    # Of each step: a product, tanh, a sum and a row of the stack, which is then joined and clipped.
    check_without_fallback(save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y", "z"], constants), 3 * 4 + 2)


def test_a_loop_that_counts_itself(tmp_path: Path) -> None:
    """As ``while``: without a limit, the body computes whether it goes on, of a number that it carries."""
    body = helper.make_graph(
        [node("Add", "k one", "k2"), node("Less", "k2 four", "go"), node("MatMul", "h w", "next")],
        "body",
        [value("i", INT64, []), value("c", BOOL, []), value("k", INT64, []), value("h", FLOAT, [2, 3])],
        [value("go", BOOL), value("k2", INT64), value("next")],
        [numpy_helper.from_array(np.array(1), "one")],
    )
    nodes = [helper.make_node("Loop", ["", "yes", "zero", "x"], ["last", "y"], body=body)]
    constants = {"yes": np.array(True), "zero": np.array(0), "four": np.array(4), "w": weights(3, 3)}
    check_without_fallback(save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"], constants), 4)


def test_loops_in_a_loop(tmp_path: Path) -> None:
    """Names inside are used by each step; a choice by the number of the step is made."""
    branches = [helper.make_graph([node(kind, "h", "chosen")], kind, [], [value("chosen")]) for kind in ("Tanh", "Neg")]
    inner_body = helper.make_graph(
        [node("Add", "g h", "g2"), node("Identity", "c2", "go2")],
        "inner",
        [value("j", INT64, []), value("c2", BOOL, []), value("g", FLOAT, [2, 3])],
        [value("go2", BOOL), value("g2")],
    )
    body = loop_body(
        [
            node("Equal", "i zero", "first"),
            helper.make_node("If", ["first"], ["picked"], then_branch=branches[0], else_branch=branches[1]),
            helper.make_node("Loop", ["two", "", "picked"], ["next"], body=inner_body),
            node("Identity", "c", "go"),
        ],
        ["go", "next"],
        {"two": np.array(2), "zero": np.array(0)},
    )
    nodes = [helper.make_node("Loop", ["two", "", "x"], ["y"], body=body)]
    # Twice: a function, and two sums.
    path = save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"], {"two": np.array(2)})
    check_without_fallback(path, 2 * 3)


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("backwards", [0, 1])
def test_a_scan(tmp_path: Path, backwards: int, opset: int) -> None:
    """Over the second axis, in both directions, stacked along the last one."""
    body = helper.make_graph(
        [node("Add", "h e", "next"), node("Mul", "next e", "part")],
        "body",
        [value("h", FLOAT, [2, 3]), value("e", FLOAT, [2, 3])],
        [value("next"), value("part")],
    )
    options = {"scan_input_axes": [1], "scan_input_directions": [backwards]}
    options |= {"scan_output_axes": [-1], "scan_output_directions": [backwards]}
    nodes = [helper.make_node("Scan", ["x", "s"], ["y", "all"], body=body, num_scan_inputs=1, **options)]
    path = save(tmp_path / "m.onnx", nodes, {"x": (2, 3), "s": (2, 4, 3)}, ["y", "all"], opset=opset)
    check_without_fallback(path, 4 * 4 + 1)


def test_a_sequence_that_a_loop_fills(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Tanh", "h", "next"), node("SequenceInsert", "parts next", "more"), node("Identity", "c", "go")],
        "body",
        [
            value("i", INT64, []),
            value("c", BOOL, []),
            value("h", FLOAT, [2, 3]),
            helper.make_tensor_sequence_value_info("parts", FLOAT, None),
        ],
        [value("go", BOOL), value("next"), helper.make_tensor_sequence_value_info("more", FLOAT, None)],
    )
    nodes = [
        node("SequenceEmpty", "", "none"),
        helper.make_node("Loop", ["three", "", "x", "none"], ["h3", "filled"], body=body),
        node("ConcatFromSequence", "filled", "y", axis=0),
    ]
    check_without_fallback(save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"], {"three": np.array(3)}), 4)


@pytest.mark.parametrize("count", [65, None])
def test_other_loops_stay(tmp_path: Path, count: int | None) -> None:
    """Those of many steps, and of a number that comes with a frame; what follows is compiled."""
    body = loop_body([*STEP, node("Identity", "c", "go")], ["go", "next", "part"])
    nodes = [helper.make_node("Loop", ["count", "yes", "x"], ["s", "all"], body=body), node("Relu", "s", "y")]
    constants = {"yes": np.array(True), "w": weights(3, 3)} | ({} if count is None else {"count": np.array(count)})
    inputs: dict[str, Sequence[int]] = {"x": (2, 3)} | ({"count": ()} if count is None else {})
    path = save(tmp_path / "m.onnx", nodes, inputs, ["y"], constants, dtypes={"count": INT64})
    graph = check_outputs(path)
    assert [island.operators for island in graph.islands] == [("Loop (s)",)]
    assert kinds(graph)[-1] == "relu"
    with pytest.raises(ModelError, match="Loop"):
        pipeline.read(path, fallback=False)


def test_what_many_steps_stack(tmp_path: Path) -> None:
    body = loop_body([*STEP, node("Identity", "c", "go")], ["go", "next", "part"])
    nodes = [helper.make_node("Loop", ["count", "", "x"], ["s", "all"], body=body), node("Relu", "all", "y")]
    constants = {"w": weights(3, 3), "count": np.array(100)}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"], constants))
    assert graph.outputs[0].shape == (100, 2, 3)
    assert kinds(graph)[-1] == "relu"


def test_a_loop_that_changes_a_shape(tmp_path: Path) -> None:
    """What it carries has one row more with each step: only ONNX Runtime reads that, but not what keeps its shape."""
    body = helper.make_graph(
        [node("Concat", "g h", "g2", axis=0), node("Tanh", "h", "h2"), node("Identity", "c", "go")],
        "body",
        [value("i", INT64, []), value("c", BOOL, []), value("g", FLOAT, [2, 3]), value("h", FLOAT, [2, 3])],
        [value("go", BOOL), value("g2"), value("h2")],
    )
    nodes = [
        helper.make_node("Loop", ["count", "", "x", "x"], ["rows", "s"], body=body),
        node("ReduceSum", "rows", "sum"),
        node("Reshape", "sum one", "total"),
        node("Relu", "s", "r"),
        node("Add", "total r", "y"),
    ]
    constants = {"count": np.array(70), "one": np.array([1])}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"], constants))
    assert [island.operators for island in graph.islands] == [("Loop (rows)", "ReduceSum (sum)", "Reshape (total)")]
    assert kinds(graph)[-2:] == ["relu", "add"]


def test_many_steps_of_a_large_body_stay(tmp_path: Path) -> None:
    many = [node("Tanh", f"t{number}", f"t{number + 1}") for number in range(20)]
    body = loop_body([node("Abs", "h", "t0"), *many, node("Identity", "c", "go")], ["go", "t20"])
    nodes = [helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"], {"count": np.array(64)}))
    assert len(graph.islands) == 1
