"""Sums are requantised as ONNX Runtime does it, also where a last place of float32 decides.

The cases have sums for which one factor of both scales, or one rounding of product and sum, gives a neighbour.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import TensorProto

import pipeline
from tests.support.onnx_models import Arrays, by_onnxruntime, in_stages, node, save

pytestmark = pytest.mark.thorough

SUMS = [
    (0.2233, 0.0058, 0.0945, 221, 52, 158),
    (0.0598, 0.0328, 0.299, 125, 25, 21),
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


class Form(NamedTuple):
    """Shapes of data and weights, the nodes, and the weights' axes of terms and outputs."""

    data: tuple[int, ...]
    weights: tuple[int, ...]
    nodes: list[Any]
    terms: int = 1
    outputs: int = 0
    is_variable: bool = False


def literal(kind: str, **attributes: Any) -> list[Any]:
    """Return the operator of ONNX that is quantised."""
    return [node(kind, LITERAL, "y", **attributes)]


def real(kind: str, **attributes: Any) -> list[Any]:
    """Return an operator between those that dequantise and quantise."""
    return [*READ, node(kind, "a b", "c", **attributes), *WRITE]


LINE, IMAGE, VOLUME = (1, CHANNELS, 6), (1, CHANNELS, 3, 4), (1, CHANNELS, 2, 3, 4)
SQUARE = (CHANNELS, CHANNELS)
FORMS = {
    "QLinearConv": Form(IMAGE, (*SQUARE, 1, 1), literal("QLinearConv")),
    "QLinearConv of lines": Form(LINE, (*SQUARE, 1), literal("QLinearConv")),
    "QLinearConv of volumes": Form(VOLUME, (*SQUARE, 1, 1, 1), literal("QLinearConv")),
    "QLinearConv in groups": Form(IMAGE, (CHANNELS, 4, 1, 1), literal("QLinearConv", group=2)),
    "QLinearConv of two tensors": Form(IMAGE, (*SQUARE, 1, 1), literal("QLinearConv"), is_variable=True),
    "QLinearMatMul": Form((5, CHANNELS), SQUARE, literal("QLinearMatMul"), -2, -1),
    "QLinearMatMul of three axes": Form((2, 3, CHANNELS), SQUARE, literal("QLinearMatMul"), -2, -1),
    "QLinearMatMul of two tensors": Form((2, 3, CHANNELS), (2, *SQUARE), literal("QLinearMatMul"), -2, -1, True),
    "Conv": Form(IMAGE, (*SQUARE, 1, 1), real("Conv")),
    "Conv of lines": Form(LINE, (*SQUARE, 1), real("Conv")),
    "Conv of lines in groups": Form(LINE, (CHANNELS, 4, 1), real("Conv", group=2)),
    "Conv of volumes": Form(VOLUME, (*SQUARE, 1, 1, 1), real("Conv")),
    "Conv of two tensors": Form(IMAGE, (*SQUARE, 1, 1), real("Conv"), is_variable=True),
    "Conv in groups": Form(IMAGE, (CHANNELS, 4, 1, 1), real("Conv", group=2)),
    "depthwise": Form(IMAGE, (CHANNELS, 1, 1, 1), real("Conv", group=CHANNELS)),
    "depthwise of lines": Form(LINE, (CHANNELS, 1, 1), real("Conv", group=CHANNELS)),
    "ConvTranspose": Form(IMAGE, (*SQUARE, 1, 1), real("ConvTranspose"), 0, 1),
    "ConvTranspose of lines": Form(LINE, (*SQUARE, 1), real("ConvTranspose"), 0, 1),
    "MatMul": Form((5, CHANNELS), SQUARE, real("MatMul"), -2, -1),
    "MatMul of four axes": Form((1, 2, 3, CHANNELS), SQUARE, real("MatMul"), -2, -1),
    "MatMul by several matrices": Form((2, 3, CHANNELS), (2, *SQUARE), real("MatMul"), -2, -1),
    "MatMul of two tensors": Form((1, 2, 3, CHANNELS), (2, *SQUARE), real("MatMul"), -2, -1, True),
}


def constants(scales: tuple[float, float, float], weights: np.ndarray, zero: int) -> Arrays:
    """Return all that a form reads beside its data."""
    arrays: Arrays = {name: np.array(value, np.float32) for name, value in zip(("xs", "ws", "ys"), scales, strict=True)}
    return arrays | {"w": weights, "z": np.array(0, np.uint8), "wz": np.array(zero, weights.dtype)}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.one_in(2)
