"""Rounding: sums become bytes, and with that a layer."""

from __future__ import annotations

import numpy as np

from boards.vta.compiler.layers import Addition, Convolution
from boards.vta.lowering.values import Copy, Numbers, Pair, Product, Sums, Unsupported
from pipeline.errors import BuildError

_LONGEST_FACTOR = 6
_LARGEST_BYTE = 128
_INT32 = 2.0**31


def layer(sums: Sums, exponent: float) -> Convolution | Addition:
    """Return the layer that makes int8 of sums.

    Parameters
    ----------
    sums : Sums
        What to round: halves go to the even neighbour, unless the sums were rounded down already.
    exponent : float
        Of two: what a byte's unit is.

    Raises
    ------
    Unsupported
        If VTA has no such layer.
    """
    if sums.floored and exponent:
        raise Unsupported("it rounds twice")
    low, high = bounds(sums, exponent)
    try:
        if isinstance(sums.made, Pair):
            return _addition(sums, sums.made, float(exponent), (low, high))
        return _convolution(sums, exponent, (low, high))
    except BuildError as error:
        raise Unsupported(str(error)) from None


def bounds(sums: Sums, exponent: float) -> tuple[int, int]:
    """Return to what the bytes are clipped."""
    # Rounding never changes an order, so that clipping may as well follow it.
    ends = [np.clip(np.rint(each * np.exp2(-exponent)), -128, 127) for each in (sums.low, sums.high)]
    if any(np.ptp(each) for each in ends):
        raise Unsupported("its channels are clipped to different ranges; VTA clips all to one")
    return int(ends[0][0]), int(ends[1][0])


def _convolution(sums: Sums, exponent: float, ends: tuple[int, int]) -> Convolution:
    made, shift = sums.made, exponent - sums.exponent
    product = made if isinstance(made, Product) else _identity(made, sums.channels)
    # What would be shifted to the left is multiplied instead.
    weights = product.weights.astype(np.int64) << np.maximum(-shift, 0).astype(np.int64)[:, None, None, None]
    if np.abs(weights).max(initial=0) > np.iinfo(np.int8).max and (shift < 0).any():
        raise Unsupported("its result has a finer scale than its sums")
    shift, unit = np.maximum(shift, 0), np.minimum(sums.exponent, exponent)
    offset = _units(sums, sums.offset * np.exp2(-unit))
    largest = np.abs(offset) + _LARGEST_BYTE * np.abs(weights).sum((1, 2, 3)) + np.exp2(shift)
    if (largest >= _INT32).any():
        raise Unsupported("its sums may not fit 32 bits")
    if sums.floored:
        offset -= np.floor(np.exp2(shift - 1))
    return Convolution(
        product.source.shape,
        weights.astype(np.int8),
        offset.astype(np.int32),
        shift.astype(np.int8),
        product.strides,
        product.padding,
        *ends,
        even=not sums.floored,
    )


def _units(sums: Sums, offset: Numbers) -> Numbers:
    """Return the offset in units of the sums."""
    whole = np.floor(offset) if sums.floored else np.rint(offset)
    if not sums.floored and (whole != offset).any():
        raise Unsupported("its bias is no whole number of the products' unit")
    return whole


def _identity(copy: Copy | Pair, channels: int) -> Product:
    if isinstance(copy, Pair):
        raise TypeError("a sum of two tensors is no product")
    return Product(copy.source, np.eye(channels, dtype=np.int8).reshape(channels, channels, 1, 1))


def _addition(sums: Sums, pair: Pair, exponent: float, ends: tuple[int, int]) -> Addition:
    if sums.offset.any() or sums.floored:
        raise Unsupported("it adds a constant to the sum of two tensors")
    # What scaled the sum afterwards scaled both.
    least = min(pair.exponents)
    scaled = sums.exponent[0] - least
    unit = min(least + scaled, exponent)
    left, right = (int(each + scaled - unit) for each in pair.exponents)
    if max(left, right) > _LONGEST_FACTOR:
        raise Unsupported(f"the scales of the two tensors that it adds differ by 2^{max(left, right)}")
    return Addition(pair.left.shape, left, right, int(exponent - unit), *ends, even=True)
