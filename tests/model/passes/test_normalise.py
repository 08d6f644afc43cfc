"""The clean-up folds constants and batch norms, leaves out what no output needs, and changes no result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import pipeline
from pipeline.errors import ModelError
from tests.support.onnx_models import (
    CONV,
    IMAGE,
    KERNEL,
    NORM,
    batch_norm,
    by_onnxruntime,
    check_outputs,
    frame,
    in_stages,
    kinds,
    node,
    save,
    weights,
)


def test_constants_are_folded(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", "k", "k1", perm=[1, 0]),
        node("Mul", "k1 k1", "k2"),
        node("Sqrt", "k2", "k3"),
        node("Unsqueeze", "k3 axes", "k4"),
        node("Expand", "k4 shape", "k5"),
        node("Add", "x k5", "y"),
    ]
    constants = {"k": weights(5, 3), "axes": np.array([0]), "shape": np.array([2, 3, 5])}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (2, 3, 5)}, ["y"], constants))
    assert kinds(graph) == ["add"]


@pytest.mark.parametrize("dtype", ["FLOAT16", "FLOAT", "DOUBLE", "INT32", "INT64"])
def test_folded_constants_keep_their_dtype(tmp_path: Path, dtype: str) -> None:
    """TVM makes 32 bits of 64 unless it is told."""
    number = getattr(TensorProto, dtype)
    values = np.array([[1, 2, 3]], helper.tensor_dtype_to_np_dtype(number))
    nodes = [node("Mul", "k k", "k2"), node("Transpose", "k2", "k3"), node("Add", "x k3", "y")]
    dtypes = {"x": number, "y": number}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (3, 1)}, ["y"], {"k": values}, dtypes=dtypes))
    assert kinds(graph) == ["add"]
    assert graph.operators[0].parameter_bytes == values.nbytes


def test_a_model_without_an_output_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Relu", "x", "y")], {"x": (2, 3)}, [])
    with pytest.raises(ModelError, match="has no output; there is nothing to run"):
        pipeline.read(path)


def test_constants_without_a_finite_value_are_folded_in_silence(tmp_path: Path) -> None:
    """Each step would let NumPy warn; a signalling NaN does so as soon as it becomes a float64."""
    signalling = np.array([0x7F800001, 0x3F800000], np.uint32).view(np.float32).reshape(1, 2, 1)
    nodes = [
        node("Sqrt", "negative", "nan"),
        node("Mul", "large large", "inf"),
        node("Mul", "x signalling", "scaled"),
        node("Add", "scaled nan", "shifted"),
        node("Add", "shifted inf", "y"),
    ]
    constants = {
        "negative": np.array([-1, 4], np.float32),
        "large": np.array([1e30, 1], np.float32),
        "signalling": signalling,
    }
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (2, 2, 2)}, ["y"], constants))
    assert kinds(graph) == ["multiply", "add", "add"]


def test_a_batch_norm_of_doubles(tmp_path: Path) -> None:
    constants = {name: values.astype(np.float64) for name, values in (NORM | KERNEL).items()}
    nodes = [CONV, batch_norm(1, "c", "n"), node("Relu", "n", "r"), batch_norm(2, "r", "y")]
    dtypes = {"x": TensorProto.DOUBLE, "y": TensorProto.DOUBLE}
    graph = pipeline.read(save(tmp_path / "double.onnx", nodes, IMAGE, ["y"], constants, dtypes=dtypes))
    values = frame(graph)
    output = in_stages(graph, [], values)["y"]
    assert output.dtype == np.float64
    # ONNX Runtime has no convolution of doubles.
    path = save(tmp_path / "single.onnx", nodes, IMAGE, ["y"], NORM | KERNEL)
    reference = by_onnxruntime(path, {"x": values["x"].astype(np.float32)})["y"]
    np.testing.assert_allclose(output, reference, atol=1e-5 * np.abs(reference).max())


def test_operators_without_a_numpy_rule_are_folded_too(tmp_path: Path) -> None:
    nodes = [node("Softmax", "k", "k1"), node("Erf", "k1", "k2"), node("Mul", "x k2", "y")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (3, 5)}, ["y"], {"k": weights(3, 5)}))
    assert kinds(graph) == ["multiply"]


@pytest.mark.parametrize("attributes", [{}, {"epsilon": 0.1}, {"momentum": 0.5}], ids=["plain", "epsilon", "momentum"])
def test_a_batch_norm_vanishes_in_the_convolution_before(tmp_path: Path, attributes: dict[str, float]) -> None:
    nodes = [CONV, batch_norm(1, "c", "n", **attributes), node("Relu", "n", "y")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], NORM | KERNEL))
    assert kinds(graph) == ["conv2d", "add", "relu"]
    assert graph.aliases["c"] == "n"


def test_a_batch_norm_vanishes_in_a_grouped_convolution_with_bias(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w b", "c", group=2, pads=[1, 1, 1, 1]), batch_norm(1, "c", "y")]
    constants = NORM | {"w": weights(4, 2, 3, 3), "b": weights(4, seed=9)}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], constants))
    assert kinds(graph) == ["conv2d", "add"]


def test_chains_of_norms_scales_and_shifts_merge(tmp_path: Path) -> None:
    """Inception v2 and DenseNet of Caffe: batch norm, then a scale and a shift of their own."""
    nodes = [
        CONV,
        batch_norm(1, "c", "n"),
        node("Mul", "n scale", "s"),
        node("Add", "shift s", "t"),
        node("Sub", "t shift", "u"),
        node("Div", "u scale", "v"),
        batch_norm(2, "v", "y"),
    ]
    constants = NORM | KERNEL | {"scale": weights(4, 1, 1, positive=True), "shift": weights(1, 4, 1, 1, seed=3)}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], constants))
    assert kinds(graph) == ["conv2d", "add"]
    assert {graph.aliases[name] for name in "cnstuv"} == {"y"}


def test_a_batch_norm_before_a_convolution_is_one_scale_and_one_shift(tmp_path: Path) -> None:
    nodes = [batch_norm(1, "x", "n"), node("Relu", "n", "r"), node("Conv", "r w", "y", pads=[1, 1, 1, 1])]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], NORM | KERNEL))
    assert kinds(graph) == ["multiply", "add", "relu", "conv2d"]


def test_a_convolution_with_two_readers_keeps_its_weights(tmp_path: Path) -> None:
    nodes = [CONV, batch_norm(1, "c", "n"), node("Add", "n c", "y")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], NORM | KERNEL))
    assert kinds(graph) == ["conv2d", "multiply", "add", "add"]
    assert "c" in graph.tensors


def test_a_convolution_that_is_an_output_keeps_its_weights(tmp_path: Path) -> None:
    nodes = [CONV, batch_norm(1, "c", "y")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["c", "y"], NORM | KERNEL))
    assert kinds(graph) == ["conv2d", "multiply", "add"]


def test_a_batch_norm_of_two_readers_of_one_input_folds_into_each_convolution(tmp_path: Path) -> None:
    nodes = [CONV, node("Conv", "x w", "d", pads=[1, 1, 1, 1]), batch_norm(1, "c", "n"), batch_norm(2, "d", "o"),
             node("Add", "n o", "y")]  # fmt: skip
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], NORM | KERNEL))
    assert sorted(kinds(graph)) == ["add", "add", "add", "conv2d", "conv2d"]


@pytest.mark.parametrize("constant", [weights(6, 1), weights(1, 4, 6, 6), weights(2, 1, 1, 1)], ids=str)
def test_what_is_not_one_value_per_channel_does_not_fold(tmp_path: Path, constant: np.ndarray) -> None:
    nodes = [CONV, node("Mul", "c k", "y")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], KERNEL | {"k": constant}))
    assert kinds(graph) == ["conv2d", "multiply"]


def test_a_division_of_a_constant_by_a_tensor_does_not_fold(tmp_path: Path) -> None:
    nodes = [CONV, node("Exp", "c", "e"), node("Div", "k e", "f"), node("Sub", "k f", "y")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], KERNEL | {"k": weights(1, 4, 1, 1)}))
    assert kinds(graph) == ["conv2d", "exp", "divide", "subtract"]


def test_dropout_is_left_out(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "r"), node("Dropout", "r", "d mask"), node("Sigmoid", "d", "y")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"]))
    assert kinds(graph) == ["relu", "sigmoid"]
    assert graph.aliases["d"] == "r"


def test_dead_operators_and_constants_are_left_out(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "y"), node("Conv", "x w", "unused"), node("Sigmoid", "unused", "also")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], KERNEL))
    assert kinds(graph) == ["relu"]
    assert graph.parameter_bytes == 0


def test_an_input_that_nothing_reads_stays_an_input(tmp_path: Path) -> None:
    """The caller has it and passes it; that no stage asks for it is nobody's error."""
    path = save(tmp_path / "m.onnx", [node("Relu", "x", "y")], {"unread": (3,), "x": (2, 2)}, ["y"])
    graph = check_outputs(path)
    assert [spec.name for spec in graph.inputs] == ["unread", "x"]
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1))
    assert [spec.name for spec in bundle.plan.stages[0].inputs] == ["x"]
    assert bundle.parity.largest_error == 0
