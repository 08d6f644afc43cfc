"""ScaleLimits: demands of an integer accelerator on quantised scales."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Exponents = npt.NDArray[np.float64]
"""Logarithms of scales, to the base of two; whole, or -inf where any scale would do."""

_LARGEST = 128
"""Largest absolute value of bytes of either sign."""


@dataclass(frozen=True)
class ScaleLimits:
    """Limits of an accelerator with power-of-two scales (default: VTA's)."""

    shift: int = 15
    """Bits that the sums of a channel can be shifted right by on their way to bytes."""
    factor: int = 6
    """Bits that a tensor can be shifted left by where it is added to another one."""
    sum_bits: int = 32
    """Bits of a sum of products, sign included."""

    def weight_exponents(
        self, natural: Exponents, source: float, result: float | None, bias: Exponents | None, terms: int
    ) -> Exponents:
        """Return the exponents of weights' scales within shifts and sums.

        Larger exponents cost nothing: where a shift is too long, all sums of the channel are less than a few steps of
        the result. A dead channel is such a case, with weights next to nothing. `natural` is the scale with which the
        largest weight of each channel just fits; -inf for channels without any. `source` and `result` are the exponents
        of the input and the result, None if the result is not quantised. The `bias` is in real numbers, and `terms` are
        the products of one sum.
        """
        # A half of the sums' range is for products, a quarter for the bias, the rest for what rounds.
        half = 2.0 ** (self.sum_bits - 2)
        overflow_bits = max(0.0, float(np.ceil(np.log2(_LARGEST * _LARGEST * max(terms, 1) / half))))
        # Each bit more of the scale halves the integers that weights become, and with them all sums.
        exponents = natural + overflow_bits
        if result is not None:
            exponents = np.maximum(exponents, result - source - self.shift)
        if bias is not None:
            with np.errstate(divide="ignore"):
                exponents = np.maximum(exponents, np.log2(np.abs(bias) / (half / 2)) - source)
        # What has neither weights nor bias may have the unit of the source.
        return np.where(np.isfinite(exponents), np.ceil(exponents), 0.0)

    def addend(self, *exponents: float) -> float:
        """Return the least exponent for an operand of a sum.

        A finer operand would show digits that the rounding of the other addend hides.
        """
        return max(exponents) - self.factor
