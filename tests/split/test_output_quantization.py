from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
from onnx import TensorProto

import pipeline
from pipeline.core.tensor_quantization import Quantization
from pipeline.split.output_quantization import input_quantization, output_quantization, output_steps
from tests.support.onnx_models import node, save, weights

SCALE = {"s": np.array(0.25, np.float32), "z": np.array(-3, np.int8), "s2": np.array(0.5, np.float32)}
GEMM = node("Gemm", "x w", "g")


def quantizations(path: Path, nodes: list[Any], *outputs: str, **constants: Any) -> dict[str, Quantization]:
    values = {"w": weights(8, 6), **SCALE, "shape": np.array([2, 3]), **constants}
    int8 = dict.fromkeys(outputs, TensorProto.INT8)
    graph = pipeline.read(save(path / "m.onnx", [GEMM, *nodes], {"x": (1, 8)}, list(outputs), values, dtypes=int8))
    return {each.tensor: each for each in output_quantization(graph)}


@pytest.mark.parametrize(
    "nodes",
    [
        [node("QuantizeLinear", "g s z", "y")],
        [node("QuantizeLinear", "g s z", "q"), node("Reshape", "q shape", "r"), node("Transpose", "r", "y")],
        [node("QuantizeLinear", "g s z", "q"), node("Concat", "q q", "y", axis=1)],
    ],
    ids=["quantised", "moved", "joined"],
)
def test_integers_keep_their_scale_wherever_they_move(tmp_path: Path, nodes: list[Any]) -> None:
    assert quantizations(tmp_path, nodes, "y") == {"y": Quantization("y", (0.25,), (-3,))}


def test_each_output_has_its_own_scale_or_none(tmp_path: Path) -> None:
    nodes = [
        node("QuantizeLinear", "g s z", "a"),
        node("QuantizeLinear", "g s2 z", "b"),
        node("Concat", "a b", "mixed", axis=1),
        node("Cast", "g", "plain", to=TensorProto.INT8),
    ]
    by_output = quantizations(tmp_path, nodes, "a", "b", "mixed", "plain")
    assert {name: each.scale for name, each in by_output.items()} == {"a": (0.25,), "b": (0.5,)}


@pytest.mark.parametrize(
    ("nodes", "dtype", "step"),
    [
        # A quantised integer is judged by ones, a float that was one by its scale, also after it has moved.
        ([node("QuantizeLinear", "g s z", "y")], TensorProto.INT8, 1.0),
        ([node("QuantizeLinear", "g s z", "q"), node("DequantizeLinear", "q s z", "y")], TensorProto.FLOAT, 0.25),
        (
            [
                *(node("QuantizeLinear", "g s2 z", "q"), node("DequantizeLinear", "q s2 z", "d")),
                node("Reshape", "d shape", "y"),
            ],
            TensorProto.FLOAT,
            0.5,
        ),
        # A plain float has none, nor has the number of a class.
        ([node("Relu", "g", "y")], TensorProto.FLOAT, None),
        ([node("ArgMax", "g", "y", axis=1)], TensorProto.INT64, None),
    ],
    ids=["integer", "float", "moved", "plain", "class"],
)
def test_steps_of_outputs(tmp_path: Path, nodes: list[Any], dtype: int, step: float | None) -> None:
    values: dict[str, Any] = {"w": weights(8, 6), **SCALE, "shape": np.array([2, 3])}
    path = save(tmp_path / "m.onnx", [GEMM, *nodes], {"x": (1, 8)}, ["y"], values, dtypes={"y": dtype})
    assert output_steps(pipeline.read(path)) == ({} if step is None else {"y": step})


def test_scales_along_an_axis_stay_with_it_and_are_lost_when_it_moves(tmp_path: Path) -> None:
    scales, zeros = np.arange(1, 7, dtype=np.float32), np.arange(6, dtype=np.int8)
    nodes = [node("QuantizeLinear", "g ss zz", "y", axis=-1), node("Transpose", "y", "moved")]
    by_output = quantizations(tmp_path, nodes, "y", "moved", ss=scales, zz=zeros)
    assert by_output == {"y": Quantization("y", tuple(range(1, 7)), tuple(range(6)), axis=1)}
    integers = np.array([[0, 0, 0, 0, 0, 9]], np.int8)
    np.testing.assert_array_equal(by_output["y"].numbers(integers), [[0, -2, -6, -12, -20, 24]])


def test_a_bundle_knows_its_outputs_quantisation_and_keeps_it_in_its_files(tmp_path: Path) -> None:
    """A classifier's scores come out as integers, and are shown as ONNX Runtime's own dequantisation has them."""
    runtime = pytest.importorskip("onnxruntime")
    nodes = [GEMM, node("Softmax", "g", "p"), node("QuantizeLinear", "p s z", "y")]
    constants = {"w": weights(8, 6), "s": np.array(1 / 256, np.float32), "z": np.array(-128, np.int8)}
    path = save(tmp_path / "m.onnx", nodes, {"x": (1, 8)}, ["y"], constants, dtypes={"y": TensorProto.INT8})
    graph = pipeline.read(path)
    pipeline.build(graph, pipeline.plan(graph, stages=1), check=False).save(tmp_path / "m.bundle")
    frame = weights(1, 8, seed=3)
    with pipeline.load(tmp_path / "m.bundle") as running:
        (quantization,) = running.plan.quantization
        integers = running.submit(frame).result()
    expected = runtime.InferenceSession(path).run(None, {"x": frame})[0]
    assert integers.dtype == np.int8
    np.testing.assert_array_equal(integers, expected)
    assert quantization.numbers(integers).sum() == pytest.approx(1, abs=0.02)


def test_integer_inputs_have_the_scale_that_reads_them(tmp_path: Path) -> None:
    values: dict[str, Any] = {**SCALE}
    nodes = [node("DequantizeLinear", "x s z", "d"), node("Relu", "d", "y"), node("Cast", "p", "q", to=1)]
    path = save(
        tmp_path / "m.onnx",
        nodes,
        {"x": (1, 8), "p": (2,)},
        ["y", "q"],
        values,
        dtypes={"x": TensorProto.INT8, "p": TensorProto.INT8},
    )
    graph = pipeline.read(path)
    assert input_quantization(graph) == (Quantization("x", (0.25,), (-3,)),)
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1))
    assert bundle.plan.quantization == (Quantization("x", (0.25,), (-3,)),)
