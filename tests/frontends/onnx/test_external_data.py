"""Large parameters of ONNX models are used where they lie, and are in memory once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pipeline
from pipeline.errors import ModelError
from pipeline.frontends.onnx.outline import outline
from pipeline.frontends.onnx.simplification.tensors import is_external
from pipeline.model.passes.bindings import array, operands
from pipeline.quantization import onnx_model

WEIGHTS = np.random.default_rng(0).standard_normal((256, 128)).astype(np.float32)
SMALL = np.arange(256, dtype=np.float32)


def write(path: Path, *, external: bool, weights: Any = WEIGHTS) -> Path:
    """Write ``relu(x) @ weights.T + small``, whose weights are turned while reading, and then ``* weights[0]``."""
    nodes = [
        helper.make_node("Relu", ["x"], ["relu"]),
        helper.make_node("Gemm", ["relu", "weights", "small"], ["gemm"], transB=1),
        helper.make_node("MatMul", ["gemm", "weights"], ["y"]),
    ]
    values = [numpy_helper.from_array(each, name) for each, name in ((weights, "weights"), (SMALL, "small"))]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in (("x", [4, 128]), ("y", [4, 128]))
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "m", *ends, values), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, path, save_as_external_data=external, location=f"{path.name}.data", size_threshold=0)
    return path


def constants(graph: pipeline.Graph) -> list[np.ndarray]:
    output = [array(each) for operator in graph.operators for line in operator.lines for each in operands(line.value)]
    return [each for each in output if each is not None]


@pytest.mark.parametrize("data_file", [False, True])
def test_the_values_are_those_of_the_file(tmp_path: Path, data_file: bool) -> None:
    path = write(tmp_path / "m.onnx", external=data_file)
    graph = pipeline.read(path)
    large = [each for each in constants(graph) if each.size == WEIGHTS.size]
    assert any(np.array_equal(each, WEIGHTS) for each in large)
    assert any(np.array_equal(each, WEIGHTS.T) for each in large)
    assert pipeline.verify(graph, path).relative < 1e-5


def test_the_outline_is_small_and_names_the_place(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", external=False)
    text = outline(path)
    assert len(text) < 2_000 < WEIGHTS.nbytes < path.stat().st_size
    weights, small_tensor = onnx.ModelProto.FromString(text).graph.initializer
    assert is_external(weights)
    assert not is_external(small_tensor)
    stored_data = {each.key: each.value for each in weights.external_data}
    start = int(stored_data["offset"])
    assert path.read_bytes()[start : start + int(stored_data["length"])] == WEIGHTS.tobytes()


@pytest.mark.parametrize("data_file", [False, True])
def test_a_model_that_is_written_anew_does_not_change_what_was_read(tmp_path: Path, data_file: bool) -> None:
    """Its parameters were once used from its own file; a shorter one would have ended the process."""
    path = write(tmp_path / "m.onnx", external=data_file)
    graph = pipeline.read(path)
    copies = [each.copy() for each in constants(graph)]
    for file in tmp_path.iterdir():
        with file.open("r+b") as stream:
            stream.truncate(0)
    assert all(map(np.array_equal, constants(graph), copies))


@pytest.mark.parametrize("position", ["../m.onnx.data", "/etc/passwd", "a/../../m.onnx.data"])
def test_data_outside_of_the_folder(tmp_path: Path, position: str) -> None:
    path = write(tmp_path / "m.onnx", external=True)
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        tensor.external_data[0].value = position
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="which is outside of the model's folder"):
        pipeline.read(path)


@pytest.mark.parametrize("data_file", [False, True])
def test_bytes_that_do_not_make_the_shape(tmp_path: Path, data_file: bool) -> None:
    path = write(tmp_path / "m.onnx", external=data_file)
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].dims[0] = 255
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"keeps 131072 bytes for tensor 'weights', whose shape \[255, 128\]"):
        pipeline.read(path)


def test_damaged_files(tmp_path: Path) -> None:
    """A damaged file ends in an error of ours, or is still a model."""
    text = write(tmp_path / "m.onnx", external=False).read_bytes()
    large = text.index(WEIGHTS.tobytes())
    generator = np.random.default_rng(0)
    offsets = [*range(40), *range(large - 40, large), *range(large + WEIGHTS.nbytes, len(text))][::5]
    refusals = 0
    for position in offsets:
        damaged_copy = bytearray(text)
        damaged_copy[position] = generator.integers(256)
        (tmp_path / "d.onnx").write_bytes(damaged_copy if position % 2 else damaged_copy[: position + 1])
        try:
            pipeline.read(tmp_path / "d.onnx")
        except ModelError:
            refusals += 1
    assert len(offsets) // 2 < refusals


def test_large_results_are_not_folded(tmp_path: Path) -> None:
    """Twenty gigabytes of one number stay an operator."""
    shape = numpy_helper.from_array(np.array([50_000, 100_000], np.int64), "shape")
    nodes = [
        helper.make_node("Expand", ["one", "shape"], ["wide"]),
        helper.make_node("ReduceMax", ["wide"], ["largest"], keepdims=0),
        helper.make_node("Add", ["x", "largest"], ["y"]),
    ]
    first = numpy_helper.from_array(np.ones((1, 1), np.float32), "one")
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])] for name in ("x", "y")]
    graph = helper.make_graph(nodes, "m", *ends, [shape, first])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), tmp_path / "m.onnx")
    kinds = [operator.kind for operator in pipeline.read(tmp_path / "m.onnx").operators]
    assert "broadcast_to" in kinds


@pytest.mark.parametrize(("folder", "name"), [(b"f\xff", b"m.onnx"), (b"f", b"m\xff.onnx"), (b"f\xff", b"m\xff.onnx")])
def test_data_files_of_models_whose_names_are_no_utf8(tmp_path: Path, folder: bytes, name: bytes) -> None:
    """The packages' C++ code takes no such names."""
    pytest.importorskip("onnxruntime")
    (tmp_path / "text").mkdir()
    path = write(tmp_path / "text" / "m.onnx", external=True)
    moved_folder = tmp_path / os.fsdecode(folder)
    path = path.rename(path.with_name(os.fsdecode(name)))
    path.parent.rename(moved_folder)
    path = moved_folder / path.name
    assert pipeline.verify(pipeline.read(path), path).relative < 1e-5
    assert onnx_model.load(path).graph.initializer[0].raw_data == WEIGHTS.tobytes()
