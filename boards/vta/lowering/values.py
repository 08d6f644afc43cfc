"""Values during lowering: tensors in memory, and sums before rounding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Shape: TypeAlias = tuple[int, int, int]
"""Channels, height and width."""

Numbers: TypeAlias = npt.NDArray[np.float64]
"""Numbers per channel; all that occur here are exact."""

HALF = 128
"""Offset of unsigned to signed bytes: half the values of a byte."""


class Unsupported(Exception):
    """Raised when VTA cannot run an operator; says why."""


@dataclass(frozen=True)
class MemoryTensor:
    """A tensor in VTA's memory.

    Attributes
    ----------
    number : int
        Among the network's inputs and the results of its steps.
    shape : tuple of int
    extents : tuple of int
        Extents in the model: ``[1, channels, height, width]``, or these flattened.
    zero : int
        Addend of the model for each value: 128 for uint8, for VTA computes with signed bytes.
    """

    number: int
    shape: Shape
    extents: tuple[int, ...]
    zero: int


@dataclass(frozen=True, eq=False)
class ConvolutionSum:
    """Convolution of a tensor; a dense layer's kernel covers its input."""

    source: MemoryTensor
    weights: npt.NDArray[np.int8]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1


@dataclass(frozen=True)
class TensorCopy:
    """A tensor itself."""

    source: MemoryTensor


@dataclass(frozen=True)
class TensorPair:
    """Sum of two tensors, each times a power of two."""

    left: MemoryTensor
    right: MemoryTensor
    exponents: tuple[int, int]


@dataclass(frozen=True, eq=False)
class UnroundedSums:
    """Scaled integers per channel: ``clip(whole * 2 ** exponent + offset)``.

    Attributes
    ----------
    origin : ConvolutionSum, TensorCopy or TensorPair
        Source of the whole numbers.
    exponent, offset, low, high : float64[channels]
    extents : tuple of int
        Extents in the model.
    is_floored : bool
        True if the numbers were rounded down to whole ones before they were clipped.
    """

    origin: ConvolutionSum | TensorCopy | TensorPair
    exponent: Numbers
    offset: Numbers
    low: Numbers
    high: Numbers
    extents: tuple[int, ...]
    is_floored: bool = False

    @property
    def channels(self) -> int:
        """Number of channels."""
        return len(self.exponent)

    @property
    def largest(self) -> Numbers:
        """Bound of the magnitudes in each channel."""
        # The tighter of what the origin can reach and what clipping leaves.
        free = _largest(self.origin) * np.exp2(self.exponent) + np.abs(self.offset)
        magnitudes: Numbers = np.minimum(free, np.maximum(np.abs(self.low), np.abs(self.high)))
        return magnitudes

    @property
    def is_clipped(self) -> bool:
        """True if any channel is clipped."""
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    def plus(self, constant: Numbers) -> UnroundedSums:
        """Add a constant, an integer for integer sums."""
        # floor(x) + c is floor(x + c) for whole c only.
        if self.is_floored and (constant != np.rint(constant)).any():
            raise Unsupported("it adds a fraction to what was rounded")
        return replace(self, offset=self.offset + constant, low=self.low + constant, high=self.high + constant)

    def times(self, exponent: Numbers) -> UnroundedSums:
        """Return these numbers times powers of two."""
        factor = np.exp2(exponent)
        return replace(
            self,
            exponent=self.exponent + exponent,
            offset=self.offset * factor,
            low=self.low * factor,
            high=self.high * factor,
        )

    def shift_right(self, bits: Numbers) -> UnroundedSums:
        """Shift right, rounding down."""
        quotients = self.times(-bits)
        # Without fractions in the products, rounding concerns the offset alone, and is done here.
        are_exact = bool((quotients.exponent >= 0).all())
        offset = np.floor(quotients.offset) if are_exact else quotients.offset
        return replace(
            quotients,
            offset=offset,
            low=np.floor(quotients.low),
            high=np.floor(quotients.high),
            is_floored=not are_exact,
        )

    def clip(self, low: float = -np.inf, high: float = np.inf) -> UnroundedSums:
        """Return these numbers clipped."""
        return replace(self, low=np.clip(self.low, low, high), high=np.clip(self.high, low, high))


def unbounded_sums(
    source: ConvolutionSum | TensorCopy | TensorPair,
    channels: int,
    extents: tuple[int, ...],
    exponent: Any = 0.0,
) -> UnroundedSums:
    """Return unbounded sums."""
    exponent, offset, low, high = (np.full(channels, value, np.float64) for value in (exponent, 0.0, -np.inf, np.inf))
    return UnroundedSums(source, exponent, offset, low, high, extents)


def _largest(source: ConvolutionSum | TensorCopy | TensorPair) -> Any:
    """Bound of the integers, per tensor or channel."""
    if isinstance(source, ConvolutionSum):
        return HALF * np.abs(source.weights.astype(np.float64)).sum((1, 2, 3))
    return (
        HALF * (1 + 2.0 ** abs(source.exponents[0] - source.exponents[1])) if isinstance(source, TensorPair) else HALF
    )
