"""Shape arithmetic, constant choices and functions are gone before a model is imported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pipeline
from pipeline.errors import ModelError
from pipeline.export.stage_export import StageExport
from pipeline.split import extract
from tests.support.onnx_models import check_outputs, kinds, node, save, weights


def test_shapes_are_folded(tmp_path: Path) -> None:
    """As exporters flatten: the first extent kept, the others multiplied."""
    nodes = [
        node("Relu", "x", "r"),
        node("Shape", "r", "s"),
        node("Gather", "s zero", "batch", axis=0),
        node("Unsqueeze", "batch zeros", "row"),
        node("Concat", "row rest", "target", axis=0),
        node("Reshape", "r target", "flat"),
        node("MatMul", "flat w", "y"),
    ]
    constants = {"zero": np.array(0), "zeros": np.array([0]), "rest": np.array([-1]), "w": weights(24, 5)}
    path = save(tmp_path / "m.onnx", nodes, {"x": (3, 2, 3, 4)}, ["y"], constants)
    assert kinds(check_outputs(path)) == ["relu", "reshape", "matmul"]


def test_extents_of_weights_are_folded(tmp_path: Path) -> None:
    """Also of those that are too large to be folded themselves."""
    nodes = [
        node("Shape", "w", "s"),
        node("Gather", "s zero", "rows", axis=0),
        node("Unsqueeze", "rows zeros", "target"),
        node("Expand", "x target", "wide"),
        node("MatMul", "wide w", "y"),
    ]
    constants = {"w": weights(80, 60), "zero": np.array(0), "zeros": np.array([0])}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (2, 1)}, ["y"], constants))
    assert not graph.islands


@pytest.mark.parametrize("size", [2, 3])
def test_a_choice_by_the_shape_is_made(tmp_path: Path, size: int) -> None:
    """PyTorch's export of ``squeeze``: an If that asks whether an extent is 1."""
    branches = [
        helper.make_graph(
            [helper.make_node(kind, ["r"], [f"{kind}out"])],
            kind,
            [],
            [helper.make_tensor_value_info(f"{kind}out", TensorProto.FLOAT, [size])],
        )
        for kind in ("Exp", "Neg")
    ]
    nodes = [
        node("Relu", "x", "r"),
        node("Shape", "x", "s"),
        node("Equal", "s two", "is_two"),
        node("Squeeze", "is_two", "choice"),
        helper.make_node("If", ["choice"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    path = save(tmp_path / "m.onnx", nodes, {"x": (size,)}, ["y"], {"two": np.array([2])})
    assert kinds(check_outputs(path))[:2] == ["relu", "exp" if size == 2 else "negative"]


def test_numbers_as_constants(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["a"], value_float=0.5),
        helper.make_node("Constant", [], ["b"], value_floats=[1.0, 2.0, 3.0]),
        node("Mul", "x a", "m"),
        node("Add", "m b", "y"),
    ]
    assert kinds(check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"]))) == ["multiply", "add"]


def test_functions_are_written_out(tmp_path: Path) -> None:
    body = [node("Relu", "a", "b"), node("Add", "b a", "c")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Twice", ["a"], ["c"], body, opsets[:1])
    graph = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["y"], domain="own")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
    )
    model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    assert kinds(check_outputs(tmp_path / "m.onnx")) == ["relu", "add"]


def test_weights_stay_quantised_in_parts(tmp_path: Path) -> None:
    """Vendors' compilers know layers of 8 bits by them."""
    nodes = [
        node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d"),
        node("DequantizeLinear", "k s z", "w"), node("Conv", "d w", "c"), node("QuantizeLinear", "c s z", "e"),
        node("DequantizeLinear", "e s z", "y"),
    ]  # fmt: skip
    constants = {"s": np.float32(0.1), "z": np.int8(0), "k": np.ones((2, 3, 1, 1), np.int8)}
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (1, 3, 4, 4)}, ["y"], constants))
    part = StageExport(graph, extract.groups_part(graph, 0, len(graph.group_ends)))
    assert [n.op_type for n in part.onnx().graph.node].count("DequantizeLinear") == 3


def test_what_nothing_reads_is_left_out(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "y"), node("Det", "x", "unread")]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (2, 2)}, ["y"]), fallback=False)
    assert kinds(graph) == ["relu"]


def test_random_values_are_not_folded(tmp_path: Path) -> None:
    nodes = [node("RandomUniformLike", "k", "noise"), node("Add", "x noise", "y")]
    with pytest.raises(ModelError, match="RandomUniformLike"):
        pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (3,)}, ["y"], {"k": weights(3)}), fallback=False)
