"""Sums are requantised as ONNX Runtime does it, also where a last place of float32 decides.

The cases have sums for which one factor of both scales, or one rounding of product and sum, gives a neighbour.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import pipeline
from tests.support.onnx_models import Arrays, by_onnxruntime, in_stages, node, save

SUMS = [
    (0.2233, 0.0058, 0.0945, 221, 52, 158),
    (0.0155, 0.0118, 0.0944, 250, 96, 47),
    (0.0598, 0.0328, 0.299, 125, 25, 21),
    (0.0175, 0.006, 0.0808, 202, 40, 10),
]
"""Scales of data, weights and result; a byte of each operand, and the result."""

ADDENDS = [
    (0.0098, 0.0385, 0.0322, 51, 5, 21),
    (0.3267, 0.2616, 0.3922, 89, 89, 133),
    (0.1317, 0.2913, 0.282, 9, 9, 14),
    (0.0201, 0.3237, 0.2292, 77, 77, 115),
]
"""The same of a sum of two tensors, where a fused multiply-add rounds to a neighbour."""

SCALES = [
    (0.056, 0.096, {-114: -66, -90: -52, -66: -38}),
    (0.038, 0.048, {-108: -86, -60: -48, -12: -9}),
    (0.087, 0.088, {-44: -44, 44: 44}),
    (0.085, 0.016, {24: 127}),
    (0.05, 0.1, {-3: -2, -1: 0, 1: 0, 3: 2, 5: 2}),
]
"""Scales of bytes and of others; bytes, and those that they become, which one factor of both scales may miss."""

CHANNELS = 8
LITERAL = "x xs z w ws wz ys z"
READ = [node("DequantizeLinear", "x xs z", "a"), node("DequantizeLinear", "w ws wz", "b")]
WRITE = [node("QuantizeLinear", "c ys z", "y")]
FORMS = {
    "QLinearConv": ((1, CHANNELS, 3, 4), [node("QLinearConv", LITERAL, "y")]),
    "QLinearMatMul": ((5, CHANNELS), [node("QLinearMatMul", LITERAL, "y")]),
    "QLinearMatMul of three axes": ((2, 3, CHANNELS), [node("QLinearMatMul", LITERAL, "y")]),
    "Conv": ((1, CHANNELS, 3, 4), [*READ, node("Conv", "a b", "c"), *WRITE]),
    "depthwise": ((1, CHANNELS, 3, 4), [*READ, node("Conv", "a b", "c", group=CHANNELS), *WRITE]),
    "MatMul": ((5, CHANNELS), [*READ, node("MatMul", "a b", "c"), *WRITE]),
    "MatMul of four axes": ((1, 2, 3, CHANNELS), [*READ, node("MatMul", "a b", "c"), *WRITE]),
}


def constants(scales: tuple[float, float, float], weights: np.ndarray, zero: int) -> Arrays:
    """Return all that a form reads beside its data."""
    arrays: Arrays = {name: np.array(value, np.float32) for name, value in zip(("xs", "ws", "ys"), scales, strict=True)}
    return arrays | {"w": weights, "z": np.array(0, np.uint8), "wz": np.array(zero, weights.dtype)}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("form", FORMS)
def test_sums_of_products_are_rounded_in_float32(form: str, dtype: str, tmp_path: Path) -> None:
    shape, nodes = FORMS[form]
    by_rows = "MatMul" in form
    for number, (*scales, data, weight, expected) in enumerate(SUMS):
        zero = 100 if dtype == "uint8" else 0
        weights = np.full((CHANNELS, 1 if form == "depthwise" else CHANNELS), zero, dtype)
        weights[:, 0] = weight + zero
        # An odd output, whose weights without zero point are no signed bytes if they are unsigned.
        weights[-1] = 255 if zero else -128
        weights = weights.T.copy() if by_rows else weights[:, :, None, None]
        arrays = constants((scales[0], scales[1], scales[2]), weights, zero)
        kinds = dict.fromkeys("xy", TensorProto.UINT8)
        path = save(tmp_path / f"{number}.onnx", nodes, {"x": shape}, ["y"], arrays, dtypes=kinds)
        frame = {"x": np.full(shape, data, np.uint8)}
        result = in_stages(pipeline.read(path), [], frame)["y"]
        channels = np.moveaxis(result, -1 if by_rows else 1, 0)[:-1]
        assert np.unique(channels).tolist() == [expected], SUMS[number]
        if form.startswith("QLinear"):
            np.testing.assert_array_equal(result, by_onnxruntime(path, frame, fused=False)["y"])


def test_sums_of_tensors_have_addends_in_float32(tmp_path: Path) -> None:
    shape = (1, 4, 8, 8)
    nodes = [*READ, node("Add", "a b", "c"), *WRITE]
    for number, (*scales, first, second, expected) in enumerate(ADDENDS):
        arrays = constants((scales[0], scales[1], scales[2]), np.zeros(0, np.uint8), 0)
        del arrays["w"]
        kinds = dict.fromkeys("xwy", TensorProto.UINT8)
        path = save(tmp_path / f"{number}.onnx", nodes, {"x": shape, "w": shape}, ["y"], arrays, dtypes=kinds)
        frame = {"x": np.full(shape, first, np.uint8), "w": np.full(shape, second, np.uint8)}
        result = in_stages(pipeline.read(path), [], frame)["y"]
        assert np.unique(result).tolist() == [expected], ADDENDS[number]
        np.testing.assert_array_equal(result, by_onnxruntime(path, frame, fused=False)["y"])


@pytest.mark.parametrize(("source", "target", "results"), SCALES)
def test_bytes_change_their_scale_as_numbers_would(
    source: float, target: float, results: dict[int, int], tmp_path: Path
) -> None:
    arrays: Arrays = {name: np.array(value, np.float32) for name, value in (("s", source), ("t", target))}
    arrays |= {"zs": np.array(120, np.uint8), "zt": np.array(110, np.uint8)}
    # Pooling leaves the bytes as they are, in the layout in which tensors are joined.
    nodes = [
        node("DequantizeLinear", "x s zs", "a"), node("MaxPool", "a", "b", kernel_shape=[1, 1]),
        node("QuantizeLinear", "b s zs", "c"), node("DequantizeLinear", "c s zs", "d"),
        node("Concat", "d d", "e", axis=1), node("QuantizeLinear", "e t zt", "y"),
    ]  # fmt: skip
    shape = (1, 4, 8, len(results))
    kinds = dict.fromkeys("xy", TensorProto.UINT8)
    path = save(tmp_path / "m.onnx", nodes, {"x": shape}, ["y"], arrays, dtypes=kinds)
    data = np.broadcast_to(np.array(list(results), np.int64) + 120, shape).astype(np.uint8)
    result = in_stages(pipeline.read(path), [], {"x": data})["y"]
    assert np.unique(result.reshape(-1, len(results)).astype(int) - 110, axis=0).tolist() == [list(results.values())]
