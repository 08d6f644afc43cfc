"""Convolutions and products against NumPy, written from their definitions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.relay_programs import apply, random

IMAGE = random(2, 4, 7, 6)


def convolve(  # noqa: PLR0917
    x: np.ndarray, w: np.ndarray, strides: Sequence[int], pads: Sequence[int], dilation: int = 1, groups: int = 1
) -> np.ndarray:
    """Convolve in the order N C ... and O I ...; `pads` are those before each axis, then those behind."""
    axes = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:], strict=True)])
    size = [(extent - 1) * dilation + 1 for extent in w.shape[2:]]
    out = [(extent - window) // step + 1 for extent, window, step in zip(x.shape[2:], size, strides, strict=True)]
    result = np.zeros((x.shape[0], w.shape[0], *out), np.result_type(x, np.float64))
    per_group = w.shape[0] // groups
    for position in itertools.product(*map(range, out)):
        window = tuple(
            slice(offset_in_file * step, offset_in_file * step + extent, dilation)
            for offset_in_file, step, extent in zip(position, strides, size, strict=True)
        )
        for group in range(groups):
            read, channels_out = (slice(group * count, (group + 1) * count) for count in (w.shape[1], per_group))
            inputs: Any = (slice(None), read, *window)
            outputs: Any = (slice(None), channels_out, *position)
            axes_of_window = list(range(1, x.ndim))
            result[outputs] = np.tensordot(x[inputs], w[channels_out], (axes_of_window, axes_of_window))
    return result


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(
    ("attributes", "strides", "pad", "dilation", "groups"),
    [
        ("", 1, 0, 1, 1),
        (", strides={2}, padding={1}", 2, 1, 1, 1),
        (", dilation={2}, padding={1}", 1, 1, 2, 1),
        (", groups=2", 1, 0, 1, 2),
    ],
)
def test_convolutions(axes: int, attributes: str, strides: int, pad: int, dilation: int, groups: int) -> None:  # noqa: PLR0917
    x, w = random(2, 4, *(7, 6, 5)[:axes]), random(6, 4 // groups, *(3, 2, 3)[:axes], seed=1)
    for number in "12":
        attributes = attributes.replace(f"{{{number}}}", f"[{', '.join([number] * axes)}]")
    output = apply(f"nn.conv{axes}d(%a, %w{attributes})", x, w=w)
    reference = convolve(x, w, [strides] * axes, [pad] * 2 * axes, dilation, groups)
    np.testing.assert_allclose(output, reference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("layout", "kernel"), [("NHWC", "HWIO"), ("NHWC", "OHWI"), ("NCHW", "HWIO"), ("NHWC", "OIHW")])
def test_orders_of_the_axes(layout: str, kernel: str) -> None:
    w = random(6, 4, 3, 3, seed=1)
    output = apply(
        f'nn.conv2d(%a, %w, padding=[1, 1, 0, 0], data_layout="{layout}", kernel_layout="{kernel}")',
        IMAGE.transpose(["NCHW".index(letter) for letter in layout]),
        w=w.transpose(["OIHW".index(letter) for letter in kernel]),
    )
    reference = convolve(IMAGE, w, [1, 1], [1, 1, 0, 0]).transpose(["NCHW".index(letter) for letter in layout])
    np.testing.assert_allclose(output, reference, rtol=1e-4, atol=1e-5)


def test_depthwise_weights_of_tensorflow_hold_channels_and_multiplier() -> None:
    w = random(3, 3, 4, 2, seed=1)
    output = apply(
        'nn.conv2d(%a, %w, groups=4, channels=8, data_layout="NHWC", kernel_layout="HWOI")',
        IMAGE.transpose(0, 2, 3, 1),
        w=w,
    )
    plain_result = w.reshape(3, 3, 8, 1).transpose(2, 3, 0, 1)
    reference = convolve(IMAGE, plain_result, [1, 1], [0] * 4, groups=4).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(output, reference, rtol=1e-4, atol=1e-5)


def spread(x: np.ndarray, w: np.ndarray, stride: int, pad: int, extra: int) -> np.ndarray:
    """Convolve transposed: every input adds its multiple of the kernel, weights are (inputs, outputs, ...)."""
    size = [(extent - 1) * stride + window + extra for extent, window in zip(x.shape[2:], w.shape[2:], strict=True)]
    result = np.zeros((x.shape[0], w.shape[1], *size))
    for position in itertools.product(*map(range, x.shape[2:])):
        corner = zip(position, w.shape[2:], strict=True)
        window: Any = (..., *(slice(place * stride, place * stride + extent) for place, extent in corner))
        pixel: Any = (..., *position)
        result[window] += np.tensordot(x[pixel], w, (1, 0))
    cropped: Any = (..., *(slice(pad, extent - pad) for extent in result.shape[2:]))
    return np.asarray(result[cropped])


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_transposed_convolutions(axes: int) -> None:
    x, w = random(1, 4, *(5, 4, 3)[:axes]), random(4, 3, *(3, 3, 2)[:axes], seed=1)
    numbers = {name: f"[{', '.join([str(value)] * axes)}]" for name, value in (("one", 1), ("two", 2))}
    output = apply(
        f"nn.conv{axes}d_transpose(%a, %w, strides={numbers['two']}, padding={numbers['one']}, "
        f"output_padding={numbers['one']})",
        x,
        w=w,
    )
    np.testing.assert_allclose(output, spread(x, w, 2, 1, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "order"),
    [
        ('kernel_layout="OIHW"', (1, 0, 2, 3)),
        ('kernel_layout="OIHW"', (0, 1, 2, 3)),  # as old versions wrote it
        ('data_layout="NHWC", kernel_layout="HWIO"', (2, 3, 0, 1)),
    ],
)
def test_transposed_convolutions_in_other_orders(attributes: str, order: tuple[int, ...]) -> None:
    x, w = random(1, 4, 5, 4), random(4, 3, 3, 3, seed=1)
    last = "NHWC" in attributes
    operand = x.transpose(0, 2, 3, 1) if last else x
    output = apply(f"nn.conv2d_transpose(%a, %w, {attributes})", operand, w=w.transpose(order))
    reference = spread(x, w, 1, 0, 0)
    np.testing.assert_allclose(output, reference.transpose(0, 2, 3, 1) if last else reference, rtol=1e-4, atol=1e-5)


def test_products() -> None:
    x, w = random(5, 4), random(3, 4, seed=1)
    np.testing.assert_allclose(apply("nn.dense(%a, %w, units=3)", x, w=w), x @ w.T, rtol=1e-5)
    np.testing.assert_allclose(apply("nn.matmul(%a, %b, transpose_b=True)", x, w), x @ w.T, rtol=1e-5)
    np.testing.assert_allclose(apply("nn.matmul(%a, %b, transpose_a=True)", x.T.copy(), w.T.copy()), x @ w.T, rtol=1e-5)
    batch_rows, second = random(2, 5, 4), random(2, 3, 4, seed=1)
    np.testing.assert_allclose(
        apply("nn.batch_matmul(%a, %b)", batch_rows, second), batch_rows @ second.swapaxes(1, 2), rtol=1e-4
    )
    output = apply("nn.batch_matmul(%a, %b, transpose_b=False)", batch_rows, second.swapaxes(1, 2).copy())
    np.testing.assert_allclose(output, batch_rows @ second.swapaxes(1, 2), rtol=1e-4, atol=1e-6)
    # Square operands could be either; since TVM 0.8 what is not turned has no attribute.
    output = apply("nn.batch_matmul(%a, %b)", batch_rows[:, :4].copy(), batch_rows[:, 1:].copy())
    np.testing.assert_allclose(output, batch_rows[:, :4] @ batch_rows[:, 1:], rtol=1e-4, atol=1e-6)
    output = apply('einsum((%a, %b), equation="bij,bkj->bik")', batch_rows, second)
    np.testing.assert_allclose(output, batch_rows @ second.swapaxes(1, 2), rtol=1e-4, atol=1e-6)


def test_small_whole_numbers_add_up_in_large_ones() -> None:
    x, w = random(5, 64, dtype="int8"), random(3, 64, seed=1, dtype="int8")
    output = apply('nn.dense(%a, %w, out_dtype="int32")', x, w=w)
    assert output.dtype == np.int32
    np.testing.assert_array_equal(output, x.astype(np.int32) @ w.T.astype(np.int32))


@pytest.mark.parametrize("layout", ["OIHW", "HWOI"])
def test_a_depthwise_weight_may_have_a_multiplier(layout: str) -> None:
    """The `multiplier` results of a channel lie side by side."""
    x, weight = random(1, 3, 6, 6), random(3, 2, 3, 3)
    kernel = weight if layout == "OIHW" else weight.transpose(2, 3, 0, 1)
    output = apply(f'nn.conv2d(%a, %b, groups=3, channels=6, kernel_size=[3, 3], kernel_layout="{layout}")', x, kernel)
    windows = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), axis=(1, 2))
    reference = np.einsum("chwij,cmij->cmhw", windows, weight).reshape(1, 6, 4, 4)
    np.testing.assert_allclose(output, reference, rtol=1e-4, atol=1e-5)
