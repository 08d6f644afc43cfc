"""Products with constant weights: convolutions and dense layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.lowering import constants
from boards.vta.lowering.values import Copy, Numbers, Product, Sums, Unsupported, sums

FEWEST_CHANNELS = 4
"""Of an input: with fewer, most of VTA's lanes multiply zeros, and the CPU is better at it."""

_PRODUCTS_AXES = {4: 0, 2: 1}
"""By the rank of weights: which axis has the channels of results."""


@dataclass(frozen=True, eq=False)
class Weights:
    """Constant weights.

    Attributes
    ----------
    values : int8[...]
        ``[outputs, channels, height, width]`` of a convolution, ``[inputs, outputs]`` of a dense layer.
    exponent : float64[outputs]
        Of the units.
    """

    values: npt.NDArray[np.int8]
    exponent: Numbers


def plain(value: Any) -> Weights:
    """Return a constant of int8 as weights in units of 1."""
    values = constants.array(value)
    if values is None or values.dtype != np.int8 or values.ndim not in _PRODUCTS_AXES:
        raise Unsupported("its weights are no constants of int8")
    return Weights(values, np.zeros(values.shape[_PRODUCTS_AXES[values.ndim]]))


def quantized(call: Any) -> Weights:
    """Return weights that are dequantised."""
    values, scale, zero = (constants.array(each) for each in call.args)
    if values is None or scale is None or zero is None or values.ndim not in _PRODUCTS_AXES:
        raise Unsupported("its weights are no constants")
    if values.dtype != np.int8 or zero.any():
        raise Unsupported("its weights are not signed bytes around 0")
    axis = _PRODUCTS_AXES[values.ndim]
    if scale.size > 1 and int(call.attrs.axis) % values.ndim != axis:
        raise Unsupported("its weights have a scale for each input")
    return Weights(values, np.resize(constants.exponents(scale), values.shape[axis]))


def convolution(source: Sums, weights: Weights, call: Any) -> Sums:
    """Return the sums of a convolution."""
    attrs, tensor = call.attrs, _tensor(source)
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout) or "NCHW")
    if layouts != ("NCHW", "OIHW", "NCHW") or any(int(each) != 1 for each in attrs.dilation):
        raise Unsupported("its kernel has holes, or its layout is another one")
    if int(attrs.groups) != 1:
        raise Unsupported(f"it is a convolution of {int(attrs.groups)} groups")
    if tensor.shape[0] < FEWEST_CHANNELS:
        raise Unsupported(f"its input has {tensor.shape[0]} channels, for which most of VTA would idle")
    down, across = (int(each) for each in attrs.strides)
    top, left, bottom, right = (int(each) for each in attrs.padding)
    product = Product(tensor, weights.values, (down, across), (top, left, bottom, right))
    extents = tuple(int(each) for each in call.ty.shape)
    return sums(product, extents[1], extents, source.exponent[0] + weights.exponent)


def dense(source: Sums, weights: Weights, extents: tuple[int, ...]) -> Sums:
    """Return the sums of a dense layer: a convolution whose kernel is as large as the image that was flattened."""
    tensor = _tensor(source)
    if len(extents) != 2 or len(source.extents) != 2 or weights.values.ndim != 2:
        raise Unsupported("it is a product of more than one row")
    kernel = np.ascontiguousarray(weights.values.T).reshape(-1, *tensor.shape)
    return sums(Product(tensor, kernel), extents[1], extents, source.exponent[0] + weights.exponent)


def _tensor(source: Sums) -> Any:
    if not isinstance(source.made, Copy):
        raise Unsupported("what it multiplies is not quantised")
    return source.made.source
