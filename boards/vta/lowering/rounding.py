"""Rounding: a layer from sums to bytes."""

from __future__ import annotations

import numpy as np

from boards.vta.compiler.layers import LIMITS, Addition, Convolution
from boards.vta.lowering.values import ConvolutionSum, Numbers, TensorCopy, TensorPair, UnroundedSums, Unsupported
from pipeline.errors import BuildError

# -128 has the largest magnitude of int8.
_LARGEST_BYTE = 128
_INT32 = 2.0 ** (LIMITS.sum_bits - 1)


def layer(sums: UnroundedSums, exponent: float) -> Convolution | Addition:
    """Return the layer from sums to int8.

    Parameters
    ----------
    sums : UnroundedSums
        Sums to round: halves go to the even neighbour, unless the sums were rounded down already.
    exponent : float
        Exponent of two that is the unit of a byte.

    Raises
    ------
    Unsupported
        If VTA has no such layer.
    """
    if sums.is_floored and exponent:
        raise Unsupported("it rounds twice")
    low, high = bounds(sums, exponent)
    try:
        if isinstance(sums.origin, TensorPair):
            return _addition(sums, sums.origin, float(exponent), (low, high))
        return _convolution(sums, exponent, (low, high))
    except BuildError as error:
        raise Unsupported(str(error)) from None


def bounds(sums: UnroundedSums, exponent: float) -> tuple[int, int]:
    """Return the clipping bounds of the bytes."""
    # Rounding never changes an order, so that clipping may as well follow it.
    ends = [np.clip(np.rint(bound * np.exp2(-exponent)), -128, 127) for bound in (sums.low, sums.high)]
    if any(np.ptp(end) for end in ends):
        raise Unsupported("its channels are clipped to different ranges; VTA clips all to one")
    return int(ends[0][0]), int(ends[1][0])


def _convolution(sums: UnroundedSums, exponent: float, ends: tuple[int, int]) -> Convolution:
    origin, shift = sums.origin, exponent - sums.exponent
    # A tensor that is only scaled becomes a convolution with ones.
    product = origin if isinstance(origin, ConvolutionSum) else _identity(origin, sums.channels)
    # What would be shifted to the left is multiplied instead.
    weights = product.weights.astype(np.int64) << np.maximum(-shift, 0).astype(np.int64)[:, None, None, None]
    if np.abs(weights).max(initial=0) > np.iinfo(np.int8).max and (shift < 0).any():
        raise Unsupported("its result has a finer scale than its sums")
    shift, unit = np.maximum(shift, 0), np.minimum(sums.exponent, exponent)
    offset = _units(sums, sums.offset * np.exp2(-unit))
    # The worst case of any input: bias, products of -128, and the half that rounding adds.
    largest = np.abs(offset) + _LARGEST_BYTE * np.abs(weights).sum((1, 2, 3)) + np.exp2(shift)
    if (largest >= _INT32).any():
        raise Unsupported("its sums may not fit 32 bits")
    # The layer adds half a result to round to the nearest; taken away beforehand, it rounds down.
    if sums.is_floored:
        offset -= np.floor(np.exp2(shift - 1))
    return Convolution(
        product.source.shape,
        weights.astype(np.int8),
        offset.astype(np.int32),
        shift.astype(np.int8),
        product.strides,
        product.padding,
        *ends,
        even=not sums.is_floored,
        groups=product.groups,
    )


def _units(sums: UnroundedSums, offset: Numbers) -> Numbers:
    """Return the offset in units of the sums."""
    offsets = np.floor(offset) if sums.is_floored else np.rint(offset)
    if not sums.is_floored and (offsets != offset).any():
        raise Unsupported("its bias is no whole number of the products' unit")
    return offsets


def _identity(copy: TensorCopy | TensorPair, channels: int) -> ConvolutionSum:
    if isinstance(copy, TensorPair):
        raise TypeError("a sum of two tensors is no product")
    return ConvolutionSum(copy.source, np.ones((channels, 1, 1, 1), np.int8), groups=channels)


def _addition(sums: UnroundedSums, pair: TensorPair, exponent: float, ends: tuple[int, int]) -> Addition:
    if sums.offset.any() or sums.is_floored:
        raise Unsupported("it adds a constant to the sum of two tensors")
    # What scaled the sum afterwards scaled both.
    smallest = min(pair.exponents)
    # `unbounded_sums` began with the smallest of both: the difference is what came since.
    scale_bits = sums.exponent[0] - smallest
    unit = min(smallest + scale_bits, exponent)
    left_bits, right_bits = (int(power + scale_bits - unit) for power in pair.exponents)
    if max(left_bits, right_bits) > LIMITS.factor:
        raise Unsupported(f"the scales of the two tensors that it adds differ by 2^{max(left_bits, right_bits)}")
    return Addition(pair.left.shape, left_bits, right_bits, int(exponent - unit), *ends, even=True)
