"""Operators of quantised tensors give ONNX Runtime's bytes, without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import pipeline
from tests.support.onnx_models import Arrays, assert_close, by_onnxruntime, in_stages, node, save, weights

pytestmark = pytest.mark.thorough

BYTES = {"uint8": onnx.TensorProto.UINT8, "int8": onnx.TensorProto.INT8, "int32": onnx.TensorProto.INT32}
MICROSOFT = {"domain": "com.microsoft"}


def numbers(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Return seeded values of all of a dtype's range."""
    limits = np.iinfo(dtype)
    return np.random.default_rng([seed, *shape]).integers(limits.min, limits.max + 1, shape).astype(dtype)


def check(path: Path, *values: np.ndarray, distance: int = 0) -> None:
    """Compare bytes with ONNX Runtime's, without its help; `distance` is how much they may differ."""
    graph = pipeline.read(path, fallback=False)
    frame = {spec.name: value for spec, value in zip(graph.inputs, values, strict=True)}
    outputs, reference = in_stages(graph, [], frame), by_onnxruntime(path, frame)
    for name, expected in reference.items():
        assert outputs[name].dtype == expected.dtype
        assert np.abs(outputs[name].astype(int) - expected.astype(int)).max() <= distance
        assert np.unique(expected).size > 3


def scales_of(*names: str, dtype: str = "uint8") -> Arrays:
    """Return a scale and a zero point of each of the names."""
    constants: Arrays = {}
    for number, name in enumerate(names):
        constants[f"{name}s"] = np.array(0.02 + 0.013 * number, np.float32)
        constants[f"{name}z"] = np.array(3 * number + (100 if dtype == "uint8" else 1), dtype)
    return constants


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_convolution(tmp_path: Path, dtype: str, *, per_channel: bool) -> None:
    constants = scales_of("x", "y", dtype=dtype) | {
        "w": numbers("int8", 4, 3, 3, 3) // 4,
        "ws": np.array([0.01, 0.02, 0.015, 0.03] if per_channel else [0.01], np.float32),
        "wz": np.zeros(4 if per_channel else 1, np.int8),
        "b": np.arange(4, dtype=np.int32) * 300,
    }
    constants["ys"] = np.array(0.6, np.float32)
    nodes = [node("QLinearConv", "x xs xz w ws wz ys yz b", "y", pads=[1, 1, 1, 1], strides=[2, 2])]
    kinds = dict.fromkeys(("x", "y"), BYTES[dtype])
    path = save(tmp_path / "m.onnx", nodes, {"x": (1, 3, 9, 9)}, ["y"], constants, dtypes=kinds)
    check(path, numbers(dtype, 1, 3, 9, 9))


def test_integer_convolution(tmp_path: Path) -> None:
    constants = {"w": numbers("uint8", 2, 3, 3, 3), "wz": np.array(7, np.uint8), "xz": np.array(9, np.uint8)}
    path = save(
        tmp_path / "m.onnx", [node("ConvInteger", "x w xz wz", "y", pads=[1] * 4)], {"x": (1, 3, 6, 6)}, ["y"],
        constants, dtypes={"x": BYTES["uint8"], "y": BYTES["int32"]},
    )  # fmt: skip
    check(path, numbers("uint8", 1, 3, 6, 6))


def test_product(tmp_path: Path) -> None:
    constants = scales_of("x", "w", "y") | {"w": numbers("uint8", 16, 5)}
    constants["ys"] = np.array(0.5, np.float32)
    nodes = [node("QLinearMatMul", "x xs xz w ws wz ys yz", "y")]
    kinds = dict.fromkeys(("x", "y"), BYTES["uint8"])
    path = save(tmp_path / "m.onnx", nodes, {"x": (4, 16)}, ["y"], constants, dtypes=kinds)
    check(path, numbers("uint8", 4, 16))


@pytest.mark.parametrize("kind", ["QLinearAdd", "QLinearMul"])
def test_two_operands(tmp_path: Path, kind: str) -> None:
    nodes = [node(kind, "a as az b bs bz ys yz", "y", **MICROSOFT)]
    kinds = dict.fromkeys(("a", "b", "y"), BYTES["uint8"])
    path = save(tmp_path / "m.onnx", nodes, {"a": (3, 64), "b": (1, 64)}, ["y"], scales_of("a", "b", "y"), dtypes=kinds)
    check(path, numbers("uint8", 3, 64), numbers("uint8", 1, 64, seed=1))


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("QLinearSigmoid", {}),
        ("QLinearLeakyRelu", {"alpha": 0.1}),
        ("QLinearGlobalAveragePool", {}),
        ("QLinearAveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("QLinearSoftmax", {"axis": 1, "opset": 13}),
    ],
)
def test_one_operand(tmp_path: Path, kind: str, attributes: dict[str, Any]) -> None:
    constants = scales_of("x", "y")
    constants["ys"] = np.array(1 / 256 if kind in ("QLinearSigmoid", "QLinearSoftmax") else 0.0137, np.float32)
    constants["yz"] = np.array(0 if kind in ("QLinearSigmoid", "QLinearSoftmax") else 120, np.uint8)
    nodes = [node(kind, "x xs xz ys yz", "y", **attributes, **MICROSOFT)]
    kinds = dict.fromkeys(("x", "y"), BYTES["uint8"])
    path = save(tmp_path / "m.onnx", nodes, {"x": (2, 8, 4, 4)}, ["y"], constants, dtypes=kinds)
    check(path, numbers("uint8", 2, 8, 4, 4))


def test_concatenation(tmp_path: Path) -> None:
    nodes = [node("QLinearConcat", "ys yz a as az b bs bz", "y", axis=1, **MICROSOFT)]
    kinds = dict.fromkeys(("a", "b", "y"), BYTES["uint8"])
    path = save(tmp_path / "m.onnx", nodes, {"a": (2, 9), "b": (2, 7)}, ["y"], scales_of("a", "b", "y"), dtypes=kinds)
    check(path, numbers("uint8", 2, 9), numbers("uint8", 2, 7))


@pytest.mark.parametrize("kind", [onnx.TensorProto.INT4, onnx.TensorProto.UINT4, onnx.TensorProto.INT8], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_weights_in_blocks(tmp_path: Path, kind: int, axis: int) -> None:
    shape, scale_shape = (80, 64), (5, 64) if axis == 0 else (80, 4)
    values = np.arange(80 * 64) % 8
    scales = (np.arange(np.prod(scale_shape)).reshape(scale_shape) % 5 + 1).astype(np.float32) / 10
    tensors = [
        onnx.helper.make_tensor("w", kind, shape, values.tolist()),
        onnx.helper.make_tensor("z", kind, scale_shape, [1] * int(np.prod(scale_shape))),
        onnx.numpy_helper.from_array(scales, "s"),
    ]
    graph = onnx.helper.make_graph(
        [node("DequantizeLinear", "w s z", "f", axis=axis, block_size=16), node("MatMul", "x f", "y")], "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (3, 80))],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (3, 64))], tensors,
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    inputs = {"x": weights(3, 80)}
    outputs = in_stages(pipeline.read(tmp_path / "m.onnx", fallback=False), [], inputs)
    # Fused, it would compute with activations of 8 bits.
    assert_close(outputs, by_onnxruntime(tmp_path / "m.onnx", inputs, fused=False))
