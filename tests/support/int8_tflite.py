"""Int8 TFLite files of ONNX networks with random weights: the same layers, with channels last."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from tflite_writer import TfliteWriter

SAME, VALID = 0, 1
RELU, RELU6 = 1, 3
"""Fused activations, by the schema's numbers."""
STEP, WEIGHT_STEP = 0.047, 0.0021
SHARE: dict[str, Any] = {"scale": 1 / 256, "zero": -128}
"""Quantisation of values from 0 to 1, as LiteRT wants it."""
CHANNELS_LAST, CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def write(model: onnx.ModelProto, path: Path) -> Path:
    """Write a float network of `published_models` as an int8 TFLite file."""
    writer = _NetworkWriter(onnx.shape_inference.infer_shapes(model))
    return writer.save(path, *writer.convert())


class _NetworkWriter(TfliteWriter):
    """Writer of a network; maps have channels last, and what was reshaped is as in ONNX."""

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        self._graph = model.graph
        self._constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self._readers = Counter(name for node in model.graph.node for name in node.input)
        self._maps: dict[str, int] = {}
        self._plain: dict[str, int] = {}

    def convert(self) -> list[int]:
        """Add all operators; return the outputs."""
        (first,) = self._graph.input
        shape = [extent.dim_value for extent in first.type.tensor_type.shape.dim]
        self._maps[first.name] = self.input([shape[axis] for axis in CHANNELS_LAST], "int8", STEP)
        nodes = list(self._graph.node)
        while nodes:
            node = nodes.pop(0)
            # An activation is a part of the convolution in front of it.
            activation = 0
            if node.op_type in {"Conv", "Gemm", "Add"} and nodes and self._readers[node.output[0]] == 1:
                activation = {"Relu": RELU, "Clip": RELU6}.get(nodes[0].op_type, 0)
            name = nodes.pop(0).output[0] if activation else node.output[0]
            values = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
            add: Callable[..., None] = getattr(self, f"_{node.op_type.lower()}")
            add(node.input, name, activation=activation, **values)
        return [self._map(value.name) if value.name in self._maps else self._plain[value.name]
                for value in self._graph.output]  # fmt: skip

    # Tensors.

    def _shape(self, number: int) -> tuple[int, ...]:
        return tuple(self.graph.tensors[number].shape)

    def _like(self, number: int, shape: Sequence[int]) -> int:
        """Add a tensor with the scale of another."""
        quantization = self.graph.tensors[number].quantization
        return self.tensor(shape, "int8", float(quantization.scale[0]), int(quantization.zeroPoint[0]))

    def _numbers(self, *numbers: int) -> int:
        return self.constant(np.array(numbers, np.int32))

    def _turn(self, number: int, order: Sequence[int]) -> int:
        turned = self._like(number, [self._shape(number)[axis] for axis in order])
        self.add("TRANSPOSE", [number, self._numbers(*order)], [turned], 2, options="TransposeOptions")
        return turned

    def _rescale(self, number: int) -> int:
        """Give shares the scale of other tensors."""
        if self.graph.tensors[number].quantization.zeroPoint[0] == 0:
            return number
        rescaled = self.tensor(self._shape(number), "int8", STEP)
        self.add("QUANTIZE", [number], [rescaled], 2)
        return rescaled

    def _map(self, name: str) -> int:
        if name not in self._maps:
            self._maps[name] = self._turn(self._plain[name], CHANNELS_LAST)
        return self._maps[name]

    def _unturned(self, name: str) -> int:
        if name not in self._plain:
            self._plain[name] = self._turn(self._maps[name], CHANNELS_FIRST)
        return self._plain[name]

    # Operators, by ONNX's names.

    def _conv(self, names: Sequence[str], output: str, *, activation: int, **values: Any) -> None:
        x, weights = self._map(names[0]), self._constants[names[1]]
        is_depthwise = values["group"] > 1
        assert values["group"] in {1, weights.shape[0]}
        kernels, strides, dilations = values["kernel_shape"], values["strides"], values["dilations"]
        side = self._shape(x)[1:3]
        begins = values["pads"][:2]
        extents = [
            (extent + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
            for extent, pad, kernel, stride, dilation in zip(side, begins, kernels, strides, dilations, strict=True)
        ]
        padding = SAME if all(begins) or max(kernels) == 1 else VALID
        if padding == SAME:
            extents = [math.ceil(extent / stride) for extent, stride in zip(side, strides, strict=True)]
        count = weights.shape[0]
        order = (1, 2, 3, 0) if is_depthwise else (0, 2, 3, 1)
        w = self._weights(weights.transpose(order), axis=3 if is_depthwise else 0)
        y = self.tensor((1, *extents, count), "int8", STEP)
        name = "DepthwiseConv2D" if is_depthwise else "Conv2D"
        options = {"padding": padding, "strideH": strides[0], "strideW": strides[1]}
        options |= {"dilationHFactor": dilations[0], "dilationWFactor": dilations[1]}
        options |= {"fusedActivationFunction": activation}
        options |= {"depthMultiplier": 1} if is_depthwise else {}
        code = "DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D"
        self.add(code, [x, w, self._bias(count)], [y], 3, options=f"{name}Options", **options)
        self._maps[output] = y

    def _weights(self, values: np.ndarray, axis: int) -> int:
        count = values.shape[axis]
        return self.constant(
            np.round(values * 500).astype(np.int8), np.full(count, WEIGHT_STEP), np.zeros(count, np.int64), axis
        )

    def _bias(self, count: int) -> int:
        values = np.resize(np.arange(-50, 50, dtype=np.int32), count)
        return self.constant(values, np.full(count, STEP * WEIGHT_STEP), np.zeros(count, np.int64))

    def _gemm(self, names: Sequence[str], output: str, *, activation: int) -> None:
        weights = self._constants[names[1]].T
        y = self.tensor((1, len(weights)), "int8", STEP)
        inputs = [self._plain[names[0]], self._weights(weights, 0), self._bias(len(weights))]
        self.add("FULLY_CONNECTED", inputs, [y], 4, options="FullyConnectedOptions", fusedActivationFunction=activation)
        self._plain[output] = y

    def _flatten(self, names: Sequence[str], output: str, **_: Any) -> None:
        self._reshape_to(self._map(names[0]), output, (1, math.prod(self._shape(self._map(names[0])))))

    def _reshape(self, names: Sequence[str], output: str, **_: Any) -> None:
        self._reshape_to(self._unturned(names[0]), output, self._constants[names[1]].tolist())

    def _reshape_to(self, x: int, output: str, shape: Sequence[int]) -> None:
        y = self._like(x, shape)
        self.add("RESHAPE", [x, self._numbers(*shape)], [y], options="ReshapeOptions", newShape=list(shape))
        self._plain[output] = y

    def _elementwise(self, kind: str, names: Sequence[str], output: str, activation: int) -> None:
        inputs = [self._map(name) for name in names]
        y = self.tensor(np.broadcast_shapes(*map(self._shape, inputs)), "int8", STEP)
        options = {"options": f"{kind.title()}Options", "fusedActivationFunction": activation}
        self.add(kind, inputs, [y], 2, **options)
        self._maps[output] = y

    def _add(self, names: Sequence[str], output: str, *, activation: int) -> None:
        self._elementwise("ADD", names, output, activation)

    def _mul(self, names: Sequence[str], output: str, *, activation: int) -> None:
        self._elementwise("MUL", names, output, activation)

    def _sigmoid(self, names: Sequence[str], output: str, **_: Any) -> None:
        x = self._map(names[0])
        self._maps[output] = self.tensor(self._shape(x), "int8", **SHARE)
        self.add("LOGISTIC", [x], [self._maps[output]], 2)

    def _softmax(self, names: Sequence[str], output: str, **_: Any) -> None:
        x = self._plain[names[0]]
        self._plain[output] = self.tensor(self._shape(x), "int8", **SHARE)
        self.add("SOFTMAX", [x], [self._plain[output]], 2, options="SoftmaxOptions", beta=1.0)

    def _pool(self, kind: str, names: Sequence[str], output: str, values: dict[str, Any]) -> None:
        x, (kernel, _), (stride, _) = self._map(names[0]), values["kernel_shape"], values["strides"]
        _, *side, channels = self._shape(x)
        padding = SAME if any(values["pads"]) or values.get("ceil_mode") else VALID
        spare = 0 if padding == SAME else kernel - 1
        y = self._like(x, (1, *(math.ceil((extent - spare) / stride) for extent in side), channels))
        sizes = {"filterHeight": kernel, "filterWidth": kernel, "strideH": stride, "strideW": stride}
        self.add(kind, [x], [y], 2, options="Pool2DOptions", padding=padding, **sizes)
        self._maps[output] = y

    def _maxpool(self, names: Sequence[str], output: str, **values: Any) -> None:
        self._pool("MAX_POOL_2D", names, output, values)

    def _averagepool(self, names: Sequence[str], output: str, **values: Any) -> None:
        self._pool("AVERAGE_POOL_2D", names, output, values)

    def _globalaveragepool(self, names: Sequence[str], output: str, **_: Any) -> None:
        x = self._map(names[0])
        y = self._like(x, (1, 1, 1, self._shape(x)[3]))
        self.add("MEAN", [x, self._numbers(1, 2)], [y], 2, options="ReducerOptions", keepDims=True)
        self._maps[output] = y

    def _concat(self, names: Sequence[str], output: str, **_: Any) -> None:
        inputs = [self._rescale(self._map(name)) for name in names]
        y = self._like(inputs[0], (*self._shape(inputs[0])[:3], sum(self._shape(each)[3] for each in inputs)))
        self.add("CONCATENATION", inputs, [y], 2, options="ConcatenationOptions", axis=3)
        self._maps[output] = y

    def _slice(self, names: Sequence[str], output: str, **_: Any) -> None:
        ((start,), (stop,), (axis,)) = (self._constants[name].tolist() for name in names[1:4])
        is_map = axis == 1
        x = self._map(names[0]) if is_map else self._plain[names[0]]
        shape = list(self._shape(x))
        axis = 3 if is_map else axis
        begins = [start if each == axis else 0 for each in range(len(shape))]
        shape[axis] = stop - start
        y = self._like(x, shape)
        self.add("SLICE", [x, self._numbers(*begins), self._numbers(*shape)], [y], 2, options="SliceOptions")
        (self._maps if is_map else self._plain)[output] = y

    def _transpose(self, names: Sequence[str], output: str, *, perm: Sequence[int], **_: Any) -> None:
        self._plain[output] = self._turn(self._plain[names[0]], perm)

    def _matmul(self, names: Sequence[str], output: str, **_: Any) -> None:
        first, second = (self._plain[name] for name in names)
        y = self.tensor((*self._shape(first)[:-1], self._shape(second)[-1]), "int8", STEP)
        self.add("BATCH_MATMUL", [first, second], [y], 4, options="BatchMatMulOptions")
        self._plain[output] = y

    def _resize(self, names: Sequence[str], output: str, *, mode: bytes, **_: Any) -> None:
        factor = int(self._constants[names[2]][2])
        self._resize_to(names[0], output, [extent * factor for extent in self._shape(self._map(names[0]))[1:3]], mode)

    def _expand(self, names: Sequence[str], output: str, **_: Any) -> None:
        self._resize_to(names[0], output, self._constants[names[1]].tolist()[2:], b"linear")

    def _resize_to(self, name: str, output: str, side: Sequence[int], mode: bytes) -> None:
        x = self._map(name)
        kind = ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions")
        if mode == b"linear":
            kind = ("RESIZE_BILINEAR", "ResizeBilinearOptions")
        y = self._like(x, (1, *side, self._shape(x)[3]))
        self.add(kind[0], [x, self._numbers(*side)], [y], 2, options=kind[1], halfPixelCenters=True)
        self._maps[output] = y

    def _spacetodepth(self, names: Sequence[str], output: str, *, blocksize: int, **_: Any) -> None:
        x = self._map(names[0])
        height, width, channels = self._shape(x)[1:]
        y = self._like(x, (1, height // blocksize, width // blocksize, channels * blocksize**2))
        self.add("SPACE_TO_DEPTH", [x], [y], 2, options="SpaceToDepthOptions", blockSize=blocksize)
        self._maps[output] = y
