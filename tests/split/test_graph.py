"""A graph says what a model has: names, shapes, bytes, operations, in an order in which it can run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import pipeline
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import ModelError
from pipeline.split.graph import Graph
from tests.support.onnx_models import IMAGE, check_outputs, node, save, weights
from tests.support.random_models import random_model


def operation(path: Path, kind: str, **attributes: Any) -> int:
    """Return the operations of the one operator of a kind."""
    graph = pipeline.read(path)
    (operator,) = [operator for operator in graph.operators if operator.kind == kind]
    return operator.flops


@pytest.mark.parametrize(
    ("operator", "shape", "constants", "expected"),
    [
        pytest.param(
            node("Conv", "x w", "y", strides=[2, 2]), (1, 3, 9, 9), {"w": weights(8, 3, 3, 3)},
            ("conv2d", 2 * 3 * 3 * 3 * 8 * 4 * 4), id="conv",
        ),
        pytest.param(
            node("Conv", "x w", "y", group=4, pads=[1] * 4), (2, 8, 5, 5), {"w": weights(12, 2, 3, 3)},
            ("conv2d", 2 * 2 * (2 * 3 * 3) * 12 * 5 * 5), id="grouped conv, batch 2",
        ),
        pytest.param(
            node("Conv", "x w", "y"), (1, 3, 9), {"w": weights(8, 3, 3)},
            ("conv1d", 2 * 3 * 3 * 8 * 7), id="conv of one dimension",
        ),
        pytest.param(
            node("ConvTranspose", "x w", "y", strides=[2, 2]), (1, 4, 5, 5), {"w": weights(4, 6, 2, 2)},
            ("conv2d_transpose", 2 * (4 * 5 * 5) * 6 * 2 * 2), id="transposed conv",
        ),
        pytest.param(
            node("ConvTranspose", "x w", "y", group=2), (1, 4, 5, 5), {"w": weights(4, 3, 2, 2)},
            ("conv2d_transpose", 2 * (4 * 5 * 5) * 3 * 2 * 2), id="grouped transposed conv",
        ),
        pytest.param(
            node("MatMul", "x w", "y"), (2, 5, 7), {"w": weights(7, 11)},
            ("matmul", 2 * 2 * 5 * 7 * 11), id="matmul",
        ),
        pytest.param(
            node("MaxPool", "x", "y", kernel_shape=[3, 2], strides=[2, 2]), (1, 4, 9, 8), {},
            ("max_pool2d", 3 * 2 * 4 * 4 * 4), id="pool",
        ),
        pytest.param(
            node("GlobalAveragePool", "x", "y"), (1, 4, 9, 8), {}, ("mean", 4 * 9 * 8), id="global pool",
        ),
        pytest.param(node("Relu", "x", "y"), (3, 5), {}, ("relu", 15), id="relu"),
        pytest.param(node("Transpose", "x", "y"), (3, 5), {}, ("permute_dims", 0), id="transpose"),
        pytest.param(
            node("ReduceMax", "x", "y", axes=[1], keepdims=0), (3, 5), {}, ("max", 15), id="reduction",
        ),
    ],
)  # fmt: skip
def test_operations_by_hand(
    tmp_path: Path,
    operator: Any,
    shape: tuple[int, ...],
    constants: dict[str, Any],
    expected: tuple[str, int],
) -> None:
    kind, flops = expected
    assert operation(save(tmp_path / "m.onnx", [operator], {"x": shape}, ["y"], constants), kind) == flops


def test_names_shapes_and_bytes(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w b", "features", "first", strides=[2, 2]), node("Flatten", "features", "y", "second")]
    constants = {"w": weights(8, 4, 2, 2), "b": weights(8)}
    graph = check_outputs(save(tmp_path / "little.onnx", nodes, IMAGE, ["y"], constants))
    assert graph.name == "little"
    assert graph.inputs == (TensorSpec("x", (1, 4, 6, 6)),)
    assert graph.outputs == (TensorSpec("y", (1, 72)),)
    assert [(each.name, each.kind, each.inputs, each.outputs) for each in graph.operators] == [
        ("first", "conv2d", ("x",), ("features",)),
        ("second", "reshape", ("features",), ("y",)),
    ]
    assert graph.tensors["features"] == TensorSpec("features", (1, 8, 3, 3), "float32")
    assert graph.tensors["features"].nbytes == 4 * 8 * 9
    assert [each.parameter_bytes for each in graph.operators] == [4 * 8 * 4 * 4 + 4 * 8, 0]
    assert graph.parameter_bytes == 4 * 8 * 4 * 4 + 4 * 8
    assert graph.flops == sum(each.flops for each in graph.operators) > 0


@pytest.mark.parametrize("dtype", ["FLOAT16", "DOUBLE", "INT32", "INT8", "UINT8", "BOOL"])
def test_dtypes(tmp_path: Path, dtype: str) -> None:
    number = getattr(TensorProto, dtype)
    kind = "Not" if dtype == "BOOL" else "Max"
    nodes = [node(kind, "x" if dtype == "BOOL" else "x x", "y")]
    path = save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"], dtypes={"x": number, "y": number})
    graph = pipeline.read(path)
    expected = {"FLOAT": "float32", "DOUBLE": "float64"}.get(dtype, dtype.lower())
    assert {spec.dtype for spec in graph.tensors.values()} == {expected}
    assert graph.tensors["y"].nbytes == 6 * np.dtype(expected).itemsize


@pytest.mark.parametrize(
    "name", ["conv/weights:0", "features.0.conv", "123", "0", "a b", "relu", "main", "ünï", "x:relu", "\"'"]
)
def test_names_of_any_kind(tmp_path: Path, name: str) -> None:
    from onnx import helper

    nodes = [
        helper.make_node("Relu", [f"{name}in"], [name], name=f"{name}op"),
        helper.make_node("Sigmoid", [name], [f"{name}out"]),
    ]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {f"{name}in": (2, 3)}, [f"{name}out"]))
    assert list(graph.tensors) == [f"{name}in", name, f"{name}out"]
    assert [operator.name for operator in graph.operators] == [f"{name}op", f"{name}out"]


def test_operators_of_one_name_stay_apart(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "a", "b"), node("Sigmoid", "a", "b"), node("Tanh", "b", "y", "b2")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (2,)}, ["y"]))
    assert [operator.name for operator in graph.operators] == ["b", "b2", "y"]


def test_several_inputs_and_outputs_keep_their_order(tmp_path: Path) -> None:
    nodes = [node("Add", "b a", "s"), node("Neg", "c", "n"), node("Mul", "s n", "p")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"c": (3,), "a": (3,), "b": (3,)}, ["p", "n", "s"]))
    assert [spec.name for spec in graph.inputs] == ["c", "a", "b"]
    assert [spec.name for spec in graph.outputs] == ["p", "n", "s"]


def test_operators_with_several_results(tmp_path: Path) -> None:
    nodes = [
        node("Split", "x sizes", "left middle right", "split", axis=1),
        node("Add", "left right", "sum"),
        node("TopK", "middle k", "values indices", "best"),
        node("Mul", "sum values", "y"),
    ]
    constants = {"sizes": np.array([2, 2, 2]), "k": np.array([2])}
    dtypes = {"indices": TensorProto.INT64}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (3, 6)}, ["y", "indices"], constants, dtypes=dtypes))
    assert [(each.name, each.kind, each.outputs) for each in graph.operators if len(each.outputs) > 1] == [
        ("split", "split", ("left", "middle", "right")),
        ("best", "topk", ("values", "indices")),
    ]
    assert graph.tensors["indices"].dtype == "int64"


def test_a_result_that_nothing_reads_is_left_out(tmp_path: Path) -> None:
    nodes = [node("TopK", "x k", "values unread", "best"), node("Split", "values sizes", "unread2 y", axis=0)]
    constants = {"k": np.array([2]), "sizes": np.array([1, 2])}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (3, 6)}, ["y"], constants))
    assert list(graph.tensors) == ["x", "values", "y"]


@pytest.mark.parametrize("seed", range(8))
def test_operators_are_in_topological_order_and_groups_side_by_side(tmp_path: Path, seed: int) -> None:
    graph = pipeline.read(random_model(tmp_path / "m.onnx", seed, steps=20))
    known_names = {spec.name for spec in graph.inputs}
    for operator in graph.operators:
        assert known_names.issuperset(operator.inputs)
        assert known_names.isdisjoint(operator.outputs)
        known_names.update(operator.outputs)
    assert known_names == set(graph.tensors)
    groups = [operator.group for operator in graph.operators]
    assert groups == sorted(groups)
    assert set(groups) == set(range(len(graph.group_ends)))


def test_the_digest_is_the_structure_s(tmp_path: Path) -> None:
    def graph(shape: tuple[int, ...] = (2, 3), kind: str = "Relu", tensor: str = "h", seed: int = 0) -> Graph:
        nodes = [node(kind, "x", tensor), node("Add", f"{tensor} k", "y")]
        return pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": shape}, ["y"], {"k": weights(3, seed=seed)}))

    assert graph().digest == graph().digest
    assert graph().digest == graph(seed=1).digest, "other parameters, the same plan"
    variants = [graph(), graph(shape=(1, 3)), graph(kind="Tanh"), graph(tensor="g")]
    assert len({each.digest for each in variants}) == 4


def test_a_symbolic_shape_inside_is_named(tmp_path: Path) -> None:
    """The number of positive elements is known only when the model runs."""
    nodes = [node("NonZero", "x", "places"), node("Cast", "places", "y", to=TensorProto.FLOAT)]
    path = save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"])
    with pytest.raises(ModelError, match="'places' depends on"):
        pipeline.read(path, fallback=False)
