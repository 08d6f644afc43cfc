"""Shapes that are computed, as PyTorch exports them, and operators that TVM imports as kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.support.onnx_models import IMAGE, assert_close, check_outputs, frame, in_stages, kinds, node, save, weights


def test_shape_arithmetic_of_flatten(tmp_path: Path) -> None:
    """x.view(x.size(0), -1): Shape, Gather, Unsqueeze, Concat, Reshape."""
    nodes = [
        node("Relu", "x", "r"),
        node("Shape", "r", "shape"),
        node("Gather", "shape zero", "batch", axis=0),
        node("Unsqueeze", "batch axes", "batch1"),
        node("Concat", "batch1 rest", "target", axis=0),
        node("Reshape", "r target", "flat"),
        node("MatMul", "flat w", "y"),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1]), "w": weights(144, 5)}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (2, 4, 6, 6)}, ["y"], constants))
    assert kinds(graph) == ["relu", "reshape", "matmul"]


def test_shape_arithmetic_of_channel_shuffle(tmp_path: Path) -> None:
    """b, c, h, w = x.shape; x.view(b, 2, c // 2, h, w).transpose(1, 2).reshape(b, c, h, w)."""
    nodes = [
        node("Shape", "x", "shape"),
        *(node("Gather", f"shape i{axis}", f"d{axis}", axis=0) for axis in range(4)),
        node("Div", "d1 i2", "half"),
        *(node("Unsqueeze", f"{name} axes", f"{name}u") for name in ("d0", "d1", "d2", "d3", "half", "i2")),
        node("Concat", "d0u i2u halfu d2u d3u", "five", axis=0),
        node("Concat", "d0u d1u d2u d3u", "four", axis=0),
        node("Reshape", "x five", "a"),
        node("Transpose", "a", "b", perm=[0, 2, 1, 3, 4]),
        node("Reshape", "b four", "y"),
    ]
    constants = {f"i{axis}": np.array(axis) for axis in range(4)} | {"axes": np.array([0])}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], constants))
    assert kinds(graph) == ["reshape", "permute_dims", "reshape"]


def test_shape_arithmetic_of_interpolate(tmp_path: Path) -> None:
    """Upsampling to the size of another tensor: Shape, Slice, Concat, Resize."""
    nodes = [
        node("MaxPool", "x", "small", kernel_shape=[2, 2], strides=[2, 2]),
        node("Shape", "small", "head_shape"),
        node("Slice", "head_shape begin middle axes", "head"),
        node("Shape", "x", "tail_shape"),
        node("Slice", "tail_shape middle end axes", "tail"),
        node("Concat", "head tail", "sizes", axis=0),
        node("Resize", "small - - sizes", "large", mode="nearest", coordinate_transformation_mode="asymmetric",
             nearest_mode="floor"),
        node("Add", "large x", "y"),
    ]  # fmt: skip
    constants = {"begin": np.array([0]), "middle": np.array([2]), "end": np.array([4]), "axes": np.array([0])}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], constants))
    assert kinds(graph) == ["max_pool2d", "resize2d", "add"]


def test_constant_of_shape_is_folded(tmp_path: Path) -> None:
    from onnx import numpy_helper

    value = numpy_helper.from_array(np.array([2], np.float32))
    nodes = [
        node("Shape", "x", "shape"),
        node("ConstantOfShape", "shape", "twos", value=value),
        node("Mul", "x twos", "y"),
    ]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"]))
    assert kinds(graph) == ["multiply"]


