"""Bounds: an index or a divisor that a kernel must not use is an error of its frame, and the next frame computes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import pipeline
from pipeline.errors import StageError
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from tests.support.onnx_models import Arrays, by_onnxruntime, node, save

pytestmark = pytest.mark.thorough

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
DATA = np.arange(24, dtype=np.float32).reshape(3, 8)
ROWS = np.zeros((4, 8), np.float32) + np.arange(4, dtype=np.float32)[:, None]

OPERATORS: dict[str, tuple[Any, Arrays]] = {
    "Gather": (node("Gather", "x i", "y"), {"i": np.array([0, 2, 1])}),
    "Gather of columns": (node("Gather", "x i", "y", axis=1), {"i": np.array([0, 2, 7])}),
    "GatherElements": (node("GatherElements", "x i", "y"), {"i": np.ones((2, 8), np.int64)}),
    "GatherND": (node("GatherND", "x i", "y"), {"i": np.array([[0, 7], [2, 0]])}),
    "ScatterND": (node("ScatterND", "x i u", "y"), {"i": np.array([[0], [2], [1], [2]]), "u": ROWS}),
    "ScatterND of two axes": (node("ScatterND", "x i u", "y"), {"i": np.array([[0, 7], [2, 0]]), "u": ROWS[:2, 0]}),
    "ScatterND that adds": (
        node("ScatterND", "x i u", "y", reduction="add"), {"i": np.array([[0], [2], [1], [2]]), "u": ROWS},
    ),
    "ScatterElements": (node("ScatterElements", "x i u", "y"), {"i": np.ones((2, 8), np.int64), "u": ROWS[:2]}),
    "ScatterElements of columns": (
        node("ScatterElements", "x i u", "y", axis=1, reduction="max"),
        {"i": np.arange(6).reshape(3, 2), "u": ROWS[:3, :2]},
    ),
}  # fmt: skip


def model(path: Path, operator: Any, inputs: Arrays, dtype: int = FLOAT) -> Path:
    shapes = {name: array.shape for name, array in inputs.items()}
    return save(path / "m.onnx", [operator], shapes, ["y"], dtypes={"x": dtype, "i": INT64, "y": dtype}, opset=18)


@pytest.mark.parametrize("name", OPERATORS)
def test_indices(tmp_path: Path, name: str) -> None:
    operator, operands = OPERATORS[name]
    right = {"x": DATA, **operands}
    path = model(tmp_path, operator, right)
    graph = pipeline.read(path)
    assert not graph.islands
    plan = pipeline.plan(graph, stages=1)
    with pipeline.load(pipeline.build(graph, plan, check=False, verify=False)) as running:
        # The first one that is outside: 3 rows, 8 columns; what is farther away is in the fuzzer's own process.
        for place, outside in itertools.product((0, -1), (8, -9)):
            indices = right["i"].copy()
            indices.reshape(-1)[place] = outside
            with pytest.raises(StageError, match=r"IndexError: 'y': an index is outside of the . places of axis"):
                running.submit({**right, "i": indices}).result(60)
            for values in (right, {**right, "i": -np.ones_like(right["i"])}):
                result = running.submit(values).result(60)
                np.testing.assert_array_equal(result, by_onnxruntime(path, values)["y"])


@pytest.mark.parametrize("operator", ["Gather", "GatherND", "ScatterND"])
@pytest.mark.parametrize(("count", "gathers"), [(127, True), (300, True), (521, True), (300, False)])
@pytest.mark.one_in(3)
def test_every_piece_of_many_indices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str, count: int, gathers: bool
) -> None:
    # Checks are done for a piece of the indices at a time, on two ways; the last piece of a prime number is smaller.
    monkeypatch.setattr(Microarchitecture, "gathers", gathers)
    data = np.arange(7, dtype=np.float32)[:, None]
    indices = (np.arange(count) * 3 % 7).reshape((count,) if operator == "Gather" else (count, 1))
    operands: Arrays = {"x": data, "i": indices}
    if operator == "ScatterND":
        operands["u"] = np.arange(count, dtype=np.float32)[:, None]
    path = model(tmp_path, node(operator, " ".join(operands), "y"), operands)
    graph = pipeline.read(path)
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1), check=False, verify=False)
    with pipeline.load(bundle) as running:
        np.testing.assert_array_equal(running.submit(operands).result(60), by_onnxruntime(path, operands)["y"])
        for place, number in itertools.product({0, 63, 64, 127, 128, 255, 256, 511, 512, count - 1}, (7, -8)):
            if place >= count:
                continue
            outside = indices.copy()
            outside[place] = number
            with pytest.raises(StageError, match="IndexError: 'y': an index is outside of the 7 places of axis 0"):
                running.submit({**operands, "i": outside}).result(60)


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("operator", ["Div", "Mod"])
@pytest.mark.one_in(2)
def test_whole_numbers(tmp_path: Path, operator: str, kind: str) -> None:
    dtype = getattr(TensorProto, kind.upper())
    path = save(
        tmp_path / "m.onnx", [node(operator, "x z", "q"), node("Abs", "q", "y")], {"x": (5,), "z": (5,)}, ["y"],
        dtypes=dict.fromkeys("xzy", dtype), opset=18,
    )  # fmt: skip
    graph = pipeline.read(path)
    values = {"x": np.array([7, 8, 9, 3, 100], kind), "z": np.array([2, 3, 1, 7, 100], kind)}
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1), check=False, verify=False)
    with pipeline.load(bundle) as running:
        with pytest.raises(StageError, match="ValueError: 'q': a whole number is divided by zero"):
            running.submit({**values, "z": np.array([2, 3, 1, 7, 0], kind)}).result(60)
        np.testing.assert_array_equal(running.submit(values).result(60), by_onnxruntime(path, values)["y"])
        if kind in {"int32", "int64"}:
            smallest = {"x": np.full(5, np.iinfo(kind).min, kind), "z": np.full(5, -1, kind)}
            with pytest.raises(StageError, match="ValueError: 'q': a whole number has no quotient"):
                running.submit(smallest).result(60)


@pytest.mark.parametrize("kind", ["int8", "int16"])
@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_narrow_quotients_are_cut_off(tmp_path: Path, operator: str, kind: str) -> None:
    dtype, count = getattr(TensorProto, kind.upper()), 33
    path = save(
        tmp_path / "m.onnx", [node(operator, "x z", "q"), node("Abs", "q", "y")], {"x": (count,), "z": (count,)}, ["y"],
        dtypes=dict.fromkeys("xzy", dtype), opset=18,
    )  # fmt: skip
    graph = pipeline.read(path)
    smallest = np.full(count, np.iinfo(kind).min, kind)
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1), check=False, verify=False)
    with pipeline.load(bundle) as running:
        for divisor in (-1, 7):
            values = {"x": smallest, "z": np.full(count, divisor, kind)}
            np.testing.assert_array_equal(running.submit(values).result(60), by_onnxruntime(path, values)["y"])


def test_constants_are_as_ever(tmp_path: Path) -> None:
    nodes = [node("Gather", "x i", "a"), node("Div", "a d", "y")]
    constants = {"i": np.array([2, 0]), "d": np.array([3, 2])}
    dtypes = dict.fromkeys("xy", INT64)
    path = save(tmp_path / "m.onnx", nodes, {"x": (3, 2)}, ["y"], constants, dtypes=dtypes, opset=18)
    graph, values = pipeline.read(path), {"x": np.arange(6).reshape(3, 2)}
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1), check=False, verify=False)
    with pipeline.load(bundle) as running:
        np.testing.assert_array_equal(running.submit(values).result(60), by_onnxruntime(path, values)["y"])


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_lengths_of_sequences(tmp_path: Path, direction: str) -> None:
    constants = {"w": np.ones((1, 5, 2), np.float32), "r": np.ones((1, 5, 5), np.float32)}
    operator = node("RNN", "x w r - n", "y", hidden_size=5, direction=direction)
    path = save(
        tmp_path / "m.onnx", [operator], {"x": (4, 2, 2), "n": (2,)}, ["y"], constants, dtypes={"n": TensorProto.INT32}
    )
    graph = pipeline.read(path)
    values = {"x": np.ones((4, 2, 2), np.float32), "n": np.array([1, 4], np.int32)}
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1), check=False, verify=False)
    with pipeline.load(bundle) as running:
        for length in (5, -1):
            with pytest.raises(StageError, match="the length of a sequence is not in 0 to 4"):
                running.submit({**values, "n": np.array([1, length], np.int32)}).result(60)
        np.testing.assert_allclose(running.submit(values).result(60), by_onnxruntime(path, values)["y"], atol=1e-6)


def test_samples_outside_of_a_picture_are_no_error(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("GridSample", "x g", "y")], {"x": (1, 2, 4, 4), "g": (1, 3, 3, 2)}, ["y"])
    graph = pipeline.read(path)
    assert not graph.islands
    corners = np.linspace(-3, 3, 18, dtype=np.float32).reshape(1, 3, 3, 2)
    values = {"x": np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4), "g": corners}
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1), check=False, verify=False)
    with pipeline.load(bundle) as running:
        np.testing.assert_allclose(running.submit(values).result(60), by_onnxruntime(path, values)["y"], atol=1e-5)


@pytest.mark.parametrize("outside", [2, -1, 2**40])
def test_regions_of_no_picture(tmp_path: Path, outside: int) -> None:
    operator = node("RoiAlign", "x r i", "y", sampling_ratio=2, output_height=2, output_width=3)
    shapes = {"x": (2, 1, 8, 8), "r": (2, 4), "i": (2,)}
    path = save(tmp_path / "m.onnx", [operator], shapes, ["y"], dtypes={"i": INT64}, opset=16)
    graph = pipeline.read(path)
    assert not graph.islands
    regions = np.array([[0, 0, 7, 5], [6, 3, 1, 2]], np.float32)
    values = {"x": np.arange(128, dtype=np.float32).reshape(2, 1, 8, 8), "r": regions, "i": np.array([1, 0])}
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1), check=False, verify=False)
    with pipeline.load(bundle) as running:
        with pytest.raises(StageError, match="an index is outside of the 2 places of axis 0"):
            running.submit({**values, "i": np.array([0, outside])}).result(60)
        np.testing.assert_allclose(running.submit(values).result(60), by_onnxruntime(path, values)["y"], atol=1e-4)
