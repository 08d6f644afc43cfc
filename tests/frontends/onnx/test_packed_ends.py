"""Ends of a model without a fixed shape: text, sequences, maps, and shapes that depend on values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import pipeline
from pipeline.comparison.compare import compare_output
from pipeline.errors import InputError, ModelError
from tests.support.onnx_models import kinds, node, save


def run(path: Path, *cuts: str, **inputs: Any) -> dict[str, Any]:
    graph = pipeline.read(path)
    plan = pipeline.plan(graph, cuts=list(cuts)) if cuts else pipeline.plan(graph, stages=1)
    with pipeline.load(pipeline.build(graph, plan)) as running:
        return dict(running.submit(inputs).outputs(60))


def by_onnxruntime(path: Path, **inputs: Any) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    nodes = [
        helper.make_node(
            "LabelEncoder", ["word"], ["number"], "encode", domain="ai.onnx.ml",
            keys_strings=["red", "green"], values_floats=[1.0, 2.0], default_float=-1.0,
        ),
        node("Relu", "number", "positive", "relu"),
        node("Exp", "positive", "y", "exp"),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "words",
        [helper.make_tensor_value_info("word", TensorProto.STRING, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    path = tmp_path / "words.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_text_goes_in(words: Path) -> None:
    value = np.array([["red", "blue", "green"]])
    (expected,) = by_onnxruntime(words, word=value)
    np.testing.assert_allclose(run(words, word=value)["y"], expected, rtol=1e-6)
    graph = pipeline.read(words)
    assert graph.notes[1].startswith("input 'word' holds strings; frames carry it as at most")
    with pytest.raises(InputError, match="an array of objects may hold text only"):
        run(words, word=np.array([[1, 2, 3]], object))


def test_it_is_refused_without_the_fallback(words: Path) -> None:
    with pytest.raises(ModelError, match="'word' holds strings, which only ONNX Runtime takes; allow the fallback"):
        pipeline.read(words, fallback=False)


def test_a_classifier_returns_maps(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "r", "relu"),
        helper.make_node(
            "LinearClassifier", ["r"], ["label", "scores"], "classify", domain="ai.onnx.ml",
            coefficients=[0.1, -0.2, 0.3, 0.4, 0.5, -0.6], intercepts=[0.1, 0.2], classlabels_strings=["cat", "dog"],
        ),
        helper.make_node("ZipMap", ["scores"], ["map"], "zip", domain="ai.onnx.ml", classlabels_strings=["cat", "dog"]),
    ]  # fmt: skip
    map_type = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [
            helper.make_tensor_value_info("label", TensorProto.STRING, [2]),
            helper.make_value_info("map", helper.make_sequence_type_proto(map_type)),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    path = tmp_path / "classifier.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    x = np.array([[1, 2, 3], [4, -5, 6]], np.float32)
    label, maps = by_onnxruntime(path, x=x)
    outputs = run(path, "relu", x=x)
    np.testing.assert_array_equal(outputs["label"], label)
    assert compare_output(outputs["map"], maps).within(1e-6)
    assert [list(scores) for scores in outputs["map"]] == [["cat", "dog"]] * 2
    # Also by verification and by the check of a build, which compare values, not bytes.
    assert pipeline.verify(pipeline.read(path), path).relative < 1e-6


def test_an_output_whose_shape_depends_on_values(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "r", "relu"), node("NonZero", "r", "n", "nonzero"), node("Exp", "r", "y")]
    path = save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["n", "y"], dtypes={"n": TensorProto.INT64})
    for count in range(3):
        x = np.zeros((2, 3), np.float32)
        x[1, :count] = 1
        outputs = run(path, "relu", x=x)
        for name, expected in zip("ny", by_onnxruntime(path, x=x), strict=True):
            np.testing.assert_allclose(outputs[name], expected, rtol=1e-6)
    assert "output 'n' has a shape that depends on values" in pipeline.read(path).notes[0]


def test_tensors_without_elements(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "r"), node("Concat", "r z", "y", axis=1), node("ReduceSum", "r axis", "s", keepdims=0)]
    nodes.append(node("ReduceMin", "x axis", "m", keepdims=0))
    shapes: Any = {"x": (2, 0), "z": (2, 3)}
    path = save(tmp_path / "m.onnx", nodes, shapes, ["y", "s", "r", "m"], {"axis": np.array([1])}, opset=18)
    inputs: Any = {"x": np.zeros((2, 0), np.float32), "z": np.ones((2, 3), np.float32)}
    outputs = run(path, **inputs)
    for name, expected in zip("ysrm", by_onnxruntime(path, **inputs), strict=True):
        np.testing.assert_array_equal(outputs[name], expected)


def test_an_output_of_unknown_shape_leaves_its_like_alone(tmp_path: Path) -> None:
    """One product is returned with as many columns as there are elements above zero, the other is compiled."""
    nodes = [
        node("Mul", "x x", "m"),
        node("NonZero", "m", "places"),
        node("Mul", "places places", "squares"),
        node("Relu", "m", "y"),
    ]
    path = save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y", "squares"], dtypes={"squares": TensorProto.INT64})
    graph = pipeline.read(path)
    assert [island.operators for island in graph.islands] == [("NonZero (places)", "Mul (squares)")]
    assert "multiply" in kinds(graph)
