"""Writer of networks as ONNX models: their nodes and constants, one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

INPUT, OUTPUT = "image", "logits"
CLASSES = 1000


@dataclass
class OnnxNetwork:
    """The nodes so far."""

    random: np.random.Generator
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def add(self, kind: str, name: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, and return its output."""
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, name: str, values: Any) -> str:
        """Add numbers, as float32."""
        self.constants.append(numpy_helper.from_array(np.asarray(values, np.float32), name))
        return name

    def convolution(  # noqa: PLR0913, PLR0917 - a convolution has so many numbers
        self, name: str, source: str, channels: tuple[int, int], kernel: int, stride: int = 1, groups: int = 1,
        gain: float = 1.0,
    ) -> str:  # fmt: skip
        """Add a convolution with random weights that keep the size of what passes through and a relu (He)."""
        inputs, outputs = channels
        shape = (outputs, inputs // groups, kernel, kernel)
        scale = gain * float(np.sqrt(2 / np.prod(shape[1:])))
        weights = self.constant(f"{name}.weight", self.random.standard_normal(shape) * scale)
        bias = self.constant(f"{name}.bias", self.random.standard_normal(outputs) * 0.05)
        return self.add(
            "Conv", name, source, weights, bias, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4,
            strides=[stride] * 2, group=groups,
        )  # fmt: skip

    def rectified(self, name: str, *arguments: Any, **options: Any) -> str:
        """Add a convolution and its relu."""
        return self.add("Relu", f"{name}.relu", self.convolution(name, *arguments, **options))

    def classifier(self, source: str, width: int) -> str:
        """Add the mean of each channel, and a dense layer from there to the classes, without a bias."""
        flat = self.add("Flatten", "flat", self.add("GlobalAveragePool", "mean", source))
        scale = float(np.sqrt(1 / width))
        weights = self.constant("dense.weight", self.random.standard_normal((CLASSES, width)) * scale)
        return self.add("Gemm", OUTPUT, flat, weights, transB=1)

    def model(self, name: str, side: int) -> onnx.ModelProto:
        """Return the model from a square picture with so many pixels a side to scores of the classes."""
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [1, 3, side, side])],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [1, CLASSES])],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def frame(seed: int, side: int) -> dict[str, np.ndarray]:
    """Return a random input."""
    return {INPUT: np.random.default_rng(seed).standard_normal((1, 3, side, side)).astype(np.float32)}
