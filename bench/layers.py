"""Writer of networks by their layers: shapes are tracked, weights are random, and int8 comes as QDQ pairs.

Numbers have the right shapes and no meaning: a plan depends on operators, shapes and element types alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

INPUT = "image"

_NUMBERS = np.random.default_rng(0).standard_normal(1 << 16).astype(np.float32) * 0.05
"""Numbers that all weights repeat: drawing 138 million takes seconds."""
_BYTES = (_NUMBERS * 500).astype(np.int8)
# No powers of two, as scales of published int8 networks are none.
_STEP, _WEIGHT_STEP = 0.047, 0.0021


class Value(NamedTuple):
    """Tensor of a network, by its channels and its height and width."""

    name: str
    channels: int
    side: tuple[int, ...] = (1, 1)


class Layers:
    """The layers so far.

    Parameters
    ----------
    shape : sequence of int
        Extents of the input, the batch left out.
    int8 : bool
        Quantise every tensor, with a signed scale per channel of weights.
    """

    def __init__(self, shape: Sequence[int], *, int8: bool = False) -> None:
        self.int8 = int8
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._shape = (1, *shape)
        self._steps: set[str] = set()
        side = tuple(shape[1:]) if len(shape) == 3 else (shape[0], 1)
        self.input = Value(INPUT, shape[0] if len(shape) == 3 else shape[-1], side)
        if int8:
            self.input = self._dequantize(self.input, INPUT)

    # Nodes and constants.

    def emit(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node as it is, and return its output."""
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, values: Any) -> str:
        """Add numbers, and return their name."""
        array = np.asarray(values)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        name = f"constant{len(self.constants)}"
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = TensorProto(name=name, dims=array.shape, data_type=kind, raw_data=array.tobytes())
        self.constants.append(tensor)
        return name

    def integers(self, *numbers: int) -> str:
        """Add whole numbers, as shapes and positions are."""
        return self.constant(np.array(numbers, np.int64))

    def weights(self, *shape: int, axis: int = 0) -> str:
        """Add weights; `axis` is that of the results."""
        numbers = np.resize(_BYTES if self.int8 else _NUMBERS, shape)
        if not self.int8:
            return self.constant(numbers)
        steps, zeros = np.full(shape[axis], _WEIGHT_STEP, np.float32), np.zeros(shape[axis], np.int8)
        return self.emit("DequantizeLinear", *map(self.constant, (numbers, steps, zeros)), axis=axis)

    def bias(self, count: int) -> str:
        """Add a bias, of 32 bits where weights are of 8."""
        numbers = np.resize(_NUMBERS, count)
        if not self.int8:
            return self.constant(numbers)
        steps = np.full(count, _STEP * _WEIGHT_STEP, np.float32)
        parts = ((numbers * 1e3).astype(np.int32), steps, np.zeros(count, np.int32))
        return self.emit("DequantizeLinear", *map(self.constant, parts), axis=0)

    def _step(self) -> tuple[str, str]:
        return self.constant(np.float32(_STEP)), self.constant(np.int8(0))

    def _dequantize(self, value: Value, name: str) -> Value:
        return value._replace(name=self.emit("DequantizeLinear", name, *self._step()))

    def settle(self, value: Value) -> Value:
        """End a kernel: its result is stored in int8, where the network is."""
        return self._dequantize(value, self.emit("QuantizeLinear", value.name, *self._step())) if self.int8 else value

    def op(self, kind: str, *values: Value, channels: int = 0, extra: Sequence[str] = (), **attributes: Any) -> Value:
        """Add an operator that keeps the shape of its first value, but for the channels."""
        name = self.emit(kind, *(value.name for value in values), *extra, **attributes)
        return self.settle(Value(name, channels or values[0].channels, values[0].side))

    # Layers.

    def conv(  # noqa: PLR0913 - a convolution has so many numbers
        self, value: Value, channels: int, kernel: int | tuple[int, int] = 3, stride: int = 1, *, groups: int = 1,
        act: str = "relu", pad: int | None = None, dilation: int = 1,
    ) -> Value:  # fmt: skip
        """Add a convolution and its activation; `pad` None keeps the size at stride 1."""
        kernels = (kernel, kernel) if isinstance(kernel, int) else kernel
        pads = [size // 2 * dilation if pad is None else pad for size in kernels]
        side = tuple(
            (extent + 2 * margin - dilation * (size - 1) - 1) // stride + 1
            for extent, margin, size in zip(value.side, pads, kernels, strict=True)
        )
        name = self.emit(
            "Conv", value.name, self.weights(channels, value.channels // groups, *kernels), self.bias(channels),
            kernel_shape=kernels, pads=pads * 2, strides=[stride] * 2, group=groups, dilations=[dilation] * 2,
        )  # fmt: skip
        return self.act(Value(name, channels, side), act, is_fused=True)

    def dw(self, value: Value, kernel: int = 3, stride: int = 1, **options: Any) -> Value:
        """Add a depthwise convolution."""
        return self.conv(value, value.channels, kernel, stride, groups=value.channels, **options)

    def act(self, value: Value, kind: str, *, is_fused: bool = False) -> Value:
        """Add an activation; `is_fused` if a convolution ends here."""
        if kind in {"relu", "relu6"}:
            limits = [self.constant(np.float32(limit)) for limit in (0, 6)] if kind == "relu6" else []
            return self.settle(
                value._replace(name=self.emit("Clip" if kind == "relu6" else "Relu", value.name, *limits))
            )
        value = self.settle(value) if is_fused else value
        if kind == "silu":
            return self.op("Mul", value, self.op("Sigmoid", value))
        kinds: dict[str, tuple[str, dict[str, Any]]] = {
            "hswish": ("HardSwish", {}), "sigmoid": ("Sigmoid", {}), "leaky": ("LeakyRelu", {"alpha": 0.1}),
            "gelu": ("Gelu", {}), "hsigmoid": ("HardSigmoid", {"alpha": 1 / 6}),
        }  # fmt: skip
        if kind not in kinds:
            return value
        name, attributes = kinds[kind]
        return self.op(name, value, **attributes)

    def deconv(self, value: Value, channels: int) -> Value:
        """Add a transposed convolution to twice the size, and its relu."""
        name = self.emit(
            "ConvTranspose", value.name, self.weights(value.channels, channels, 3, 3, axis=1), self.bias(channels),
            kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1],
        )  # fmt: skip
        return self.act(Value(name, channels, (value.side[0] * 2, value.side[1] * 2)), "relu", is_fused=True)

    def pool(  # noqa: PLR0913 - a pooling has so many numbers
        self, value: Value, kernel: int = 3, stride: int = 2, *, kind: str = "Max", pad: int = 0, ceil: bool = False
    ) -> Value:
        """Add a pooling."""
        rounded = math.ceil if ceil else math.floor
        side = tuple(rounded((extent + 2 * pad - kernel) / stride) + 1 for extent in value.side)
        name = self.emit(
            f"{kind}Pool", value.name, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4,
            ceil_mode=int(ceil),
        )  # fmt: skip
        return self.settle(Value(name, value.channels, side))

    def mean(self, value: Value) -> Value:
        """Add the mean of each channel."""
        return self.settle(Value(self.emit("GlobalAveragePool", value.name), value.channels))

    def dense(self, value: Value, channels: int, act: str = "") -> Value:
        """Add a dense layer over all of a value."""
        count = value.channels * math.prod(value.side)
        flat = self.settle(value._replace(name=self.emit("Flatten", value.name)))
        name = self.emit("Gemm", flat.name, self.weights(count, channels, axis=1), self.bias(channels))
        return self.act(Value(name, channels), act, is_fused=True)

    def classify(self, value: Value, classes: int = 1000) -> Value:
        """Add mean and dense layer."""
        return self.dense(self.mean(value), classes)

    def cat(self, *values: Value) -> Value:
        """Join channels."""
        return self.op("Concat", *values, channels=sum(value.channels for value in values), axis=1)

    def split(self, value: Value, *channels: int) -> list[Value]:
        """Take a value's channels apart."""
        ends = np.cumsum((0, *channels)).tolist()
        return [
            self.op("Slice", value, channels=stop - start,
                    extra=[self.integers(number) for number in (start, stop, 1)])
            for start, stop in pairwise(ends)
        ]  # fmt: skip

    def add(self, *values: Value, act: str = "") -> Value:
        """Add two values."""
        name = self.emit("Add", *(value.name for value in values))
        return self.act(values[0]._replace(name=name), act, is_fused=True)

    def up(self, value: Value, factor: int = 2, mode: str = "nearest") -> Value:
        """Enlarge a value."""
        scales = self.constant(np.array([1, 1, factor, factor], np.float32))
        name = self.emit("Resize", value.name, "", scales, mode=mode)
        return self.settle(Value(name, value.channels, (value.side[0] * factor, value.side[1] * factor)))

    def squeeze(self, value: Value, channels: int, act: str = "relu", gate: str = "sigmoid") -> Value:
        """Weigh channels by their means (squeeze and excitation)."""
        gates = self.conv(self.conv(self.mean(value), channels, 1, act=act), value.channels, 1, act=gate)
        return self.op("Mul", value, gates)

    def reshape(self, value: Value, *shape: int) -> Value:
        """Give a value other extents, the batch left out."""
        return self.op("Reshape", value, extra=[self.integers(1, *shape)])

    def linear(self, value: Value, channels: int, act: str = "") -> Value:
        """Add a dense layer over the last axis."""
        product = self.emit("MatMul", value.name, self.weights(value.channels, channels, axis=1))
        name = self.emit("Add", product, self.bias(channels))
        return self.act(value._replace(name=name, channels=channels), act, is_fused=True)

    def norm(self, value: Value) -> Value:
        """Add a layer norm over the last axis."""
        factors, shifts = (self.constant(np.resize(_NUMBERS, value.channels)) for _ in range(2))
        return self.op("LayerNormalization", value, extra=(factors, shifts))

    def scale(self, value: Value) -> Value:
        """Add a batch norm that no convolution in front takes up."""
        numbers = np.resize(_NUMBERS, (value.channels, 1, 1))
        scaled = self.emit("Mul", value.name, self.constant(numbers))
        return value._replace(name=self.emit("Add", scaled, self.constant(numbers)))

    def model(self, name: str, *outputs: Value) -> onnx.ModelProto:
        """Return the model; int8 networks take and give int8."""
        kind = TensorProto.INT8 if self.int8 else TensorProto.FLOAT
        # What is dequantised behind the last kernels is left to the reader of the results.
        names = [self._stored(value) for value in outputs]
        graph = helper.make_graph(
            self.nodes, name,
            [helper.make_tensor_value_info(INPUT, kind, self._shape)],
            [helper.make_tensor_value_info(output, kind, None) for output in names],
            self.constants,
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)

    def _stored(self, value: Value) -> str:
        return (
            next(str(node.input[0]) for node in self.nodes if node.output[0] == value.name) if self.int8 else value.name
        )
