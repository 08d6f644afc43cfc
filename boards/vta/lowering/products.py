"""Products with constant weights: convolutions and dense layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from boards.vta.lowering import constants
from boards.vta.lowering.values import Numbers, Product, Sums, Unsupported, sums

if TYPE_CHECKING:
    from boards.vta.lowering.reader import Reader

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


def conv2d(reader: Reader, call: Any) -> Sums:
    """Return the sums of a convolution."""
    (tensor, exponent), weights, attrs = reader.scaled(call.args[0]), reader.weights(call.args[1]), call.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout) or "NCHW")
    if layouts != ("NCHW", "OIHW", "NCHW") or any(int(each) != 1 for each in attrs.dilation):
        raise Unsupported("its kernel has holes, or its layout is another one")
    if int(attrs.groups) != 1:
        raise Unsupported(f"it is a convolution of {int(attrs.groups)} groups")
    down, across = (int(each) for each in attrs.strides)
    top, left, bottom, right = (int(each) for each in attrs.padding)
    product = Product(tensor, weights.values, (down, across), (top, left, bottom, right))
    extents = tuple(int(each) for each in call.ty.shape)
    return sums(product, extents[1], extents, exponent + weights.exponent)


def matmul(reader: Reader, call: Any) -> Sums:
    """Return the sums of a dense layer: a convolution whose kernel is as large as the image that was flattened."""
    (tensor, exponent), weights = reader.scaled(call.args[0]), reader.weights(call.args[1])
    extents = tuple(int(each) for each in call.ty.shape)
    if len(extents) != 2 or weights.values.ndim != 2:
        raise Unsupported("it is a product of more than one row")
    kernel = np.ascontiguousarray(weights.values.T).reshape(-1, *tensor.shape)
    return sums(Product(tensor, kernel), extents[1], extents, exponent + weights.exponent)
