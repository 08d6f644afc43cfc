"""Pooling: maximum or mean per window."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from boards.vta.compiler.layers import MaxPool
from boards.vta.lowering.step_builder import StepBuilder
from boards.vta.lowering.values import (
    ConvolutionSum,
    MemoryTensor,
    TensorCopy,
    UnroundedSums,
    Unsupported,
    unbounded_sums,
)
from pipeline.errors import BuildError


def max_pool2d(builder: StepBuilder, call: Any) -> MemoryTensor | UnroundedSums:
    """Return the pooled tensor in unchanged units."""
    attrs, value = call.attrs, builder.value_of(call.args[0])
    source, exponent = (value, 0.0) if isinstance(value, MemoryTensor) else builder.scaled_tensor(call.args[0])
    if str(attrs.layout) != "NCHW" or any(int(rate) != 1 for rate in attrs.dilation):
        raise Unsupported("it pools with holes, or in another layout")
    row_stride, column_stride, *pads = (int(number) for number in (*attrs.strides, *attrs.padding))
    kernel = (int(attrs.pool_size[0]), int(attrs.pool_size[1]))
    top, left, bottom, right = pads
    try:
        layer = MaxPool(source.shape, kernel, (row_stride, column_stride), (top, left, bottom, right))
    except BuildError as error:
        raise Unsupported(str(error)) from None
    extents = (1, *layer.outputs)
    # With ceil_mode, the model has one more window at the far ends.
    if extents != tuple(int(extent) for extent in call.ty.shape):
        raise Unsupported("its last windows reach beyond the padding")
    result = builder.append_step(layer, (source,), extents, source.zero)
    return (
        result
        if isinstance(value, MemoryTensor)
        else unbounded_sums(TensorCopy(result), result.shape[0], extents, exponent)
    )


def avg_pool2d(builder: StepBuilder, call: Any) -> UnroundedSums:
    """Return the means of windows."""
    attrs = call.attrs
    if str(attrs.layout) != "NCHW" or any(int(rate) != 1 for rate in attrs.dilation) or bool(attrs.ceil_mode):
        raise Unsupported("it pools with holes, beyond the border, or in another layout")
    if any(int(margin) for margin in attrs.padding) and not attrs.count_include_pad:
        raise Unsupported("at the border it averages over fewer values, and VTA's shift is the same everywhere")
    row_stride, column_stride, *pads = (int(number) for number in (*attrs.strides, *attrs.padding))
    top, left, bottom, right = pads
    kernel = (int(attrs.pool_size[0]), int(attrs.pool_size[1]))
    return _average(builder, call, kernel, ((row_stride, column_stride), (top, left, bottom, right)))


def mean(builder: StepBuilder, call: Any) -> UnroundedSums:
    """Return the means of all rows and columns."""
    extents = tuple(int(extent) for extent in call.args[0].ty.shape)
    axes = range(len(extents)) if call.attrs.axis is None else (int(axis) % len(extents) for axis in call.attrs.axis)
    if len(extents) != 4 or sorted(axes) != [2, 3]:
        raise Unsupported("it averages along other axes than rows and columns")
    return _average(builder, call, (extents[2], extents[3]), ((1, 1), (0, 0, 0, 0)))


def _average(
    builder: StepBuilder,
    call: Any,
    kernel: tuple[int, int],
    window: tuple[tuple[int, int], tuple[int, int, int, int]],
) -> UnroundedSums:
    """Return window sums as a depthwise convolution with ones, scaled by count."""
    count = prod(kernel)
    if not str(call.ty.dtype).startswith("float"):
        raise Unsupported("it averages whole numbers, whose quotient is cut off and not rounded")
    # Powers of two have one bit.
    if count & (count - 1):
        raise Unsupported(f"it divides by {count}, which is no power of two; VTA only shifts")
    tensor, exponent = builder.scaled_tensor(call.args[0])
    channels = tensor.shape[0]
    # Whole sums now, and the division as part of the unit: so the only rounding is the last.
    product = ConvolutionSum(tensor, np.ones((channels, 1, *kernel), np.int8), *window, groups=channels)
    extents = tuple(int(extent) for extent in call.ty.shape)
    return unbounded_sums(product, channels, extents, exponent - np.log2(count))
