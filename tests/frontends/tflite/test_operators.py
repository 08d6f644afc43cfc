"""Operators of TFLite as LiteRT computes them, above all those that TVM's importer refuses or gets wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
schema = pytest.importorskip("ai_edge_litert.schema_py_generated", reason="LiteRT is not installed")

import pipeline  # noqa: E402
from pipeline.errors import StageError  # noqa: E402
from pipeline.frontends.tflite.reference import evaluate  # noqa: E402
from tests.frontends.tflite.test_tflite import RELU, SAME, TANH, VALID, Writer  # noqa: E402
from tests.support.onnx_models import weights  # noqa: E402

INT32 = schema.TensorType.INT32
WIDE = np.array([[0, 0], [1, 1], [2, 1], [0, 0]], np.int32)


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def largest_share(folder: Path, build: Callable[[Writer], int]) -> float:
    writer = Writer(1, 6, 6, 8)
    path = writer.save(folder / "m.tflite", build(writer))
    return pipeline.verify(pipeline.read(path), path).relative


@pytest.mark.parametrize(
    ("extent", "window", "stride", "padding", "bias", "activation"),
    [
        (12, 3, 2, SAME, False, 0),
        (11, 3, 2, SAME, True, 0),
        (12, 2, 2, SAME, True, RELU),
        (12, 4, 2, SAME, False, 0),
        (6, 3, 1, SAME, False, 0),
        (18, 2, 3, SAME, True, 0),
        (13, 3, 2, VALID, False, 0),
        (14, 3, 2, VALID, True, RELU),
    ],
)
def test_transposed_convolutions(  # noqa: PLR0917
    tmp_path: Path, extent: int, window: int, stride: int, padding: int, bias: bool, activation: int
) -> None:
    def build(writer: Writer) -> int:
        shape, kernel = (1, extent, extent, 4), weights(4, window, window, 8) / 5
        inputs = [writer.constant("shape", i32(*shape)), writer.constant("kernel", kernel), 0]
        inputs += [writer.constant("bias", weights(4))] if bias else []
        return writer.add(
            "TRANSPOSE_CONV", inputs, writer.tensor("y", shape), options="TransposeConvOptions", padding=padding,
            strideH=stride, strideW=stride, fusedActivationFunction=activation,
        )  # fmt: skip

    assert largest_share(tmp_path, build) < 1e-5


def test_a_transposed_convolution_of_whole_numbers(tmp_path: Path) -> None:
    writer = Writer(1, 5, 5, 4)
    quantized_input = writer.add("QUANTIZE", [0], writer.tensor("q", (1, 5, 5, 4), "int8", 0.03, 3))
    kernel = np.random.default_rng(0).integers(-127, 127, (4, 3, 3, 4)).astype(np.int8)
    inputs = [writer.constant("shape", i32(1, 10, 10, 4)), writer.constant("kernel", kernel, 0.002), quantized_input]
    convolution = writer.add(
        "TRANSPOSE_CONV", inputs, writer.tensor("c", (1, 10, 10, 4), "int8", 0.05, -5),
        options="TransposeConvOptions", padding=SAME, strideH=2, strideW=2,
    )  # fmt: skip
    result = writer.add("DEQUANTIZE", [convolution], writer.tensor("y", (1, 10, 10, 4)))
    path = writer.save(tmp_path / "m.tflite", result)
    # Both round, and not at the same place: one step of 0.05.
    assert pipeline.verify(pipeline.read(path), path, tolerance=0.05).largest_error <= 0.051


OPERATORS: list[tuple[str, Any, list[Any], dict[str, Any]]] = [
    ("ABS", None, [], {}),
    ("ARG_MAX", (1, 6, 6), [np.int32(3)], {"options": "ArgMaxOptions", "outputType": INT32, "dtype": "int32"}),
    ("ARG_MIN", (1, 6, 6), [np.int32(3)], {"options": "ArgMinOptions", "outputType": INT32, "dtype": "int32"}),
    ("BATCH_MATMUL", (1, 6, 6, 4), [weights(1, 6, 8, 4)], {"options": "BatchMatMulOptions"}),
    ("BATCH_MATMUL", (1, 6, 6, 4), [weights(1, 6, 4, 8)], {"options": "BatchMatMulOptions", "adjY": True}),
    ("ADD", None, [weights(8)], {"options": "AddOptions", "fusedActivationFunction": TANH}),
    ("CONCATENATION", (1, 6, 6, 12), [-weights(1, 6, 6, 4)],
     {"options": "ConcatenationOptions", "axis": 3, "fusedActivationFunction": RELU}),
    ("CONV_2D", (1, 6, 6, 4), [weights(4, 1, 1, 8), weights(4)],
     {"options": "Conv2DOptions", "strideW": 1, "strideH": 1, "fusedActivationFunction": TANH}),
    ("DEPTH_TO_SPACE", (1, 12, 12, 2), [], {"options": "DepthToSpaceOptions", "blockSize": 2}),
    ("DIV", None, [np.abs(weights(8)) + 1], {"options": "DivOptions"}),
    ("ELU", None, [], {}),
    ("EXPAND_DIMS", (1, 1, 6, 6, 8), [np.int32(1)], {}),
    ("FULLY_CONNECTED", (1, 5), [weights(5, 288)], {"options": "FullyConnectedOptions"}),
    ("FULLY_CONNECTED", (36, 5), [weights(5, 8), weights(5)], {"options": "FullyConnectedOptions"}),
    ("FULLY_CONNECTED", (1, 6, 6, 5), [weights(5, 8)], {"options": "FullyConnectedOptions", "keepNumDims": True}),
    ("GATHER", (1, 2, 6, 8), [i32(3, 0)], {"options": "GatherOptions", "axis": 1}),
    ("GELU", None, [], {"options": "GeluOptions"}),
    ("L2_NORMALIZATION", None, [], {"options": "L2NormOptions"}),
    ("LEAKY_RELU", None, [], {"options": "LeakyReluOptions", "alpha": 0.1}),
    ("LOG_SOFTMAX", None, [], {}),
    ("MAXIMUM", None, [weights(8)], {}),
    ("MIRROR_PAD", (1, 8, 9, 8), [WIDE], {"options": "MirrorPadOptions", "mode": 0}),
    ("MIRROR_PAD", (1, 8, 9, 8), [WIDE], {"options": "MirrorPadOptions", "mode": 1}),
    ("PADV2", (1, 8, 9, 8), [WIDE, np.float32(2)], {}),
    ("PRELU", None, [weights(1, 1, 8)], {}),
    ("PRELU", None, [weights(6, 6, 8)], {}),
    ("PRELU", None, [weights(1, 1, 1)], {}),
    ("REDUCE_MAX", (1, 8), [i32(1, 2)], {"options": "ReducerOptions"}),
    ("REVERSE_SEQUENCE", None, [i32(0, 1, 2, 3, 5, 6)],
     {"options": "ReverseSequenceOptions", "seqDim": 2, "batchDim": 1}),
    ("RESIZE_BILINEAR", (1, 11, 11, 8), [i32(11, 11)], {"options": "ResizeBilinearOptions", "alignCorners": True}),
    (
        "RESIZE_NEAREST_NEIGHBOR", (1, 11, 9, 8), [i32(11, 9)],
        {"options": "ResizeNearestNeighborOptions", "alignCorners": True},
    ),
    (
        "RESIZE_NEAREST_NEIGHBOR", (1, 9, 13, 8), [i32(9, 13)],
        {"options": "ResizeNearestNeighborOptions", "halfPixelCenters": True},
    ),
    ("RESIZE_BILINEAR", (1, 1, 1, 8), [i32(1, 1)], {"options": "ResizeBilinearOptions", "alignCorners": True}),
    ("SLICE", (1, 3, 4, 8), [i32(0, 1, 2, 0), i32(1, 3, 4, -1)], {"options": "SliceOptions"}),
    ("SOFTMAX", None, [], {"options": "SoftmaxOptions", "beta": 2.0}),
    ("SPACE_TO_BATCH_ND", (4, 4, 3, 8), [i32(2, 2), np.array([[1, 1], [0, 0]], np.int32)], {}),
    ("SPACE_TO_DEPTH", (1, 3, 3, 32), [], {"options": "SpaceToDepthOptions", "blockSize": 2}),
    ("SQUEEZE", (6, 6, 8), [], {"options": "SqueezeOptions"}),
    ("SQUARED_DIFFERENCE", None, [weights(8)], {}),
    (
        "STRIDED_SLICE", (6, 3, 8), [i32(0, 0, 1, 0), i32(1, 6, 6, 8), i32(1, 1, 2, 1)],
        {"options": "StridedSliceOptions", "shrinkAxisMask": 1},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "target_shape", "extra", "options"), OPERATORS)
def test_operators(tmp_path: Path, kind: str, target_shape: Any, extra: list[Any], options: dict[str, Any]) -> None:
    attributes = dict(options)
    dtype = attributes.pop("dtype", "float32")

    def build(writer: Writer) -> int:
        inputs = [0, *(writer.constant(f"c{number}", value) for number, value in enumerate(extra))]
        return writer.add(kind, inputs, writer.tensor("y", target_shape or (1, 6, 6, 8), dtype), **attributes)

    assert largest_share(tmp_path, build) < 1e-5


@pytest.mark.parametrize(
    ("kind", "target_shape", "extra", "options"),
    [
        ("PRELU", (1, 6, 6, 8), weights(6, 6, 8), {}),
        ("RESIZE_BILINEAR", (1, 1, 5, 8), i32(1, 5), {"options": "ResizeBilinearOptions", "alignCorners": True}),
    ],
)  # fmt: skip
def test_what_tvm_has_in_some_forms_is_compiled_in_all(
    tmp_path: Path, kind: str, target_shape: Any, extra: np.ndarray, options: dict[str, Any]
) -> None:
    writer = Writer(1, 6, 6, 8)
    result = writer.add(kind, [0, writer.constant("c", extra)], writer.tensor("y", target_shape), **options)
    path = writer.save(tmp_path / "m.tflite", result)
    graph = pipeline.read(path)
    assert not graph.islands
    assert pipeline.verify(graph, path).relative < 1e-5


def test_lengths_that_litert_does_not_take(tmp_path: Path) -> None:
    """Of negative ones it moves foreign memory, and ends the process."""
    writer = Writer(3, 5)
    lengths = writer.tensor("lengths", (3,), "int32")
    writer.graph.inputs.append(lengths)
    result = writer.add(
        "REVERSE_SEQUENCE", [0, lengths], writer.tensor("y", (3, 5)), options="ReverseSequenceOptions", seqDim=1,
        batchDim=0,
    )  # fmt: skip
    graph = pipeline.read(writer.save(tmp_path / "m.tflite", result))
    assert not graph.islands
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1), check=False, verify=False)
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    with pipeline.load(bundle) as running:
        for values in (i32(1, 6, 2), i32(1, 2**31 - 1, 0)):
            with pytest.raises(StageError, match="an index is outside of the 5 places"):
                running.submit({"x": x, "lengths": values}).result(60)
        running_result = running.submit({"x": x, "lengths": i32(-1, -(2**31), 2)}).result(60)
    np.testing.assert_array_equal(running_result, [x[0], x[1], [*x[2, 1::-1], *x[2, 2:]]])


def test_there_and_back_with_what_is_cut_off(tmp_path: Path) -> None:
    def build(writer: Writer) -> int:
        blocks, widths = writer.constant("blocks", i32(2, 2)), np.array([[1, 1], [0, 0]], np.int32)
        block_image = writer.add(
            "SPACE_TO_BATCH_ND", [0, blocks, writer.constant("widths", widths)], writer.tensor("apart", (4, 4, 3, 8))
        )
        crops = writer.constant("crops", np.array([[1, 0], [0, 1]], np.int32))
        return writer.add("BATCH_TO_SPACE_ND", [block_image, blocks, crops], writer.tensor("y", (1, 7, 5, 8)))

    assert largest_share(tmp_path, build) < 1e-5


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_numbers_beyond_a_whole_dtype(tmp_path: Path, dtype: str) -> None:
    writer = Writer(8)
    result = writer.add(
        "CAST", [0], writer.tensor("y", (8,), dtype), options="CastOptions", inDataType=schema.TensorType.FLOAT32,
        outDataType=getattr(schema.TensorType, dtype.upper()),
    )  # fmt: skip
    path = writer.save(tmp_path / "m.tflite", result)
    graph = pipeline.read(path)
    values = {"x": np.array([300, -300, 1.9, -1.9, 1e30, -1e30, np.nan, 127.5], np.float32)}
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages=1))) as running:
        np.testing.assert_array_equal(running.submit(values).outputs(30)["y"], evaluate(path, values)[0])
    assert not graph.islands


def test_whole_numbers(tmp_path: Path) -> None:
    """Some operators have kernels of real numbers only."""
    writer = Writer(2, 6)
    writer.graph.tensors[0].type = INT32
    five = writer.constant("five", i32(5))
    squares = writer.add(
        "SQUARED_DIFFERENCE", [0, five], writer.tensor("squares", (2, 6), "int32"), options="SquaredDifferenceOptions"
    )
    powers = writer.add(
        "POW", [0, writer.constant("two", i32(2))], writer.tensor("p", (2, 6), "int32"), options="PowOptions"
    )
    axes = writer.constant("axes", i32(1))
    mean = writer.add("MEAN", [squares, axes], writer.tensor("mean", (2,), "int32"), options="ReducerOptions")
    path = writer.save(tmp_path / "m.tflite", squares, powers, mean)
    assert pipeline.verify(pipeline.read(path), path).largest_error == 0
