"""Sums that may not fit VTA's 32 bits once they are rounded are refused."""

from __future__ import annotations

import numpy as np
import pytest

from boards.vta.lowering import rounding
from boards.vta.lowering.values import ConvolutionSum, MemoryTensor, UnroundedSums, Unsupported

PRODUCTS = 128 * 3
"""The largest sum of bytes times the weights 1 and -2."""


def sums(bias: int, *, is_floored: bool = False) -> UnroundedSums:
    source = MemoryTensor(0, (2, 4, 4), (1, 2, 4, 4), 0)
    origin = ConvolutionSum(source, np.array([1, -2], np.int8).reshape(1, 2, 1, 1))
    exponent, offset, low, high = (np.array([value], np.float64) for value in (0, bias, -np.inf, np.inf))
    return UnroundedSums(origin, exponent, offset, low, high, (1, 1, 4, 4), is_floored)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("shift", "room", "fits"),
    [
        # What rounding adds is half a result; beside it there is no room for more.
        (4, 2**3, False), (4, 2**4 + 1, True), (4, 0, False), (10, 2**9, False), (10, 2**10 + 1, True),
        (1, 1, False), (1, 3, True), (0, 0, False), (0, 2, True),
    ],
)  # fmt: skip
def test_the_largest_sum_has_room_for_rounding(shift: int, room: int, fits: bool, sign: int) -> None:
    case = sums(sign * (2**31 - PRODUCTS - room))
    if fits:
        assert np.asarray(rounding.layer(case, float(shift)).shift).tolist() == [shift]
    else:
        with pytest.raises(Unsupported, match="may not fit 32 bits"):
            rounding.layer(case, float(shift))