@pytest.mark.parametrize(
    "case",
    [
        ("Clip", "h lo hi", {"lo": np.float32(0.1), "hi": np.float32(0.6)}, {}, ["maximum", "minimum"]),
        ("Clip", "h - hi", {"hi": np.float32(0.6)}, {}, ["minimum"]),
        ("Pad", "h p", {"p": np.array([0, 0, 1, 2, 0, 0, 0, 1])}, {}, ["pad"]),
        ("Pad", "h p v", {"p": np.array([0, 0, 1, 2, 0, 0, 0, 1]), "v": np.float32(3)}, {}, ["pad"]),
        ("Pad", "h p", {"p": np.array([0, 0, 1, 2, 0, 0, 2, 1])}, {"mode": "reflect"}, ["pad"]),
        ("Pad", "h p", {"p": np.array([0, 0, 1, 2, 0, 0, 2, 1])}, {"mode": "edge"}, ["pad"]),
        ("Tile", "h p", {"p": np.array([1, 2, 1, 3])}, {}, ["take", "take"]),
        ("Einsum", "h", {}, {"equation": "abcd->adc"}, ["einsum"]),
        ("CumSum", "h p", {"p": np.array(2)}, {"reverse": 1}, ["flip", "cumsum", "flip"]),
        ("Max", "h h2 q", {"q": weights(1, 4, 1, 1)}, {}, ["sigmoid", "maximum", "maximum"]),
        ("Sum", "h h2 q", {"q": weights(6)}, {}, ["sigmoid", "add", "add"]),
    ],
    ids=lambda case: case[0],
)
def test_operators_that_tvm_imports_as_kernels(
    tmp_path: Path, case: tuple[str, str, dict[str, Any], dict[str, Any], list[str]]
) -> None:
    """TVM writes these as kernels of their own beside the function, which could be neither folded nor scheduled."""
    kind, read, constants, attributes, expected = case
    nodes = [
        node("Relu", "x", "h"),
        node("Sigmoid", "x", "h2"),
        node(kind, read, "k", **attributes),
        node("Tanh", "k", "y"),
    ]
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], arrays))
    assert [each for each in kinds(graph) if each not in ("relu", "tanh")] == expected
    assert graph.kernels == {}


@pytest.mark.parametrize("kind", ["Gather", "GatherElements"])
def test_indices_are_normalized_when_the_model_is_read(tmp_path: Path, kind: str) -> None:
    """TVM asks for the shape, and counts negative indices from the end, each time the model runs."""
    indices = np.array([[[[0, -1, 2, -6]]]]) if kind == "GatherElements" else np.array([0, -1, 2, -6])
    nodes = [node("Relu", "x", "r"), node(kind, "r i", "y", axis=3)]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], {"i": indices}))
    assert len(graph.operators) == 2


def test_indices_that_the_caller_gives(tmp_path: Path) -> None:
    """An embedding: the table is a constant, the words are the input."""
    path = save(
        tmp_path / "m.onnx", [node("Gather", "table words", "y")], {"words": (2, 3)}, ["y"], {"table": weights(9, 4)},
        dtypes={"words": TensorProto.INT64},
    )  # fmt: skip
    graph = check_outputs(path)
    assert graph.inputs[0].dtype == "int64"


def test_kernels_go_with_the_stages_that_call_them(tmp_path: Path) -> None:
    """Without such an operator in Relax, the kernel stays one."""
    resize = {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}
    nodes = [
        node("Softmax", "x", "a"),
        node("Resize", "a - - first", "b", **resize),
        node("Softmax", "b", "c"),
        node("Resize", "c - - second", "d", **resize),
        node("Softmax", "d", "y"),
    ]
    constants = {"first": np.array([1, 4, 12]), "second": np.array([1, 4, 3])}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (1, 4, 6)}, ["y"], constants))
    assert kinds(graph) == ["softmax", "resize1d", "softmax", "resize1d", "softmax"]
    assert len(graph.kernels) == 2
    values = frame(graph)
    assert_close(in_stages(graph, list(graph.group_ends[:-1]), values), in_stages(graph, [], values))


def test_constants_are_folded_through_what_would_be_kernels(tmp_path: Path) -> None:
    nodes = [node("Tile", "k p", "t"), node("Mul", "x t", "y")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (4,)}, ["y"], {"k": weights(2), "p": np.array([2])}))
    assert kinds(graph) == ["multiply"]
