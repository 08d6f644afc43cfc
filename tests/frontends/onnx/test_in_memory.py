"""ONNX models in memory are read like their files, alone and in a list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pipeline
from pipeline.errors import ModelError
from pipeline.split.symbolic_model import OpenModel
from tests.support.onnx_models import by_onnxruntime, node, save, weights

X = weights(2, 8, seed=3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    # The matrix is large enough that it would stay in a file.
    nodes = [node("MatMul", "x w", "wide", "widen"), node("Relu", "wide", "y", "relu")]
    return save(tmp_path / "m.onnx", nodes, {"x": ("N", 8)}, ["y"], {"w": weights(8, 4096)})


def result(graph: Any) -> np.ndarray:
    with pipeline.load(pipeline.build(graph)) as running:
        return np.asarray(running.submit(X).result(60))


def test_an_object_becomes_the_graph_of_its_file(path: Path) -> None:
    model = onnx.load(path)
    serialized = model.SerializeToString()
    graph = pipeline.read(model, {"x": (2, 8)}, verify=True)
    assert model.SerializeToString() == serialized, "the caller's object stays open"
    assert graph.name == "test"
    assert graph.digest == pipeline.read(path, {"x": (2, 8)}).digest
    # Nothing is read from the object later on.
    model.Clear()
    np.testing.assert_allclose(result(graph), by_onnxruntime(path, {"x": X})["y"], rtol=1e-4, atol=1e-5)


def test_a_name_stands_for_an_extent(path: Path) -> None:
    model = pipeline.read(onnx.load(path), {"x": ("N", 8)})
    assert isinstance(model, OpenModel)
    assert model.at(N=2).inputs[0].shape == (2, 8)


def test_objects_and_files_in_one_list(path: Path) -> None:
    front = onnx.load(path)
    front.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    back = save(path.with_name("back.onnx"), [node("Softmax", "y", "z")], {"y": (2, 4096)}, ["z"])
    (path.with_name("last.relay")).write_text(
        '#[version = "0.0.5"]\ndef @main(%z: Tensor[(2, 4096), float32]) { negative(%z) }\n'
    )
    models = [front, onnx.load(back), path.with_name("last.relay")]
    expected = -by_onnxruntime(back, by_onnxruntime(path, {"x": X}))["z"]
    graph = pipeline.chain(models, {"last.z": "test2.z"})
    for joined in (graph, models):
        np.testing.assert_allclose(result(joined), expected, rtol=1e-4, atol=1e-7)


def test_what_is_not_valid_is_called_by_its_graphs_name() -> None:
    for model in (onnx.ModelProto(), helper.make_model(helper.make_graph([], "a/g", [], []), ir_version=8)):
        with pytest.raises(ModelError, match=r"'(a_g|model)' is not a valid ONNX model: .*; export it again$"):
            pipeline.read(model)
    nodes = [helper.make_node("FusedThing", ["x"], ["y"], domain="com.example")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]), opset_imports=opsets, ir_version=8)
    with pytest.raises(ModelError, match=r"'g' uses operators that are not supported: com\.example\.FusedThing"):
        pipeline.read(model, fallback=False)


def test_tensors_in_data_files_need_the_path(path: Path) -> None:
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="m.data", size_threshold=0)
    with pytest.raises(ModelError, match=r"'w' in the data file 'm.data', .* no folder; give the path of its file"):
        pipeline.read(onnx.load(path, load_external_data=False), {"x": (2, 8)})
    # Read with its data, it has all that it needs.
    assert pipeline.read(onnx.load(path), {"x": (2, 8)}).outputs[0].shape == (2, 4096)
