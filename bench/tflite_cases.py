"""TFLite models of one operator each, with random shapes, types, options and scales; a seed makes a case."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from tflite_writer import TfliteWriter

DTYPES = ("int8", "uint8", "int16")
SAME, VALID = 0, 1
ACTIVATIONS = (0, 1, 3)
"""None, ReLU and ReLU6, by the schema's numbers."""


class Case(NamedTuple):
    """Model of one operator, and its name."""

    name: str
    content: bytes


class CaseWriter(TfliteWriter):
    """Writer that makes random tensors of one dtype."""

    def __init__(self, seed: int, dtype: str) -> None:
        super().__init__()
        self.random, self.dtype = np.random.default_rng(seed), dtype

    def between(self, low: int, high: int, count: int | None = None) -> Any:
        """Return whole numbers from `low` to below `high`."""
        values = self.random.integers(low, high, count)
        return int(values) if count is None else [int(value) for value in values]

    def choose(self, *values: Any) -> Any:
        """Return one of these values."""
        return values[self.between(0, len(values))]

    def scale(self, low: float = 0.01, high: float = 0.1) -> dict[str, Any]:
        """Return a scale and a zero point for the dtype; none for real numbers."""
        if self.dtype == "float32":
            return {}
        share = 0.01 if self.dtype == "int16" else 1
        zero = {"int8": self.between(-100, 100), "uint8": self.between(20, 220), "int16": 0}[self.dtype]
        return {"scale": float(self.random.uniform(low, high)) * share, "zero": zero}

    def values(self, shape: Any, dtype: str = "") -> np.ndarray:
        """Return random values."""
        kind = np.dtype(dtype or self.dtype)
        if kind.kind == "f":
            numbers: np.ndarray = (self.random.standard_normal(shape) * 2).astype(kind)
            return numbers
        limits = np.iinfo(kind)
        integers: np.ndarray = self.random.integers(limits.min, limits.max + 1, shape).astype(kind)
        return integers

    def indices(self, *values: Any) -> int:
        """Add a constant of axes, sizes or places."""
        return self.constant(np.array(values, np.int32))


def weights(writer: CaseWriter, shape: tuple[int, ...], axis: int) -> tuple[int, np.ndarray]:
    """Add weights, and return their scales, one or one for each output."""
    if writer.dtype == "float32":
        return writer.constant(writer.values(shape) / 4), np.ones(1, np.float32)
    if writer.dtype == "uint8":
        scales = writer.random.uniform(0.001, 0.01, 1).astype(np.float32)
        return writer.constant(writer.values(shape), scales, writer.between(90, 166)), scales
    count = shape[axis] if writer.between(0, 2) else 1
    scales = writer.random.uniform(0.001, 0.01, count).astype(np.float32)
    return writer.constant(writer.random.integers(-127, 128, shape).astype(np.int8), scales, 0, axis), scales


def bias(writer: CaseWriter, count: int, scales: Any, *, optional: bool = True) -> list[int]:
    """Add a bias, or none."""
    if optional and not writer.between(0, 4):
        return []
    if writer.dtype == "float32":
        return [writer.constant(writer.values(count))]
    kind, amplitude = (np.int64, 200_000) if writer.dtype == "int16" else (np.int32, 2_000)
    return [writer.constant(writer.random.integers(-amplitude, amplitude, count).astype(kind), scales)]


