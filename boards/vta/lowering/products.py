"""Products with constant weights: convolutions and dense layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from boards.vta.lowering.step_builder import StepBuilder
from boards.vta.lowering.values import ConvolutionSum, UnroundedSums, Unsupported, unbounded_sums


def conv2d(builder: StepBuilder, call: Any) -> UnroundedSums:
    """Return the sums of a convolution."""
    (tensor, exponent), weights, attrs = builder.scaled_tensor(call.args[0]), builder.weights(call.args[1]), call.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout) or "NCHW")
    if layouts != ("NCHW", "OIHW", "NCHW") or any(int(rate) != 1 for rate in attrs.dilation):
        raise Unsupported("its kernel has holes, or its layout is another one")
    row_stride, column_stride = (int(stride) for stride in attrs.strides)
    top, left, bottom, right = (int(margin) for margin in attrs.padding)
    product = ConvolutionSum(
        tensor, weights.values, (row_stride, column_stride), (top, left, bottom, right), int(attrs.groups)
    )
    extents = tuple(int(extent) for extent in call.ty.shape)
    return unbounded_sums(product, extents[1], extents, exponent + weights.exponent)


def matmul(builder: StepBuilder, call: Any) -> UnroundedSums:
    """Lower a dense layer as a convolution over the unflattened image."""
    (tensor, exponent), weights = builder.scaled_tensor(call.args[0]), builder.weights(call.args[1])
    extents = tuple(int(extent) for extent in call.ty.shape)
    if len(extents) != 2 or weights.values.ndim != 2:
        raise Unsupported("it is a product of more than one row")
    # Relax has [inputs][outputs], and the inputs are channels, rows and columns, flattened in this order.
    kernel = np.ascontiguousarray(weights.values.T).reshape(-1, *tensor.shape)
    return unbounded_sums(ConvolutionSum(tensor, kernel), extents[1], extents, exponent + weights.exponent)
