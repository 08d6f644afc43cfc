"""Compiled kernels of pictures against plain NumPy, in every format and at the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.core.model_card import SAMPLING, Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.picture.pixels import FORMATS, Pixels
from pipeline.picture.preparation import PictureInput, PreparationStage
from tests.support import pictures

pytestmark = pytest.mark.thorough

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# The picture's width and height, and the input's: a tile and less, odd numbers, growing, one pixel, a sliver.
SIZES = [
    ((64, 48), (32, 32)), ((66, 52), (35, 17)), ((32, 16), (100, 71)), ((4, 4), (9, 7)), ((8, 4), (1, 1)),
    ((640, 36), (33, 3)), ((4, 400), (16, 16)), ((48, 32), (48, 32)),
]  # fmt: skip
RGB_SIZES = [((1, 1), (1, 1)), ((1, 1), (19, 5)), ((37, 53), (33, 31)), ((1, 90), (20, 4)), ((15, 1), (7, 33))]


def stage(pixels: Pixels, room: tuple[int, int], count: int = 3, dtype: str = "float32", **rules: Any) -> Any:
    last = rules.get("layout") == "nhwc"
    shape = (1, room[1], room[0], count) if last else (1, count, room[1], room[0])
    preparation = Preparation(**rules)
    return PreparationStage(pixels, PictureInput(TensorSpec("x", shape, dtype), preparation)), preparation


def channels_last(array: np.ndarray, layout: str = "nchw") -> np.ndarray:
    picture: np.ndarray = array[0] if layout == "nhwc" else array[0].transpose(1, 2, 0)
    return picture


def check(pixels: Pixels, room: tuple[int, int], count: int = 3, **rules: Any) -> None:
    array = pictures.random_picture(pixels)
    prepare, preparation = stage(pixels, room, count, scale=255, **rules)
    output = channels_last(prepare(array), rules.get("layout", "nchw"))
    reference, inside = pictures.prepare(pixels, array, room, count, preparation)
    steps = np.abs(output - reference)
    # Bytes are rounded; OpenCV, which has 11 bits for weights, cuts off a quarter on average.
    assert steps[inside].max(initial=0) <= (0.9 if preparation.sampling == "opencv" else 0.501)
    assert steps[~inside].max(initial=0) == 0
    np.testing.assert_array_equal(output, output.round())


@pytest.mark.parametrize("sampling", ["average", "opencv"])
@pytest.mark.parametrize("pixel_format", FORMATS)
@pytest.mark.parametrize(("size", "room"), SIZES)
@pytest.mark.one_in(3)
def test_every_format_at_every_size(pixel_format: str, size: Any, room: Any, sampling: str) -> None:
    check(Pixels(pixel_format, *size), room, sampling=sampling, layout="nchw")


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize(("size", "room"), RGB_SIZES)
def test_pictures_with_odd_sides(size: Any, room: Any, sampling: str) -> None:
    check(Pixels("bgr24", *size), room, sampling=sampling, layout="nhwc")


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("pixel_format", FORMATS)
@pytest.mark.one_in(2)
def test_every_format_for_every_layout(pixel_format: str, layout: str, count: int) -> None:
    check(Pixels(pixel_format, 60, 44), (40, 38), count, layout=layout, channels="bgr", sampling="bilinear")


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(
    ("size", "room", "rules"),
    [
        ((64, 48), (40, 40), {"resize": "letterbox"}),
        ((48, 64), (40, 40), {"resize": "letterbox", "margin": "corner", "fill": 7}),
        ((1000, 4), (40, 40), {"resize": "letterbox"}),
        ((64, 48), (40, 40), {"resize": "crop"}),
        ((48, 64), (33, 17), {"resize": "crop", "fraction": 0.875, "rounding": "down"}),
        ((16, 48), (50, 5), {"resize": "crop"}),
    ],
)
@pytest.mark.one_in(2)
def test_margins_and_what_stands_out(size: Any, room: Any, rules: Any, layout: str) -> None:
    check(Pixels("rgb24", *size), room, layout=layout, **rules)
    check(Pixels("yuv420p", *size), room, layout=layout, sampling="opencv", **rules)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_floats_are_normalised(dtype: str) -> None:
    pixels = Pixels("rgb24", 40, 30)
    array = pictures.random_picture(pixels)
    prepare, rules = stage(pixels, (40, 30), dtype=dtype, mean=MEAN, std=STD)
    output = prepare(array)
    assert output.dtype == dtype
    reference = pictures.normalise(array.astype(float), rules)
    np.testing.assert_allclose(channels_last(output), reference, atol=1e-5 if dtype == "float32" else 2e-3)


@pytest.mark.parametrize(("dtype", "lowest"), [("uint8", 0), ("int8", -128)])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_quantised_inputs_have_a_scale(dtype: str, lowest: int, layout: str) -> None:
    pixels, room = Pixels("nv12", 64, 48), (40, 40)
    rules = Preparation("letterbox", MEAN, STD, layout=layout, channels="bgr")
    shape = (1, 40, 40, 3) if layout == "nhwc" else (1, 3, 40, 40)
    scale, zero_point = 0.02, lowest + 110
    quantization = Quantization("x", (scale,), (zero_point,))
    array = pictures.random_picture(pixels)
    output = PreparationStage(pixels, PictureInput(TensorSpec("x", shape, dtype), rules, [quantization]))(array)
    values, _ = pictures.prepare(pixels, array, room, 3, rules)
    steps = pictures.normalise(values, rules) / scale + zero_point
    # Bytes are rounded before they are normalised, by less than a step of 1 / 255.
    tolerance = 0.501 + 0.501 / 255 / min(STD) / scale
    assert np.abs(channels_last(output, layout) - steps.clip(lowest, lowest + 255)).max() <= tolerance
    assert output.dtype == dtype


@pytest.mark.parametrize("pixel_format", ["rgb24", "gray", "yuv420p", "nv12", "yuyv422"])
def test_rows_may_lie_anywhere(pixel_format: str) -> None:
    pixels = Pixels(pixel_format, 64, 48)
    array = pictures.random_picture(pixels)
    wide = np.zeros((array.shape[0], array.shape[1] + 13, *array.shape[2:]), np.uint8)
    wide[:, 5:-8] = array
    prepare, _ = stage(pixels, (30, 20))
    reference = prepare(array)
    np.testing.assert_array_equal(prepare(wide[:, 5:-8]), reference)
    # Upside down in memory, and every second column of memory.
    np.testing.assert_array_equal(prepare(np.ascontiguousarray(array[::-1])[::-1]), reference)
    spread = np.repeat(array, 2, axis=1)[:, ::2]
    np.testing.assert_array_equal(prepare(spread), reference)


def test_a_part_of_a_picture_is_read_in_place() -> None:
    whole = pictures.random_picture(Pixels("rgb24", 90, 70))
    part = whole[11:59, 7:71]
    prepare, _ = stage(Pixels("rgb24", 64, 48), (30, 20))
    np.testing.assert_array_equal(prepare(part), prepare(part.copy()))


def test_another_picture_than_the_stages_is_refused() -> None:
    prepare, _ = stage(Pixels("rgb24", 64, 48), (30, 20))
    with pytest.raises(ValueError, match=r"the picture is uint8\[48, 60, 3\], not uint8\[48, 64, 3\]"):
        prepare(np.zeros((48, 60, 3), np.uint8))


@pytest.mark.parametrize(("colorspace", "color_range"), [(1, 1), (9, 1), (1, 2)])
def test_colours_follow_their_space(colorspace: int, color_range: int) -> None:
    """White and grey are the same in all spaces; green is none of BT.601's."""
    pixels = Pixels("yuv420p", 32, 32, colorspace, color_range)
    prepare, _ = stage(pixels, (32, 32), scale=255)
    white, full = np.full(pixels.shape, 128, np.uint8), color_range == 2
    white[:32] = 255 if full else 235
    np.testing.assert_array_equal(prepare(white), np.full((1, 3, 32, 32), 255))
    red = white.copy()
    red[:32], red[40:] = 100, 168
    plain = stage(Pixels("yuv420p", 32, 32, 2, color_range), (32, 32), scale=255)[0](red)
    assert np.abs(prepare(red) - plain).max() > 2