def test_sums_of_products_are_rounded_in_float32(form: str, dtype: str, tmp_path: Path) -> None:
    shape, size, nodes, terms, outputs, is_variable = FORMS[form]
    kinds = {"x": TensorProto.UINT8, "y": TensorProto.UINT8, "w": getattr(TensorProto, dtype.upper())}
    for number, (*scales, data, weight, expected) in enumerate(SUMS):
        zero = 100 if dtype == "uint8" else 0
        weights = np.full(size, zero, dtype)
        np.moveaxis(weights, terms, 0)[0] = weight + zero
        # An odd output, whose weights without zero point are no signed bytes if they are unsigned.
        np.moveaxis(weights, outputs, 0)[-1] = 255 if zero else -128
        arrays = constants((scales[0], scales[1], scales[2]), weights, zero)
        frame = {"x": np.full(shape, data, np.uint8)}
        if is_variable:
            frame["w"] = arrays.pop("w")
        shapes = {name: value.shape for name, value in frame.items()}
        path = save(tmp_path / f"{number}.onnx", nodes, shapes, ["y"], arrays, dtypes=kinds)
        result = in_stages(pipeline.read(path), [], frame)["y"]
        channels = np.moveaxis(result, -1 if "MatMul" in form else 1, 0)[:-1]
        assert np.unique(channels).tolist() == [expected], SUMS[number]
        if form.startswith("QLinear"):
            np.testing.assert_array_equal(result, by_onnxruntime(path, frame, fused=False)["y"])


