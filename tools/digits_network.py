"""Network of the digits' classifier as plain data: an operator table, and its ONNX form.

The table is the only description: training computes with it, and the ONNX file takes its names from it.
An operator's name is also the name of its output tensor, except that the last one's output is ``logits``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.demo.digits import SIDE
from pipeline.system.files import write_atomically
from pipeline.system.optional import require

INPUT, OUTPUT = "image", "logits"
CLASSES = 10
# The default of ONNX and PyTorch; training and file have to have the same.
EPSILON = 1e-5
# Read by releases of ONNX Runtime since 1.12, of 2022.
OPSET, IR_VERSION = 17, 8

Weights = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class NetworkOperator:
    """One row of the table."""

    name: str
    """Name of the layer, such as ``"block1.conv1"``."""
    kind: str
    """ONNX's name of the operator."""
    inputs: tuple[str, ...]
    """Names of the operators read, or ``"image"``."""
    channels: tuple[int, int]
    """Going in and coming out."""


def operators() -> tuple[NetworkOperator, ...]:
    """Return the operators in order, halved evenly around the second pooling."""
    rows = [
        *_convolution("stem", 1, INPUT, (1, 16)),
        *_convolution("stem", 2, "stem.relu1", (16, 32)),
        NetworkOperator("stem.pool", "MaxPool", ("stem.relu2",), (32, 32)),
        *_residual("block1", "stem.pool", 32),
        *_convolution("widen1", 1, "block1.relu2", (32, 64)),
        NetworkOperator("widen1.pool", "MaxPool", ("widen1.relu1",), (64, 64)),
        *_residual("block2", "widen1.pool", 64),
        *_convolution("widen2", 1, "block2.relu2", (64, 80)),
        *_residual("block3", "widen2.relu1", 80),
        NetworkOperator("head.mean", "GlobalAveragePool", ("block3.relu2",), (80, 80)),
        NetworkOperator("head.flatten", "Flatten", ("head.mean",), (80, 80)),
        NetworkOperator("head.dense", "Gemm", ("head.flatten",), (80, CLASSES)),
    ]
    return tuple(rows)


def weight_shapes(operator: NetworkOperator) -> dict[str, tuple[int, ...]]:
    """Return an operator's weight names and shapes, in ONNX's order."""
    entering, leaving = operator.channels
    # Convolutions have no bias: that of the batch norm behind takes its place.
    shapes: dict[str, dict[str, tuple[int, ...]]] = {
        "Conv": {"weight": (leaving, entering, 3, 3)},
        "BatchNormalization": dict.fromkeys(("scale", "bias", "mean", "variance"), (leaving,)),
        "Gemm": {"weight": (leaving, entering), "bias": (leaving,)},
    }
    return {f"{operator.name}.{part}": shape for part, shape in shapes.get(operator.kind, {}).items()}


def flops() -> int:
    """Count a frame's floating-point operations in convolutions and dense layer."""
    total, side = 0, SIDE
    for operator in operators():
        # Convolutions are padded, so that only pooling makes pictures smaller.
        side //= 2 if operator.kind == "MaxPool" else 1
        if operator.kind in ("Conv", "Gemm"):
            positions = side * side if operator.kind == "Conv" else 1
            # A multiplication and an addition for each weight.
            total += 2 * positions * math.prod(next(iter(weight_shapes(operator).values())))
    return total


def save(weights: Weights, path: Path) -> None:
    """Write the network as ONNX, reproducibly for equal weights.

    Raises `MissingExtra` if the package onnx is not installed.
    """
    onnx = require("onnx", "onnx", "writing an ONNX file")
    model = _model(onnx, weights)
    # With shapes inferred, which finds channels that do not fit each other.
    onnx.checker.check_model(model, full_check=True)
    write_atomically(path, model.SerializeToString(deterministic=True))


def _model(onnx: Any, weights: Weights) -> Any:
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [_node(helper, operator) for operator in operators()],
        "digits",
        [helper.make_tensor_value_info(INPUT, floats, [1, 1, SIDE, SIDE])],
        [helper.make_tensor_value_info(OUTPUT, floats, [1, CLASSES])],
        [onnx.numpy_helper.from_array(weights[name], name) for row in operators() for name in weight_shapes(row)],
    )
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="soc-pipeline")


def _node(helper: Any, operator: NetworkOperator) -> Any:
    attributes: dict[str, dict[str, Any]] = {
        "Conv": {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
        "BatchNormalization": {"epsilon": EPSILON},
        "MaxPool": {"kernel_shape": [2, 2], "strides": [2, 2]},
        "Gemm": {"transB": 1},
    }
    inputs = [*operator.inputs, *weight_shapes(operator)]
    # The name of the result is part of what users see.
    output = OUTPUT if operator == operators()[-1] else operator.name
    return helper.make_node(operator.kind, inputs, [output], name=operator.name, **attributes.get(operator.kind, {}))


def _convolution(block: str, number: int, source: str, channels: tuple[int, int]) -> tuple[NetworkOperator, ...]:
    conv, norm, relu = (f"{block}.{part}{number}" for part in ("conv", "bn", "relu"))
    outputs = (channels[1], channels[1])
    return (
        NetworkOperator(conv, "Conv", (source,), channels),
        NetworkOperator(norm, "BatchNormalization", (conv,), outputs),
        NetworkOperator(relu, "Relu", (norm,), outputs),
    )


def _residual(block: str, source: str, width: int) -> tuple[NetworkOperator, ...]:
    channels = (width, width)
    second = _convolution(block, 2, f"{block}.relu1", channels)
    return (
        *_convolution(block, 1, source, channels),
        # Convolution and batch norm: the ReLU comes behind the addition.
        *second[:2],
        NetworkOperator(f"{block}.add", "Add", (f"{block}.bn2", source), channels),
        NetworkOperator(f"{block}.relu2", "Relu", (f"{block}.add",), channels),
    )