def extents(size: int, window: int, stride: int, padding: int) -> int:
    """Return the results along an axis."""
    return -(-size // stride) if padding == SAME else -(-(size - window + 1) // stride)


def convolution(writer: CaseWriter, kind: str) -> int:
    """Write a convolution, or a depthwise one."""
    height, width, channels = writer.between(4, 14), writer.between(4, 14), writer.between(1, 20)
    outputs, (rows, columns) = writer.between(1, 40), writer.between(1, 4, 2)
    stride, padding = writer.between(1, 3), writer.choose(SAME, VALID)
    source = writer.scale()
    data = writer.input((1, height, width, channels), writer.dtype, **source)
    is_depthwise = kind == "DEPTHWISE_CONV_2D"
    multiplier = writer.between(1, 4)
    outputs = channels * multiplier if is_depthwise else outputs
    shape = (1, rows, columns, outputs) if is_depthwise else (outputs, rows, columns, channels)
    kernel, scales = weights(writer, shape, 3 if is_depthwise else 0)
    options: dict[str, Any] = {"options": "DepthwiseConv2DOptions" if is_depthwise else "Conv2DOptions"}
    if is_depthwise:
        options["depthMultiplier"] = multiplier
    size = (1, extents(height, rows, stride, padding), extents(width, columns, stride, padding), outputs)
    result = writer.tensor(size, writer.dtype, **writer.scale(0.05, 0.3))
    addends = bias(writer, outputs, np.float32(source.get("scale", 1)) * scales, optional=False)
    writer.add(
        kind, [data, kernel, *addends], [result], {"int8": 3, "int16": 4}.get(writer.dtype, 1),
        padding=padding, strideH=stride, strideW=stride, dilationHFactor=1, dilationWFactor=1,
        fusedActivationFunction=writer.choose(*ACTIVATIONS), **options,
    )  # fmt: skip
    return result


def dense(writer: CaseWriter, kind: str) -> int:
    """Write a fully connected layer, which may flatten."""
    rows, depth, outputs = writer.between(1, 9), writer.between(1, 40), writer.between(1, 40)
    source = writer.scale()
    data = writer.input(writer.choose((rows, depth), (rows, 1, depth)), writer.dtype, **source)
    kernel, scales = weights(writer, (outputs, depth), 0)
    result = writer.tensor((rows, outputs), writer.dtype, **writer.scale(0.05, 0.4))
    units = np.float32(source.get("scale", 1)) * scales
    writer.add(
        kind, [data, kernel, *bias(writer, outputs, units)], [result], {"int8": 4, "int16": 7}.get(writer.dtype, 1),
        options="FullyConnectedOptions", fusedActivationFunction=writer.choose(*ACTIVATIONS),
    )  # fmt: skip
    return result


def transposed(writer: CaseWriter, kind: str) -> int:
    """Write a transposed convolution with SAME padding."""
    height, width, channels, outputs, rows, columns = writer.between(1, 7, 6)
    stride, source = writer.between(1, 4), writer.scale()
    data = writer.input((1, height, width, channels), writer.dtype, **source)
    size = (1, height * stride, width * stride, outputs)
    kernel, scales = weights(writer, (outputs, rows, columns, channels), 0)
    result = writer.tensor(size, writer.dtype, **writer.scale(0.05, 0.3))
    addends = bias(writer, outputs, np.float32(source.get("scale", 1)) * scales)
    writer.add(
        kind, [writer.indices(*size), kernel, data, *addends], [result], 3, options="TransposeConvOptions",
        padding=SAME, strideH=stride, strideW=stride,
    )  # fmt: skip
    return result


def binary(writer: CaseWriter, kind: str, options: str = "") -> int:
    """Write a sum or a product of two tensors, the second of which may be broadcast or constant."""
    shape = tuple(writer.between(1, 9, 4))
    other_shape = writer.choose(shape, (1, 1, 1, shape[3]))
    scale = writer.scale()
    is_rescaled = bool(options)
    data = writer.input(shape, writer.dtype, **scale)
    other_scale = writer.scale() if is_rescaled else scale
    other = (
        writer.constant(writer.values(other_shape), **other_scale)
        if writer.between(0, 2)
        else writer.input(other_shape, writer.dtype, **other_scale)
    )
    result = writer.tensor(shape, writer.dtype, **(writer.scale() if is_rescaled else scale))
    fused = {"fusedActivationFunction": writer.choose(*ACTIVATIONS), "options": options} if options else {}
    if options in ("AddOptions", "SubOptions"):
        fused["potScaleInt16"] = False
    writer.add(kind, [data, other], [result], 1 if writer.dtype == "float32" else 2 + 2 * is_rescaled, **fused)
    return result


def unary(writer: CaseWriter, kind: str, version: int = 1, output: Any = None, **options: Any) -> int:
    """Write an operator of one tensor; `output` maps a dtype to the scale and zero point that it must have."""
    shape = (writer.between(1, 9), writer.between(2, 40))
    data = writer.input(shape, writer.dtype, **writer.scale())
    scale = writer.scale()
    if output and writer.dtype != "float32":
        scale = dict(zip(("scale", "zero"), output[writer.dtype], strict=True))
    result = writer.tensor(shape, writer.dtype, **scale)
    writer.add(kind, [data], [result], version, **options)
    return result


def pooling(writer: CaseWriter, kind: str) -> int:
    """Write a pooling."""
    height, width, channels = writer.between(4, 12, 3)
    rows, columns = writer.between(1, 5, 2)
    stride, padding, scale = writer.between(1, 3), writer.choose(SAME, VALID), writer.scale()
    data = writer.input((2, height, width, channels), writer.dtype, **scale)
    size = (2, extents(height, rows, stride, padding), extents(width, columns, stride, padding), channels)
    result = writer.tensor(size, writer.dtype, **scale)
    writer.add(
        kind, [data], [result], {"float32": 1, "int16": 3}.get(writer.dtype, 2), options="Pool2DOptions",
        padding=padding, strideW=stride, strideH=stride, filterWidth=columns, filterHeight=rows,
        fusedActivationFunction=writer.choose(*ACTIVATIONS),
    )  # fmt: skip
    return result


def reduction(writer: CaseWriter, kind: str) -> int:
    """Write a reduction along one or two axes."""
    shape, axes = (2, 5, 7, 9), writer.choose((1, 2), (2,), (3, 1), (-1,))
    keep, scale = bool(writer.between(0, 2)), writer.scale()
    data = writer.input(shape, writer.dtype, **scale)
    reduced_axes = {axis % 4 for axis in axes}
    size = [1 if axis in reduced_axes else extent for axis, extent in enumerate(shape)]
    size = size if keep else [extent for axis, extent in enumerate(size) if axis not in reduced_axes]
    result = writer.tensor(size, writer.dtype, **(writer.scale() if kind == "MEAN" else scale))
    version = 1 if writer.dtype == "float32" else 2
    writer.add(kind, [data, writer.indices(*axes)], [result], version, options="ReducerOptions", keepDims=keep)
    return result


def resizing(writer: CaseWriter, kind: str, options: str) -> int:
    """Write a resizing of an image."""
    height, width, new_height, new_width = writer.between(2, 14, 4)
    align, centers = writer.choose((False, False), (True, False), (False, True))
    scale = writer.scale()
    data = writer.input((1, height, width, 5), writer.dtype, **scale)
    result = writer.tensor((1, new_height, new_width, 5), writer.dtype, **scale)
    version = 4 if writer.dtype == "int16" else 3
    writer.add(
        kind, [data, writer.indices(new_height, new_width)], [result], version, options=options, alignCorners=align,
        halfPixelCenters=centers,
    )  # fmt: skip
    return result


def movement(writer: CaseWriter, kind: str) -> int:
    """Write an operator that moves elements."""
    scale = writer.scale()
    shape, extra, size, options = MOVEMENTS[kind]
    data = writer.input(shape, writer.dtype, **scale)
    result = writer.tensor(size, writer.dtype, **scale)
    operands = [writer.constant(np.array(values, np.int32)) for values in extra]
    writer.add(kind, [data, *operands], [result], 1 if writer.dtype == "float32" or kind in _FIRST else 2, **options)
    return result


def concatenation(writer: CaseWriter, kind: str) -> int:
    """Write a concatenation, of unsigned bytes in several scales."""
    scale = writer.scale()
    sizes = writer.between(1, 5, 3)
    parts = [
        writer.input((2, size, 3), writer.dtype, **(writer.scale() if writer.dtype == "uint8" else scale))
        for size in sizes
    ]
    result = writer.tensor((2, sum(sizes), 3), writer.dtype, **scale)
    version = {"float32": 1, "int16": 3}.get(writer.dtype, 2)
    writer.add(kind, parts, [result], version, options="ConcatenationOptions", axis=1)
    return result


def rescaling(writer: CaseWriter, kind: str) -> int:
    """Write a step from real numbers to integers, back, or between integers."""
    shape = (writer.between(1, 9), writer.between(2, 40))
    scale, target = writer.scale(), {}
    source = "float32" if kind == "QUANTIZE" and writer.between(0, 2) else writer.dtype
    output = "float32" if kind == "DEQUANTIZE" else writer.dtype
    if output != "float32":
        target = writer.scale()
    data = writer.input(shape, source, **({} if source == "float32" else scale))
    result = writer.tensor(shape, output, **target)
    writer.add(kind, [data], [result], 2, options=f"{kind.title()}Options")
    return result


MOVEMENTS: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "BATCH_TO_SPACE_ND": ((8, 3, 2, 3), ([2, 2], [[1, 0], [0, 1]]), (2, 5, 3, 3), {}),
    "EXPAND_DIMS": ((2, 3), (1,), (2, 1, 3), {}),
    "GATHER": ((5, 4, 3), ([3, 0],), (5, 2, 3), {"options": "GatherOptions", "axis": 1}),
    "PAD": ((2, 3, 4, 2), ([[0, 0], [1, 2], [0, 1], [0, 0]],), (2, 6, 5, 2), {}),
    "RESHAPE": ((2, 3, 4), ([6, 4],), (6, 4), {}),
    "SLICE": ((4, 5, 6), ([1, 0, 2], [2, -1, 3]), (2, 5, 3), {}),
    "SPACE_TO_BATCH_ND": ((2, 5, 4, 3), ([2, 2], [[1, 0], [0, 0]]), (8, 3, 2, 3), {}),
    "STRIDED_SLICE": (
        (4, 5, 6), ([1, -1, 2], [3, 0, 3], [1, -1, 1]), (2, 5),
        {"options": "StridedSliceOptions", "endMask": 2, "shrinkAxisMask": 4},
    ),
    "TRANSPOSE": ((2, 3, 4), ([2, 0, 1],), (4, 2, 3), {}),
}  # fmt: skip

