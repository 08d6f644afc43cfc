"""TFLite models, written here operator by operator, compute what LiteRT computes, under their own names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
schema = pytest.importorskip("ai_edge_litert.schema_py_generated", reason="LiteRT is not installed")
import flatbuffers  # noqa: E402

import pipeline  # noqa: E402
from pipeline.core.tensor_quantization import Quantization  # noqa: E402
from pipeline.errors import ModelError  # noqa: E402
from pipeline.model.operators import operator_family  # noqa: E402
from pipeline.split.output_quantization import input_quantization, output_quantization  # noqa: E402
from tests.support.onnx_models import kinds, weights  # noqa: E402

Kind = schema.BuiltinOperator
SAME, VALID = schema.Padding.SAME, schema.Padding.VALID
RELU, RELU6 = schema.ActivationFunctionType.RELU, schema.ActivationFunctionType.RELU6
TANH = schema.ActivationFunctionType.TANH
DTYPES = {
    "float32": schema.TensorType.FLOAT32,
    "float16": schema.TensorType.FLOAT16,
    "int32": schema.TensorType.INT32,
    "bool": schema.TensorType.BOOL,
    "int64": schema.TensorType.INT64,
    "int8": schema.TensorType.INT8,
    "uint8": schema.TensorType.UINT8,
}


class Writer:
    """A model that grows by operators."""

    def __init__(self, *shape: int) -> None:
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self.model = schema.ModelT()
        self.model.version, self.model.subgraphs, self.model.operatorCodes = 3, [self.graph], []
        self.model.buffers = [schema.BufferT()]
        self.graph.inputs = [self.tensor("x", shape)]

    def tensor(self, name: str, shape: Any, dtype: str = "float32", scale: float = 0, zero: int = 0) -> int:
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name, list(shape), DTYPES[dtype], 0
        if scale:
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale, tensor.quantization.zeroPoint = [scale], [zero]
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def constant(self, name: str, values: Any, scale: float = 0) -> int:
        array = np.asarray(values)
        number = self.tensor(name, array.shape, str(array.dtype), scale)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(array.tobytes(), np.uint8)
        self.model.buffers.append(buffer)
        self.graph.tensors[number].buffer = len(self.model.buffers) - 1
        return number

    def add(self, kind: str, inputs: list[int], result: int, **options: Any) -> int:
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(Kind, kind)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.version = 5 if "int8" in options else 1
        self.model.operatorCodes.append(code)
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self.model.operatorCodes) - 1
        operator.inputs, operator.outputs = inputs, [result]
        if name := options.pop("options", None):
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, name)
            operator.builtinOptions = getattr(schema, f"{name}T")()
            for key, value in options.items():
                setattr(operator.builtinOptions, key, value)
        self.graph.operators.append(operator)
        return result

    def save(self, path: Path, *outputs: int) -> Path:
        self.graph.outputs = list(outputs)
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        path.write_bytes(bytes(builder.Output()))
        return path


def conv(writer: Writer, read: int, name: str, shape: Any, channels: tuple[int, int], *, stride: int = 1) -> int:
    kernel = writer.constant(f"{name}/kernel", weights(channels[1], 3, 3, channels[0]) / 5)
    bias = writer.constant(f"{name}/bias", weights(channels[1]))
    return writer.add(
        "CONV_2D", [read, kernel, bias], writer.tensor(name, shape), options="Conv2DOptions", padding=SAME,
        strideW=stride, strideH=stride, dilationWFactor=1, dilationHFactor=1, fusedActivationFunction=RELU,
    )  # fmt: skip


def classifier(path: Path) -> Path:
    """Convolutions, plain and by channel, a skip, pooling, a dense layer and a softmax."""
    writer = Writer(1, 16, 16, 3)
    first = conv(writer, 0, "stem", (1, 8, 8, 8), (3, 8), stride=2)
    kernel, bias = writer.constant("dw/kernel", weights(1, 3, 3, 8)), writer.constant("dw/bias", weights(8))
    deep = writer.add(
        "DEPTHWISE_CONV_2D", [first, kernel, bias], writer.tensor("dw", (1, 8, 8, 8)),
        options="DepthwiseConv2DOptions", padding=SAME, strideW=1, strideH=1, depthMultiplier=1, dilationWFactor=1,
        dilationHFactor=1, fusedActivationFunction=RELU6,
    )  # fmt: skip
    second = conv(writer, deep, "pw", (1, 8, 8, 8), (8, 8))
    extra_rows = writer.add("ADD", [first, second], writer.tensor("skip", (1, 8, 8, 8)), options="AddOptions")
    swish = writer.add("HARD_SWISH", [extra_rows], writer.tensor("swish", (1, 8, 8, 8)))
    pool = writer.add(
        "MAX_POOL_2D", [swish], writer.tensor("pool", (1, 4, 4, 8)), options="Pool2DOptions", padding=VALID,
        strideW=2, strideH=2, filterWidth=2, filterHeight=2,
    )  # fmt: skip
    axes = writer.constant("axes", np.array([1, 2], np.int32))
    mean = writer.add("MEAN", [pool, axes], writer.tensor("mean", (1, 8)), options="ReducerOptions")
    dense = writer.add(
        "FULLY_CONNECTED",
        [mean, writer.constant("fc/kernel", weights(5, 8)), writer.constant("fc/bias", weights(5))],
        writer.tensor("logits", (1, 5)), options="FullyConnectedOptions",
    )  # fmt: skip
    result = writer.add("SOFTMAX", [dense], writer.tensor("probabilities", (1, 5)), options="SoftmaxOptions", beta=1.0)
    return writer.save(path, result)


def byte_convolutions(path: Path) -> Path:
    """Two convolutions of int8, named ``first`` and ``second``, between real numbers."""
    writer = Writer(1, 6, 6, 4)
    kernel = np.random.default_rng(0).integers(-127, 127, (4, 3, 3, 4)).astype(np.int8)
    last = writer.add("QUANTIZE", [0], writer.tensor("q", (1, 6, 6, 4), "int8", 0.03, 3))
    for name in ("first", "second"):
        constants = [
            writer.constant(f"{name}/w", kernel, 0.002),
            writer.constant(f"{name}/b", np.zeros(4, np.int32), 6e-5),
        ]
        last = writer.add(
            "CONV_2D", [last, *constants], writer.tensor(name, (1, 6, 6, 4), "int8", 0.03, 3), options="Conv2DOptions",
            padding=SAME, strideW=1, strideH=1, dilationWFactor=1, dilationHFactor=1,
        )  # fmt: skip
    return writer.save(path, writer.add("DEQUANTIZE", [last], writer.tensor("y", (1, 6, 6, 4))))


def test_a_classifier(tmp_path: Path) -> None:
    path = classifier(tmp_path / "net.tflite")
    graph = pipeline.read(path)
    assert (graph.name, graph.inputs[0].name, graph.outputs[0].name) == ("net", "x", "probabilities")
    assert {"stem", "dw", "pw", "skip", "swish", "pool", "mean", "logits"} <= {*graph.tensors, *graph.aliases}
    assert pipeline.verify(graph, path).relative < 1e-5
    plan = pipeline.plan(graph, cuts=["stem", "pool"])
    assert pipeline.build(graph, plan).parity.relative < 1e-5


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    """LiteRT takes no such names."""
    path = classifier(tmp_path / os.fsdecode(b"m\xff.tflite"))
    assert pipeline.verify(pipeline.read(path), path).relative < 1e-5


def test_the_images_are_not_transposed(tmp_path: Path) -> None:
    assert "permute_dims" not in kinds(pipeline.read(classifier(tmp_path / "net.tflite")))


@pytest.mark.parametrize(
    ("kind", "target_shape", "extra", "options"),
    [
        ("RELU", None, [], {}),
        ("RELU6", None, [], {}),
        ("LOGISTIC", None, [], {}),
        ("TANH", None, [], {}),
        ("SUB", None, [weights(8)], {"options": "SubOptions"}),
        ("MUL", None, [weights(1, 6, 6, 8)], {"options": "MulOptions", "fusedActivationFunction": RELU}),
        ("RESHAPE", (1, 36, 8), [np.array([1, 36, 8], np.int32)], {}),
        ("CONCATENATION", (1, 6, 6, 12), [weights(1, 6, 6, 4)], {"options": "ConcatenationOptions", "axis": 3}),
        ("PAD", (1, 8, 9, 8), [np.array([[0, 0], [1, 1], [1, 2], [0, 0]], np.int32)], {}),
        ("TRANSPOSE", (1, 8, 6, 6), [np.array([0, 3, 1, 2], np.int32)], {}),
        ("RESIZE_BILINEAR", (1, 12, 9, 8), [np.array([12, 9], np.int32)], {"options": "ResizeBilinearOptions"}),
        (
            "RESIZE_BILINEAR", (1, 12, 12, 8), [np.array([12, 12], np.int32)],
            {"options": "ResizeBilinearOptions", "halfPixelCenters": True},
        ),
        (
            "RESIZE_NEAREST_NEIGHBOR", (1, 12, 12, 8), [np.array([12, 12], np.int32)],
            {"options": "ResizeNearestNeighborOptions"},
        ),
        (
            "AVERAGE_POOL_2D", (1, 3, 3, 8), [],
            {"options": "Pool2DOptions", "padding": SAME, "strideW": 2, "strideH": 2, "filterWidth": 3,
             "filterHeight": 3},
        ),
    ],
)  # fmt: skip
def test_operators(tmp_path: Path, kind: str, target_shape: Any, extra: Any, options: Any) -> None:
    writer = Writer(1, 6, 6, 8)
    inputs = [0, *(writer.constant(f"c{number}", value) for number, value in enumerate(extra))]
    result = writer.add(kind, inputs, writer.tensor("y", target_shape or (1, 6, 6, 8)), **options)
    path = writer.save(tmp_path / "m.tflite", result)
    assert pipeline.verify(pipeline.read(path), path).relative < 1e-5


def test_whole_numbers(tmp_path: Path) -> None:
    """Quantized: a convolution of int8, between QUANTIZE and DEQUANTIZE."""
    writer = Writer(1, 6, 6, 4)
    quantized_input = writer.add("QUANTIZE", [0], writer.tensor("q", (1, 6, 6, 4), "int8", 0.03, 3))
    kernel = np.random.default_rng(0).integers(-127, 127, (4, 3, 3, 4)).astype(np.int8)
    bias = np.array([10, -200, 300, 0], np.int32)
    convolution = writer.add(
        "CONV_2D",
        [quantized_input, writer.constant("kernel", kernel, 0.002), writer.constant("bias", bias, 0.03 * 0.002)],
        writer.tensor("c", (1, 6, 6, 4), "int8", 0.05, -5), options="Conv2DOptions", padding=SAME, strideW=1,
        strideH=1, dilationWFactor=1, dilationHFactor=1, fusedActivationFunction=RELU,
    )  # fmt: skip
    result = writer.add("DEQUANTIZE", [convolution], writer.tensor("y", (1, 6, 6, 4)))
    path = writer.save(tmp_path / "m.tflite", result)
    # Both round, and not at the same place: one step of 0.05.
    output = pipeline.verify(pipeline.read(path), path, tolerance=0.05)
    assert output.largest_error <= 0.051


def test_operations_do_not_depend_on_the_layout_of_weights(tmp_path: Path) -> None:
    """TFLite has channels last, in data and in kernels, and its depthwise kernels are of yet another order."""
    graph = pipeline.read(classifier(tmp_path / "m.tflite"))
    flops = [operator.flops for operator in graph.operators if operator.kind == "conv2d"]
    # With a bias and an activation.
    assert flops == [2 * 64 * 8 * (each + 1) for each in (9 * 3, 9, 9 * 8)]
    convolutions = [call for operator in graph.operators for call in operator.calls if call.kind == "conv2d"]
    families = [operator_family(call.kind, call.lines[0].value) for call in convolutions]
    assert families == ["convolution", "depthwise", "convolution"]


def test_the_scale_of_scores_in_whole_numbers_is_known(tmp_path: Path) -> None:
    writer = Writer(1, 4)
    numbers = writer.add("QUANTIZE", [0], writer.tensor("q", (1, 4), "int8", 0.5, 3))
    result = writer.add(
        "SOFTMAX", [numbers], writer.tensor("y", (1, 4), "int8", 1 / 256, -128), options="SoftmaxOptions", beta=1.0
    )
    graph = pipeline.read(writer.save(tmp_path / "m.tflite", result))
    assert output_quantization(graph) == (Quantization("y", (1 / 256,), (-128,)),)
    assert not input_quantization(graph)


def test_the_scale_of_an_input_in_whole_numbers_is_known(tmp_path: Path) -> None:
    writer = Writer(1, 4)
    writer.graph.inputs = [writer.tensor("pixels", (1, 4), "int8", 0.5, 3)]
    result = writer.add("DEQUANTIZE", [*writer.graph.inputs], writer.tensor("y", (1, 4)))
    graph = pipeline.read(writer.save(tmp_path / "m.tflite", result))
    assert input_quantization(graph) == (Quantization("pixels", (0.5,), (3,)),)


def test_unsupported_operators_are_named_at_once(tmp_path: Path) -> None:
    writer = Writer(1, 4)
    first = writer.add("SKIP_GRAM", [0], writer.tensor("a", (1, 4)))
    two = writer.add("LSH_PROJECTION", [first], writer.tensor("y", (1, 4)))
    with pytest.raises(ModelError, match="uses operators that are not supported") as failure:
        pipeline.read(writer.save(tmp_path / "m.tflite", two), fallback=False)
    assert str(failure.value).endswith(": SKIP_GRAM (that makes 'a'); LSH_PROJECTION (that makes 'y')")


def test_a_damaged_file(tmp_path: Path) -> None:
    data = classifier(tmp_path / "net.tflite").read_bytes()
    for size in (8, 100, len(data) // 2):
        (tmp_path / "half.tflite").write_bytes(data[:size])
        with pytest.raises(ModelError, match="is not a valid TFLite model"):
            pipeline.read(tmp_path / "half.tflite")


def test_names_that_are_not_unique(tmp_path: Path) -> None:
    writer = Writer(1, 4)
    first = writer.add("RELU", [0], writer.tensor("a", (1, 4)))
    second = writer.add("TANH", [first], writer.tensor("a", (1, 4)))
    third = writer.add("ABS", [second], writer.tensor("", (1, 4)))
    path = writer.save(tmp_path / "m.tflite", second, third)
    graph = pipeline.read(path)
    assert [*graph.tensors] == ["x", "a", "a2", "tensor_3"]
    assert pipeline.verify(graph, path).relative < 1e-5


def test_what_the_delegate_of_litert_refuses(tmp_path: Path) -> None:
    """It claims to resize from one scale to another, and then does not; LiteRT's own kernels do."""
    writer = Writer(1, 1, 1, 4)
    quantized_input = writer.add("QUANTIZE", [0], writer.tensor("q", (1, 1, 1, 4), "int8", 0.03, 3))
    size = writer.constant("size", np.array([33, 33], np.int32))
    resized = writer.add(
        "RESIZE_BILINEAR", [quantized_input, size], writer.tensor("r", (1, 33, 33, 4), "int8", 0.05, 3),
        options="ResizeBilinearOptions", alignCorners=True,
    )  # fmt: skip
    path = writer.save(tmp_path / "m.tflite", writer.add("DEQUANTIZE", [resized], writer.tensor("y", (1, 33, 33, 4))))
    assert pipeline.verify(pipeline.read(path), path).relative < 1e-5


def test_shapes_are_fixed(tmp_path: Path) -> None:
    path = classifier(tmp_path / "net.tflite")
    assert pipeline.read(path, {"x": (1, 16, 16, 3)}).inputs[0].shape == (1, 16, 16, 3)
    with pytest.raises(ModelError, match=r"input 'x' has a fixed extent 16 where the shape \[1, 8, 8, 3\] has 8"):
        pipeline.read(path, {"x": (1, 8, 8, 3)})
    with pytest.raises(ModelError, match="has no input 'data'; it has x"):
        pipeline.read(path, {"data": (1, 8, 8, 3)})