@pytest.mark.parametrize("is_variable", [False, True])
def test_sums_beyond_float32_are_integers(is_variable: bool, tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    # Both have a sum of their own that is large, and what is odd decides between neighbours.
    data, weights = (
        generator.integers(0, 256, (2, 160, 1200), np.uint8),
        generator.integers(0, 256, (2, 1200, 160), np.uint8),
    )
    arrays = constants((0.0123, 0.0171, 2.9), weights, 128)
    frame = {"x": data}
    if is_variable:
        frame["w"] = arrays.pop("w")
    shapes = {name: value.shape for name, value in frame.items()}
    kinds = dict.fromkeys("xwy", TensorProto.UINT8)
    path = save(tmp_path / "m.onnx", literal("QLinearMatMul"), shapes, ["y"], arrays, dtypes=kinds)
    sums = data.astype(np.float64) @ (weights.astype(np.float64) - 128)
    factor = np.float32(0.0123) * np.float32(0.0171) / np.float32(2.9)
    expected = np.clip(np.rint(sums.astype(np.float32) * factor), 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(in_stages(pipeline.read(path), [], frame)["y"], expected)


@pytest.mark.parametrize(("shape", "window"), [((1, 12, 20), (3,)), ((1, 12, 4, 5, 6), (2, 3, 2))])
@pytest.mark.parametrize("groups", [1, 3])
def test_channels_have_scales_and_biases(
    shape: tuple[int, ...], window: tuple[int, ...], groups: int, tmp_path: Path
) -> None:
    generator = np.random.default_rng(5)
    weights = generator.integers(-128, 128, (6, shape[1] // groups, *window)).astype(np.int8)
    arrays = constants((0.05, 0.0, 3.0), weights, 0) | {"z": np.array(120, np.uint8)}
    arrays |= {"ws": generator.uniform(0.004, 0.02, 6).astype(np.float32), "wz": np.zeros(6, np.int8)}
    arrays["b"] = generator.integers(-40000, 40000, 6).astype(np.int32)
    path = save(
        tmp_path / "m.onnx", [node("QLinearConv", f"{LITERAL} b", "y", group=groups)], {"x": shape}, ["y"], arrays,
        dtypes=dict.fromkeys("xy", TensorProto.UINT8),
    )  # fmt: skip
    frame = {"x": generator.integers(0, 256, shape, np.uint8)}
    result = in_stages(pipeline.read(path), [], frame)["y"]
    np.testing.assert_array_equal(result, by_onnxruntime(path, frame, fused=False)["y"])


def test_transposed_groups_have_scales_of_their_channels(tmp_path: Path) -> None:
    generator = np.random.default_rng(7)
    weights = generator.integers(-128, 128, (6, 2, 3, 3)).astype(np.int8)
    arrays = constants((0.05, 0.0, 3.0), weights, 0) | {"z": np.array(120, np.uint8)}
    arrays |= {"ws": np.array([0.004, 0.02], np.float32), "wz": np.zeros(2, np.int8)}
    nodes = [
        READ[0], node("DequantizeLinear", "w ws wz", "b", axis=1),
        node("ConvTranspose", "a b", "d", group=3, strides=[2, 1]), node("Relu", "d", "c"), *WRITE,
    ]  # fmt: skip
    kinds = dict.fromkeys("xy", TensorProto.UINT8)
    path = save(tmp_path / "m.onnx", nodes, {"x": (1, 6, 7, 5)}, ["y"], arrays, dtypes=kinds)
    frame = {"x": generator.integers(0, 256, (1, 6, 7, 5), np.uint8)}
    result = in_stages(pipeline.read(path), [], frame)["y"].astype(int)
    assert np.abs(result - by_onnxruntime(path, frame, fused=False)["y"]).max() <= 1


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


@pytest.mark.parametrize("scale", [0.25, 0.0123, 0.0471, 0.3267, 7.9, 1e20])
def test_numbers_beside_halves_are_rounded_as_quotients(scale: float, tmp_path: Path) -> None:
    """Two products in place of a division have to round each neighbour of a half to the same side."""
    divisor = np.float32(scale)
    halves = (np.arange(-130, 130, dtype=np.float32) + np.float32(0.5)) * divisor
    neighbours = (halves.view(np.int32)[:, None] + np.arange(-4, 5, dtype=np.int32)).view(np.float32).reshape(1, -1)
    x = np.concatenate([neighbours, np.array([[np.inf, -np.inf, 0, 3e38, -3e38, 1e-38]], np.float32)], 1)
    arrays: Arrays = {"s": np.array(divisor), "z": np.array(5, np.int8)}
    nodes = [node("QuantizeLinear", "x s z", "y")]
    path = save(tmp_path / "m.onnx", nodes, {"x": x.shape}, ["y"], arrays, dtypes={"y": TensorProto.INT8})
    with np.errstate(over="ignore"):
        expected = np.clip(np.rint(x / divisor) + 5, -128, 127).astype(np.int8)
    np.testing.assert_array_equal(in_stages(pipeline.read(path), [], {"x": x})["y"], expected)


@pytest.mark.parametrize("rectified", [False, True])
def test_all_sums_of_two_bytes_are_exact(rectified: bool, tmp_path: Path) -> None:
    scales = {"s": 0.0471, "t": 0.0123, "u": 0.0379}
    zeros: Arrays = {"p": np.array(3, np.uint8), "q": np.array(-7, np.int8), "r": np.array(40, np.uint8)}
    arrays = zeros | {name: np.array(value, np.float32) for name, value in scales.items()}
    first, second = (grid.reshape(1, 4, 128, 128) for grid in np.meshgrid(np.arange(256), np.arange(256) - 128))
    # Pooling leaves the bytes as they are, in the layout in which images are added.
    nodes = [
        node("DequantizeLinear", "x s p", "a"), node("MaxPool", "a", "b", kernel_shape=[1, 1]),
        node("QuantizeLinear", "b s p", "c"), node("DequantizeLinear", "c s p", "d"),
        node("DequantizeLinear", "w t q", "e"), node("MaxPool", "e", "f", kernel_shape=[1, 1]),
        node("QuantizeLinear", "f t q", "g"), node("DequantizeLinear", "g t q", "h"),
        node("Add", "d h", "i"), *([node("Relu", "i", "j")] if rectified else []),
        node("QuantizeLinear", f"{'j' if rectified else 'i'} u r", "y"),
    ]  # fmt: skip
    kinds = {"x": TensorProto.UINT8, "w": TensorProto.INT8, "y": TensorProto.UINT8}
    shapes = dict.fromkeys("xw", first.shape)
    path = save(tmp_path / "m.onnx", nodes, shapes, ["y"], arrays, dtypes=kinds)
    total = (first - 3).astype(np.float32) * arrays["s"] + (second + 7).astype(np.float32) * arrays["t"]
    total = np.maximum(total, 0) if rectified else total
    expected = np.clip(np.rint(total / arrays["u"]) + 40, 0, 255).astype(np.uint8)
    frame = {"x": first.astype(np.uint8), "w": second.astype(np.int8)}
    np.testing.assert_array_equal(in_stages(pipeline.read(path), [], frame)["y"], expected)
