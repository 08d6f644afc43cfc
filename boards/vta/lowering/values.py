"""What a variable of a stage stands for on the way to layers: a tensor in memory, or sums that are not yet rounded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Shape: TypeAlias = tuple[int, int, int]
"""Channels, height and width."""

Numbers: TypeAlias = npt.NDArray[np.float64]
"""One number for each channel; all that occur here are exact."""

HALF = 128
"""Of the values of a byte; unsigned bytes are signed ones plus this."""


class Unsupported(Exception):
    """Raised when VTA cannot run an operator; says why."""


@dataclass(frozen=True)
class Tensor:
    """A tensor in VTA's memory.

    Attributes
    ----------
    number : int
        Among the network's inputs and the results of its steps.
    shape : tuple of int
    extents : tuple of int
        As the model has it: ``[1, channels, height, width]``, or these flattened.
    zero : int
        What the model adds to each value: 128 for uint8, for VTA computes with signed bytes.
    """

    number: int
    shape: Shape
    extents: tuple[int, ...]
    zero: int


@dataclass(frozen=True, eq=False)
class Product:
    """A convolution of a tensor; a dense layer's kernel is as large as its input."""

    source: Tensor
    weights: npt.NDArray[np.int8]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass(frozen=True)
class Copy:
    """A tensor itself."""

    source: Tensor


@dataclass(frozen=True)
class Pair:
    """The sum of two tensors, each times a power of two."""

    left: Tensor
    right: Tensor
    exponents: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Sums:
    """Numbers made of whole ones: ``clip(whole * 2 ** exponent + offset)``, one exponent and offset per channel.

    Attributes
    ----------
    made : Product, Copy or Pair
        What makes the whole numbers.
    exponent, offset, low, high : float64[channels]
    extents : tuple of int
        As the model has them.
    floored : bool
        Whether the numbers were rounded down to whole ones before they were clipped.
    """

    made: Product | Copy | Pair
    exponent: Numbers
    offset: Numbers
    low: Numbers
    high: Numbers
    extents: tuple[int, ...]
    floored: bool = False

    @property
    def channels(self) -> int:
        """How many there are."""
        return len(self.exponent)

    @property
    def largest(self) -> Numbers:
        """What no number of a channel exceeds, whichever its sign."""
        free = _largest(self.made) * np.exp2(self.exponent) + np.abs(self.offset)
        clipped: Numbers = np.minimum(free, np.maximum(np.abs(self.low), np.abs(self.high)))
        return clipped

    @property
    def bounded(self) -> bool:
        """Whether anything is clipped."""
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    def plus(self, constant: Numbers) -> Sums:
        """Return these numbers and a constant, which must be whole if they are."""
        if self.floored and (constant != np.rint(constant)).any():
            raise Unsupported("it adds a fraction to what was rounded")
        return replace(self, offset=self.offset + constant, low=self.low + constant, high=self.high + constant)

    def times(self, exponent: Numbers) -> Sums:
        """Return these numbers times powers of two."""
        factor = np.exp2(exponent)
        return replace(
            self,
            exponent=self.exponent + exponent,
            offset=self.offset * factor,
            low=self.low * factor,
            high=self.high * factor,
        )

    def shifted(self, bits: Numbers) -> Sums:
        """Return these numbers shifted right, which rounds them down."""
        divided = self.times(-bits)
        whole = bool((divided.exponent >= 0).all())
        offset = np.floor(divided.offset) if whole else divided.offset
        return replace(
            divided, offset=offset, low=np.floor(divided.low), high=np.floor(divided.high), floored=not whole
        )

    def clipped(self, low: float = -np.inf, high: float = np.inf) -> Sums:
        """Return these numbers clipped."""
        return replace(self, low=np.clip(self.low, low, high), high=np.clip(self.high, low, high))


def sums(
    made: Product | Copy | Pair, channels: int, extents: tuple[int, ...], exponent: Any = 0.0, offset: Any = 0.0
) -> Sums:
    """Return unbounded sums."""
    exponent, offset, low, high = (np.full(channels, each, np.float64) for each in (exponent, offset, -np.inf, np.inf))
    return Sums(made, exponent, offset, low, high, extents)


def _largest(made: Product | Copy | Pair) -> Any:
    """Return what no whole number exceeds, for all channels or each one."""
    if isinstance(made, Product):
        return HALF * np.abs(made.weights.astype(np.float64)).sum((1, 2, 3))
    return HALF * (1 + 2.0 ** abs(made.exponents[0] - made.exponents[1])) if isinstance(made, Pair) else HALF
