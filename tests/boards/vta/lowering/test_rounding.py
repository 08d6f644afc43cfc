"""Sums that may not fit VTA's 32 bits once they are rounded are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from boards.vta.compiler.layers import Addition
from boards.vta.lowering import rounding
from boards.vta.lowering.values import ConvolutionSum, MemoryTensor, TensorPair, UnroundedSums, Unsupported

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


def pair(exponents: tuple[int, int], scale: int = 0, offset: float = 0.0, *, is_floored: bool = False) -> UnroundedSums:
    """Return the sum of two tensors, scaled afterwards by a power of two."""
    left, right = (MemoryTensor(number, (1, 4, 4), (1, 1, 4, 4), 0) for number in range(2))
    numbers = (min(exponents) + scale, offset, -np.inf, np.inf)
    exponent, constant, low, high = (np.array([value], np.float64) for value in numbers)
    return UnroundedSums(TensorPair(left, right, exponents), exponent, constant, low, high, (1, 1, 4, 4), is_floored)


@pytest.mark.parametrize(
    ("exponents", "scale", "exponent", "shifts"),
    [
        # Both on the scale of the result, or shifted down to it together.
        ((0, 0), 0, 0, (0, 0, 0)),
        ((0, 0), 0, 3, (0, 0, 3)),
        # One has to be shifted up to the other one's unit: by 6 bits at most.
        ((0, 2), 0, 1, (0, 2, 1)),
        ((6, 0), 0, 0, (6, 0, 0)),
        ((-2, 4), 0, 0, (0, 6, 2)),
        # A finer result shifts both.
        ((2, 3), 0, 0, (2, 3, 0)),
        ((4, 4), 0, -2, (6, 6, 0)),
        # What scaled the sum scaled both.
        ((0, 1), 1, 2, (0, 1, 1)),
        ((0, 1), -1, 2, (0, 1, 3)),
    ],
)
def test_two_tensors_are_added_on_the_finest_scale(
    exponents: tuple[int, int], scale: int, exponent: int, shifts: tuple[int, int, int]
) -> None:
    layer = rounding.layer(pair(exponents, scale), float(exponent))
    assert isinstance(layer, Addition)
    assert (layer.left_shift, layer.right_shift, layer.shift) == shifts
    assert layer.even


@pytest.mark.parametrize(("exponents", "exponent"), [((0, 7), 0), ((7, 0), 0), ((4, 4), -3), ((-3, 4), 5)])
def test_scales_that_are_too_far_apart_are_named(exponents: tuple[int, int], exponent: int) -> None:
    with pytest.raises(Unsupported, match=r"the scales of the two tensors that it adds differ by 2\^7"):
        rounding.layer(pair(exponents), float(exponent))


@pytest.mark.parametrize("case", [pair((0, 0), offset=1.0), pair((0, 0), is_floored=True)], ids=["offset", "floored"])
def test_two_tensors_and_a_constant_are_refused(case: UnroundedSums) -> None:
    with pytest.raises(Unsupported, match="adds a constant to the sum of two tensors"):
        rounding.layer(case, 0.0)


@pytest.mark.parametrize(
    ("low", "high", "exponent", "ends"),
    [
        ((-np.inf, -np.inf), (np.inf, np.inf), 0, (-128, 127)),
        # Of ReLU6 in units of a half; halves go to the even neighbour.
        ((0.0, 0.0), (6.0, 6.0), -1, (0, 12)),
        ((-3.0, -3.0), (5.0, 5.0), 1, (-2, 2)),
        ((-500.0, -300.0), (300.0, 400.0), 1, (-128, 127)),
        ((0.0, 1.0), (6.0, 6.0), 0, None),
        ((0.0, 0.0), (6.0, 7.0), 0, None),
    ],
)
def test_all_channels_are_clipped_to_one_range(
    low: tuple[float, float], high: tuple[float, float], exponent: int, ends: tuple[int, int] | None
) -> None:
    case = replace(sums(0), low=np.array(low), high=np.array(high))
    if ends is None:
        with pytest.raises(Unsupported, match="clipped to different ranges"):
            rounding.bounds(case, float(exponent))
    else:
        assert rounding.bounds(case, float(exponent)) == ends
