"""The qnn operators in whole numbers, exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from pipeline.model.requantization import multiplier_and_shift
from tests.support.relay_programs import apply, random

BYTES = random(2, 4, 5, 5, dtype="int8")
WEIGHTS = random(6, 4, 3, 3, seed=1, dtype="int8")


def requantize(values: np.ndarray, factor: float, rounding: str = "UPWARD") -> np.ndarray:
    """Multiply as TVM does, with Python's numbers, which have no bounds."""
    fraction, exponent = math.frexp(factor)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    second = 31 - exponent

    def one(value: int) -> int:
        product = value * multiplier
        nudge = (1 << (second - 1)) - (1 if rounding == "TONEAREST" and product < 0 else 0)
        return (product + nudge) >> second

    return np.asarray(np.vectorize(one)(values.astype(object)).astype(np.int64))


@pytest.mark.parametrize("factor", [0.5, 1.0, 0.3, 1e-5, 1.7, 2.0, 0.9999999999])
def test_a_factor_in_fixed_point(factor: float) -> None:
    multiplier, shift = multiplier_and_shift(factor)
    assert 2**30 <= multiplier < 2**31
    assert multiplier * 2.0 ** (shift - 31) == pytest.approx(factor, rel=1e-9)


@pytest.mark.parametrize(("rounding", "reference"), [("UPWARD", [-1, 0, 1, 2]), ("TONEAREST", [-2, -1, 1, 2])])
def test_halves(rounding: str, reference: Sequence[int]) -> None:
    values = np.array([-3, -1, 1, 3], np.int32)
    output = apply(f'qnn.requantize(%a, 1f, 0, 2f, 0, rounding="{rounding}", out_dtype="int8")', values)
    assert output.dtype == np.int8
    np.testing.assert_array_equal(output, reference)


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
@pytest.mark.parametrize("scales", [(0.0123, 0.5), (0.7, 0.11), (0.25, 0.25)])
def test_requantization(rounding: str, scales: tuple[float, float]) -> None:
    values = random(200, dtype="int32")
    output = apply(
        f'qnn.requantize(%a, {scales[0]}f, 7, {scales[1]}f, 3, rounding="{rounding}", out_dtype="uint8")', values
    )
    factor = float(np.float32(scales[0])) / float(np.float32(scales[1]))
    shifted_values = values.astype(np.int64) - 7
    reference = shifted_values if factor == 1 else requantize(shifted_values, factor, rounding)
    np.testing.assert_array_equal(output, np.clip(reference + 3, 0, 255))


def test_requantization_per_channel() -> None:
    values, scales = random(2, 3, 4, dtype="int32"), np.array([0.01, 0.5, 3.0], np.float32)
    output = apply('qnn.requantize(%a, %s, 0, 0.3f, -4, axis=1, out_dtype="int8")', values, s=scales)
    factors = scales.astype(np.float64) / float(np.float32(0.3))
    reference = np.stack([requantize(values[:, each], factors[each]) for each in range(3)], 1)
    np.testing.assert_array_equal(output, np.clip(reference - 4, -128, 127))


def test_fixed_point_multiplication() -> None:
    values = random(50, dtype="int32")
    output = apply("fixed_point_multiply(%a, multiplier=1395864371, shift=1)", values)
    np.testing.assert_array_equal(output, requantize(values, 1395864371 / 2**30))


def test_quantization_rounds_halves_away_from_zero() -> None:
    values = np.array([-100, -1.25, -0.75, -0.25, 0.25, 0.75, 1.3, 100], np.float32)
    output = apply('qnn.quantize(%a, 0.5f, 0, out_dtype="int8")', values)
    np.testing.assert_array_equal(output, [-128, -3, -2, -1, 1, 2, 3, 127])
    output = apply('qnn.quantize(%a, 0.5f, 10, out_dtype="uint8")', values)
    np.testing.assert_array_equal(output, [0, 8, 9, 10, 11, 12, 13, 210])


def test_quantization_per_channel_and_back() -> None:
    values, scales = random(2, 3, 4), np.array([0.01, 0.02, 0.03], np.float32)
    zeros = np.array([1, -2, 3], np.int32)
    bytes_in = apply('qnn.quantize(%a, %s, %z, axis=1, out_dtype="int8")', values, s=scales, z=zeros)
    text = np.clip(values / scales[:, None] + zeros[:, None].astype(np.float32), -128, 127)
    np.testing.assert_array_equal(bytes_in, np.trunc(text + np.copysign(0.5, text)).astype(np.int8))
    output = apply("qnn.dequantize(%a, %s, %z, axis=1)", bytes_in, s=scales, z=zeros)
    reference = (bytes_in.astype(np.int32) - zeros[:, None]).astype(np.float32) * scales[:, None]
    np.testing.assert_array_equal(output, reference)


