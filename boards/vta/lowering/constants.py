"""Constants of a stage: scales, powers of two, numbers per channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.lowering.values import Numbers, Unsupported

_AXIS = 1
_REMEDY = "`soc-pipeline quantize --power-of-two` changes it"

_OUTPUT_AXES = {4: 0, 2: 1}
"""Axis of the output channels by the rank of weights."""


def array(value: Any) -> npt.NDArray[Any] | None:
    """Return a constant's array, else None."""
    from tvm.ir import GenericConst

    return np.asarray(value.value.numpy()) if isinstance(value, GenericConst) else None


def exponents(scales: npt.NDArray[Any]) -> Numbers:
    """Return the logarithms of powers of two, or raise `Unsupported`."""
    # frexp has fractions from 0.5 to 1: exactly 0.5 for powers of two.
    fraction, exponent = np.frexp(scales.astype(np.float64))
    if (fraction != 0.5).any():
        outlier = float(scales.reshape(-1)[(fraction != 0.5).reshape(-1).argmax()])
        raise Unsupported(f"its scale {outlier:.6g} is no power of two; {_REMEDY}")
    return (exponent - 1).astype(np.float64)


def exponent(scale: Any) -> float:
    """Return the logarithm of a tensor's single scale."""
    values = array(scale)
    if values is None or values.size != 1:
        raise Unsupported("the scale of a tensor is no single constant")
    return float(exponents(values).reshape(-1)[0])


def zero_point(value: Any, dtype: str) -> int:
    """Return a tensor's zero point: 0 for int8, 128 for uint8."""
    # Any other zero point would add its products with all weights to every sum.
    values, expected_zero = array(value), {"int8": 0, "uint8": 128}.get(dtype)
    if expected_zero is None:
        raise Unsupported(f"it has values of {dtype}; VTA has int8")
    if values is None or (values != expected_zero).any():
        actual_zero = "no constant" if values is None else int(values.reshape(-1)[0])
        raise Unsupported(f"the zero point of {dtype} is {actual_zero}; for VTA it must be {expected_zero}; {_REMEDY}")
    return expected_zero


def per_channel(value: Any, extents: tuple[int, ...], channels: int) -> Numbers | None:
    """Return a constant as one number per channel, else None; `Unsupported` if it varies along other axes."""
    values = array(value)
    if values is None:
        return None
    if extents[_AXIS] != channels and values.size > 1:
        raise Unsupported("it combines a flattened image with many constants")
    # As broadcasting aligns them: axes that lack are in front.
    shape = (1,) * (len(extents) - values.ndim) + values.shape
    other_extents = [extent for axis, extent in enumerate(shape) if axis != _AXIS]
    if len(shape) > len(extents) or max(other_extents, default=1) > 1 or shape[_AXIS] not in (1, channels):
        raise Unsupported("it combines a tensor with a constant that varies inside a channel")
    # Repeats a single number, and leaves one for each channel as it is.
    numbers: Numbers = np.resize(values.astype(np.float64), channels)
    return numbers


@dataclass(frozen=True, eq=False)
class ProductWeights:
    """Constant weights.

    Attributes
    ----------
    values : int8[...]
        ``[outputs, channels, height, width]`` of a convolution, ``[inputs, outputs]`` of a dense layer.
    exponent : float64[outputs]
        Exponents of the units.
    """

    values: npt.NDArray[np.int8]
    exponent: Numbers


def int8_weights(value: Any) -> ProductWeights:
    """Return an int8 constant as weights in units of 1."""
    values = array(value)
    if values is None or values.dtype != np.int8 or values.ndim not in _OUTPUT_AXES:
        raise Unsupported("its weights are no constants of int8")
    return ProductWeights(values, np.zeros(values.shape[_OUTPUT_AXES[values.ndim]]))


def dequantized_weights(call: Any) -> ProductWeights:
    """Return dequantised weights."""
    values, scale, zero = (array(argument) for argument in call.args)
    if values is None or scale is None or zero is None or values.ndim not in _OUTPUT_AXES:
        raise Unsupported("its weights are no constants")
    if values.dtype != np.int8 or zero.any():
        raise Unsupported("its weights are not signed bytes around 0")
    axis = _OUTPUT_AXES[values.ndim]
    if scale.size > 1 and int(call.attrs.axis) % values.ndim != axis:
        raise Unsupported("its weights have a scale for each input")
    return ProductWeights(values, np.resize(exponents(scale), values.shape[axis]))
