"""Floats of eight bits or less, parts of bytes, and bfloat16: computed inside of a model, and refused at its ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import pipeline
from pipeline.core import packed_value
from pipeline.errors import InputError, ModelError
from pipeline.frontends.input_shapes import check_dtype
from tests.support.onnx_models import node, save

FLOAT = TensorProto.FLOAT
NAMES = ["FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "UINT4", "BFLOAT16"]


@pytest.mark.parametrize("name", NAMES)
def test_ends_of_such_types_are_refused(tmp_path: Path, name: str) -> None:
    narrow = getattr(TensorProto, name)
    for file, types, target in (("in", {"x": narrow, "y": FLOAT}, FLOAT), ("out", {"x": FLOAT, "y": narrow}, narrow)):
        nodes = [node("Cast", "x", "y", "y", to=target)]
        path = save(tmp_path / f"{file}.onnx", nodes, {"x": (4,)}, ["y"], dtypes=types, opset=21)
        with pytest.raises(ModelError, match=rf"{file}.onnx': '[xy]' is of {name.lower()}, which arrays do not have"):
            pipeline.read(path)


@pytest.mark.parametrize("name", NAMES)
def test_such_values_inside_are_those_of_onnx_runtime(tmp_path: Path, name: str) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    nodes = [node("Cast", "x", "t", "t", to=getattr(TensorProto, name)), node("Cast", "t", "y", "y", to=FLOAT)]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (4,)}, ["y"], opset=21))
    assert bool(graph.islands) == (name != "BFLOAT16")
    assert all("which no kernel computes with" in island.reason for island in graph.islands)
    # Compares with ONNX Runtime.
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1))
    with pipeline.load(bundle) as running:
        assert running.submit(np.arange(4, dtype=np.float32)).result().tolist() == [0, 1, 2, 3]


def test_constants_of_such_types_need_no_island(tmp_path: Path) -> None:
    nodes = [node("DequantizeLinear", "w s", "t", "t"), node("Add", "x t", "y", "y")]
    path = save(tmp_path / "m.onnx", nodes, {"x": (4,)}, ["y"], {"s": np.float32(0.5)}, opset=21)
    import onnx

    model = onnx.load(path)
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.UINT4, [4], [1, 2, 3, 4]))
    graph = pipeline.read(model)
    assert not graph.islands


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float", "double", "float64", "complex64"])
def test_arrays_have_such_dtypes(dtype: str) -> None:
    check_dtype("'m'", "x", dtype)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8", "int4", "bfloat16", "uint1", "handle", "string"])
def test_arrays_do_not_have_others(dtype: str) -> None:
    with pytest.raises(ModelError, match=rf"'m': 'x' is of {dtype}, which arrays do not have"):
        check_dtype("'m'", "x", dtype)


def test_a_result_of_another_shape_is_no_result() -> None:
    for shape in ((1,), (3,), (4, 1)):
        with pytest.raises(InputError, match=r"an operator makes \[.*\] of this frame, where the model states \[4\]"):
            packed_value.write(np.zeros(4, np.float32), np.ones(shape, np.float32))