@pytest.mark.parametrize(("zero", "weight_zero"), [(0, 0), (5, 0), (-3, 4)])
def test_convolution(zero: int, weight_zero: int) -> None:
    output = apply(
        f"qnn.conv2d(%a, %w, {zero}, {weight_zero}, 0.5f, 0.25f, padding=[1, 1, 1, 1], channels=6, kernel_size=[3, 3], "
        'out_dtype="int32")',
        BYTES,
        w=WEIGHTS,
    )
    assert output.dtype == np.int32
    image = np.pad(BYTES.astype(np.int64) - zero, [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), (2, 3))
    reference = np.einsum("nchwij,ocij->nohw", windows, WEIGHTS.astype(np.int64) - weight_zero)
    np.testing.assert_array_equal(output, reference)


def test_a_byte_without_sign_and_one_with() -> None:
    image = random(1, 4, 3, 3, dtype="uint8")
    output = apply("qnn.conv2d(%a, %w, 128, 0, 0.5f, 0.25f)", image, w=WEIGHTS)
    reference = np.einsum("nchw,ochw->no", image.astype(np.int64) - 128, WEIGHTS.astype(np.int64))[..., None, None]
    np.testing.assert_array_equal(output, reference)


def test_products() -> None:
    x, w = random(3, 8, dtype="int8"), random(5, 8, seed=1, dtype="int8")
    reference = (x.astype(np.int64) - 2) @ (w.astype(np.int64) + 1).T
    np.testing.assert_array_equal(apply("qnn.dense(%a, %w, 2, -1, 0.5f, 0.1f, units=5)", x, w=w), reference)
    for attributes in ("", ", transpose_b=True"):
        output = apply(f"qnn.batch_matmul(%a, %b, 2, -1, 0.5f, 0.1f{attributes})", x[None], w[None])
        np.testing.assert_array_equal(output, reference[None])


def test_sums_and_differences() -> None:
    x, y = random(100, dtype="int8"), random(100, seed=1, dtype="int8")
    scales = [float(np.float32(each)) for each in (0.05, 0.08, 0.1)]
    first = requantize(x.astype(np.int64) - 3, scales[0] / scales[2]) + 1
    second = requantize(y.astype(np.int64) + 2, scales[1] / scales[2]) + 1
    output = apply("qnn.add(%a, %b, 0.05f, 3, 0.08f, -2, 0.1f, 1)", x, y)
    np.testing.assert_array_equal(output, np.clip(first + second - 1, -128, 127))
    output = apply("qnn.subtract(%a, %b, 0.05f, 3, 0.08f, -2, 0.1f, 1)", x, y)
    np.testing.assert_array_equal(output, np.clip(first - second + 1, -128, 127))


def test_products_of_elements_and_joints() -> None:
    x, y = random(1, 100, dtype="int8"), random(1, 100, seed=1, dtype="int8")
    factor = float(np.float32(0.05) * np.float32(0.08)) / float(np.float32(0.1))
    product = (x.astype(np.int64) - 3) * (y.astype(np.int64) + 2)
    output = apply("qnn.mul(%a, %b, 0.05f, 3, 0.08f, -2, 0.1f, 1)", x, y)
    np.testing.assert_array_equal(output, np.clip(requantize(product, factor) + 1, -128, 127))
    output = apply("qnn.concatenate((%a, %b), (0.1f, 0.2f), (1, 0), 0.1f, 1, axis=1)", x, y)
    second = np.clip(requantize(y, float(np.float32(0.2)) / float(np.float32(0.1))) + 1, -128, 127)
    np.testing.assert_array_equal(output, np.concatenate([x, second], 1))


@pytest.mark.parametrize("compute", ["float32", "float64"])
@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
def test_requantization_in_floating_point(rounding: str, compute: str) -> None:
    """The zero point is added before the one rounding; halves go up, or away from zero."""
    values = random(64, seed=3, dtype="int32")
    call = f'rounding="{rounding}", compute_dtype="{compute}", out_dtype="int8"'
    output = apply(f"qnn.requantize(%a, 0.5f, 3, 4f, -5, {call})", values)
    exact = (values - 3) * 0.125 - 5
    reference = np.floor(exact + 0.5) if rounding == "UPWARD" else np.trunc(exact + np.copysign(0.5, exact))
    assert (np.abs(exact % 1) == 0.5).any(), "there are halves to round"
    np.testing.assert_array_equal(output, np.clip(reference, -128, 127))


def test_requantization_per_channel_in_floating_point() -> None:
    values, scales = random(2, 3, 5, dtype="int32"), np.array([0.1, 0.02, 0.5], np.float32)
    call = 'axis=1, compute_dtype="float32", out_dtype="int32"'
    output = apply(f"qnn.requantize(%a, %s, 0, 0.3f, 0, {call})", values, s=scales)
    factors = (scales.astype(np.float64) / np.float32(0.3)).astype(np.float32).reshape(1, 3, 1)
    np.testing.assert_array_equal(output, np.floor(values.astype(np.float32) * factors + np.float32(0.5)))