_FIRST = ("EXPAND_DIMS", "RESHAPE")
"""Kinds of which there is one version only."""

_SIGMOID = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}
_TANH = {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0)}
_BYTES, _ALL = ("float32", "int8", "uint8"), ("float32", *DTYPES)

KINDS: dict[str, tuple[Callable[[CaseWriter, str], int], tuple[str, ...]]] = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), (convolution, _ALL)),
    "FULLY_CONNECTED": (dense, _ALL),
    "TRANSPOSE_CONV": (transposed, _ALL),
    **{kind: (functools.partial(binary, options=f"{kind.title()}Options"), _ALL) for kind in ("ADD", "SUB", "MUL")},
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), (binary, _ALL)),
    **dict.fromkeys(("RELU", "RELU6"), (functools.partial(unary, version=2), _ALL)),
    "LEAKY_RELU": (functools.partial(unary, version=2, options="LeakyReluOptions", alpha=0.1), _ALL),
    "HARD_SWISH": (unary, _BYTES),
    "LOGISTIC": (functools.partial(unary, version=3, output=_SIGMOID), _ALL),
    "TANH": (functools.partial(unary, version=3, output=_TANH), _ALL),
    "SOFTMAX": (functools.partial(unary, version=2, output=_SIGMOID, options="SoftmaxOptions", beta=1.0), _ALL),
    "AVERAGE_POOL_2D": (pooling, _ALL),
    "MAX_POOL_2D": (pooling, _ALL),
    **dict.fromkeys(("MEAN", "REDUCE_MAX", "REDUCE_MIN"), (reduction, _ALL)),
    "RESIZE_BILINEAR": (functools.partial(resizing, options="ResizeBilinearOptions"), _ALL),
    "RESIZE_NEAREST_NEIGHBOR": (functools.partial(resizing, options="ResizeNearestNeighborOptions"), _ALL),
    "CONCATENATION": (concatenation, _ALL),
    **dict.fromkeys(("QUANTIZE", "DEQUANTIZE"), (rescaling, DTYPES)),
    **dict.fromkeys(MOVEMENTS, (movement, _ALL)),
}
"""Writers by kind, with the dtypes that LiteRT has kernels for."""


def cases(seeds: range) -> Iterator[Case]:
    """Yield the cases of these seeds for all kinds and dtypes."""
    for kind, (_, dtypes) in KINDS.items():
        for dtype in dtypes:
            for seed in seeds:
                yield make_case(kind, dtype, seed)


def make_case(kind: str, dtype: str, seed: int) -> Case:
    """Return a case."""
    writer = CaseWriter(seed, dtype)
    result = KINDS[kind][0](writer, kind)
    return Case(f"{kind.lower()}-{dtype}-{seed}", writer.content(result))
