"""Shapes that a TFLite file leaves open are those that LiteRT computes, and what follows from them is folded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

import pipeline
from pipeline.errors import ModelError
from tests.frontends.tflite.test_tflite import Writer, schema
from tests.support.onnx_models import kinds


def open_model(folder: Path, *signature: int) -> Path:
    """Write a model that doubles the rows of its input, whose shape it asks for."""
    shape = [max(extent, 1) for extent in signature]
    writer = Writer(*shape)
    writer.graph.tensors[0].shapeSignature = list(signature)
    sizes = writer.add(
        "SHAPE", [0], writer.tensor("sizes", (len(shape),), "int32"), options="ShapeOptions",
        outType=schema.TensorType.INT32,
    )  # fmt: skip
    factors = writer.constant("factors", np.array([1] * (len(shape) - 1) + [2], np.int32))
    larger = writer.add("MUL", [sizes, factors], writer.tensor("larger", (len(shape),), "int32"), options="MulOptions")
    joined = writer.add(
        "CONCATENATION", [0, 0], writer.tensor("joined", [*shape[:-1], 2 * shape[-1]]), options="ConcatenationOptions",
        axis=-1,
    )  # fmt: skip
    result = writer.add("RESHAPE", [joined, larger], writer.tensor("y", [*shape[:-1], 2 * shape[-1]]))
    writer.add("TANH", [result], writer.tensor("z", [*shape[:-1], 2 * shape[-1]]))
    return writer.save(folder / "m.tflite", len(writer.graph.tensors) - 1)


def test_a_batch_that_is_open_becomes_one(tmp_path: Path) -> None:
    path = open_model(tmp_path, -1, 4)
    graph = pipeline.read(path)
    assert (graph.inputs[0].shape, graph.outputs[0].shape) == ((1, 4), (1, 8))
    assert [note.endswith("leaves the batch open, which becomes 1; another one is given by --shape x=8,4")
            for note in graph.notes] == [True]  # fmt: skip
    assert pipeline.verify(graph, path).relative < 1e-5


def test_other_extents_become_those_of_the_file(tmp_path: Path) -> None:
    graph = pipeline.read(open_model(tmp_path, 1, -1, 4))
    assert graph.inputs[0].shape == (1, 1, 4)
    assert "those of the file, [1, 1, 4]; others are given by --shape x=1,1,4" in graph.notes[0]


def test_shapes_follow_from_those_of_the_inputs(tmp_path: Path) -> None:
    path = open_model(tmp_path, -1, -1, 4)
    graph = pipeline.read(path, {"x": (2, 5, 4)})
    assert graph.outputs[0].shape == (2, 5, 8)
    # What asks for the shape is folded.
    assert kinds(graph) == ["concat", "tanh"]
    assert not graph.islands
    assert pipeline.verify(graph, path).relative < 1e-5
    with pytest.raises(ModelError, match="input 'x' has a fixed extent 4 where"):
        pipeline.read(path, {"x": (2, 5, 3)})


def test_tensors_whose_shapes_depend_on_values_stay_inside_of_an_island(tmp_path: Path) -> None:
    writer = Writer(1, 4, 8)
    first = writer.add("RELU", [0], writer.tensor("first", (1, 4, 8)))
    places = writer.add("WHERE", [first], writer.tensor("places", (1, 3), "int64"))
    floats = writer.add("CAST", [places], writer.tensor("floats", (1, 3)), options="CastOptions",
                        inDataType=schema.TensorType.INT64)  # fmt: skip
    axes = writer.constant("axes", np.array([0], np.int32))
    total = writer.add("SUM", [floats, axes], writer.tensor("total", (3,)), options="ReducerOptions")
    path = writer.save(tmp_path / "m.tflite", writer.add("TANH", [total], writer.tensor("y", (3,))))
    graph = pipeline.read(path)
    assert [island.operators for island in graph.islands] == [("WHERE (places)", "CAST (floats)", "SUM (total)")]
    assert pipeline.verify(graph, path).relative < 1e-5
    writer.graph.outputs = []
    (note,) = pipeline.read(writer.save(tmp_path / "open.tflite", places)).notes
    assert note.startswith("output 'places' has a shape that depends on values; frames carry it as")


def test_what_is_made_of_constants_is_folded(tmp_path: Path) -> None:
    writer = Writer(2, 3)
    left = writer.constant("left", np.array([1, 2, 3], np.float32))
    product = writer.add("MUL", [left, left], writer.tensor("product", (3,)), options="MulOptions")
    path = writer.save(
        tmp_path / "m.tflite", writer.add("ADD", [0, product], writer.tensor("y", (2, 3)), options="AddOptions")
    )
    graph = pipeline.read(path)
    assert kinds(graph) == ["add"]
    assert pipeline.verify(graph, path).relative < 1e-5


def test_outputs_that_are_constants_or_inputs(tmp_path: Path) -> None:
    writer = Writer(2, 3)
    numbers = writer.constant("numbers", np.array([1, 2, np.inf], np.float32))
    path = writer.save(tmp_path / "m.tflite", numbers, 0, numbers)
    graph = pipeline.read(path)
    assert [spec.name for spec in graph.outputs] == ["numbers", "x2", "numbers2"]
    assert pipeline.verify(graph, path).largest_error == 0
