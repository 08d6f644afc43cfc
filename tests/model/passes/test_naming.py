"""Names of tensors are the model's, and each output is there under its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tvm import relax

import pipeline
from pipeline.errors import ModelError
from pipeline.model.imported_model import ImportedModel
from pipeline.model.passes.normalise import clean
from tests.support.onnx_models import (
    IMAGE,
    KERNEL,
    NORM,
    assert_close,
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
from tests.support.relax_models import module
from tests.support.time_limits import time_limit


def test_an_identity_as_output_has_the_output_s_name(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "r"), node("Identity", "r", "y", "copy")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"]))
    assert [(each.kind, each.outputs) for each in graph.operators] == [("relu", ("y",))]
    assert graph.aliases == {"r": "y"}


def test_two_names_for_one_tensor_are_two_outputs(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "r"), node("Identity", "r", "a"), node("Identity", "r", "b"), node("Dropout", "r", "d")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["b", "r", "a", "d"]))
    assert [spec.name for spec in graph.outputs] == ["b", "r", "a", "d"]
    assert kinds(graph) == ["relu", "astype", "astype", "astype"]
    assert graph.operators[0].outputs == ("r",), "what has its name already keeps it"


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT16])
def test_an_output_that_is_an_input_is_a_copy_of_it(tmp_path: Path, dtype: int) -> None:
    nodes = [node("Identity", "x", "y"), node("Relu", "z", "r")]
    kinds = {"x": dtype, "y": dtype}
    path = save(tmp_path / "m.onnx", nodes, {"x": (2, 3), "z": (2,)}, ["y", "r"], dtypes=kinds)
    graph = check_outputs(path)
    assert [spec.name for spec in graph.outputs] == ["y", "r"]
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=2))
    assert bundle.parity.largest_error == 0


def test_an_input_named_as_output_passes_through(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Relu", "x", "y")], {"x": (2, 2)}, ["x", "y"])
    graph = pipeline.read(path)
    values = frame(graph)
    assert_close(in_stages(graph, [], values), by_onnxruntime(path, values))
    assert pipeline.build(graph, pipeline.plan(graph, stages=1)).parity.largest_error == 0


def test_a_reshape_to_the_same_shape_is_an_alias(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "r"), node("Reshape", "r shape", "s"), node("Sigmoid", "s", "y")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"], {"shape": np.array([-1, 3])}))
    assert kinds(graph) == ["relu", "sigmoid"]
    assert graph.aliases == {"s": "r"}


def test_made_up_names_give_way_to_the_model_s(tmp_path: Path) -> None:
    """An old Softmax becomes reshape, softmax, reshape; on two dimensions only the middle one is left."""
    nodes = [node("Relu", "x", "r"), node("Softmax", "r", "soft", "classes"), node("Neg", "soft", "y")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"], opset=11))
    assert [each.outputs for each in graph.operators] == [("r",), ("soft",), ("y",)]
    assert [each.name for each in graph.operators][1] == "classes"


def test_made_up_names_never_meet_the_model_s(tmp_path: Path) -> None:
    """A convolution with bias that makes 'y' is called 'y:conv2d', unless the model has such a tensor itself."""
    nodes = [
        node("Relu", "x", "y:conv2d"),
        node("Identity", "y:conv2d", "y:conv2d2"),
        node("Conv", "y:conv2d2 w b", "y", pads=[1, 1, 1, 1]),
    ]
    constants = KERNEL | {"b": weights(4)}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], constants))
    assert [call.outputs[0] for each in graph.operators for call in each.calls] == ["y:conv2d", "y:conv2d3", "y"]


def test_lowered_norms_never_take_a_name_of_the_model(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "n:multiply"), batch_norm(1, "n:multiply", "n"), node("Relu", "n", "y")]
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, IMAGE, ["y"], NORM))
    names = [call.outputs[0] for each in graph.operators for call in each.calls]
    assert names == ["n:multiply", "n:multiply2", "n", "y"]


@pytest.mark.parametrize("name", ["lv", "gv", "lv1", "main", "relu"])
def test_an_input_may_be_called_like_tvm_s_own_variables(tmp_path: Path, name: str) -> None:
    nodes = [
        node("Conv", f"{name} w b", "c", pads=[1, 1, 1, 1]),
        node("Softmax", "c", "s", axis=1),
        node("Add", f"s {name}", "y"),
    ]
    constants = KERNEL | {"b": weights(4)}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {name: (1, 4, 6, 6)}, ["y"], constants, opset=11))
    assert [spec.name for spec in graph.inputs] == [name]
    assert len(graph.tensors) == len(graph.operators) + 1


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_a_constant_output_is_made_of_an_input(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Runtimes return it as well; a stage makes its outputs of its inputs."""
    nodes = [node("Relu", "x", "y"), node("Relu", "k", "z"), node("Identity", "z", "copy")]
    constants = {"k": np.asarray(weights(*shape))}
    graph = check_outputs(save(tmp_path / "m.onnx", nodes, {"x": (2,)}, ["z", "y", "copy"], constants))
    assert [spec.name for spec in graph.outputs] == ["z", "y", "copy"]


def test_an_output_of_a_model_without_inputs_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Relu", "k", "z")], {}, ["z"], {"k": weights(2)})
    with pytest.raises(ModelError, match="output 'z' does not depend on an input"):
        pipeline.read(path)


def test_a_model_that_computes_nothing_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Relu", "x", "unused")], {"x": (2,)}, ["x"])
    with pytest.raises(ModelError, match="no operator that an output depends on"):
        pipeline.read(path)


@pytest.mark.parametrize("names", [("t", "t"), ("t", "u", "t")], ids=["copy", "copy of a copy"])
def test_two_variables_of_one_name_are_refused(names: tuple[str, ...]) -> None:
    """A frontend's mistake, which had the names followed for ever."""
    variables = []

    def make(emit: Callable[..., Any], x: Any) -> Any:
        variables.append(emit(relax.op.exp(x)))
        variables.extend(emit(variables[-1]) for _ in names[1:])
        return emit(relax.op.negative(variables[-1]))

    x = {"x": np.zeros((2, 3), np.float32)}
    relax_module = module(x, make)
    model = ImportedModel("m", relax_module, ("y",), dict(zip(variables, names, strict=True)))
    with time_limit(20), pytest.raises(ModelError, match=r"'[tu]' is a copy of itself"):
        clean(model)
