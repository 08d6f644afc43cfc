"""Resizing by the rules of OpenCV and Pillow, against values of theirs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.picture.preparation import PictureInput

PLANE = [[0, 60, 255], [10, 200, 90], [255, 1, 128], [77, 33, 5]]

# Values of OpenCV itself, versions 4.11 and 5.0: width and height, and the resized plane.
TABLE: list[tuple[tuple[int, int], list[list[int]]]] = [
    ((5, 4), [[0, 24, 60, 177, 255], [10, 86, 200, 134, 90], [255, 153, 1, 77, 128], [77, 59, 33, 16, 5]]),
    ((2, 2), [[36, 162], [129, 54]]),
    (
        (4, 7),
        [
            [0, 37, 133, 255],
            [4, 70, 142, 196],
            [9, 122, 157, 102],
            [133, 112, 104, 109],
            [242, 93, 47, 119],
            [141, 66, 32, 49],
            [77, 49, 22, 5],
        ],
    ),
    ((1, 1), [[101]]),
    ((3, 2), [[5, 130, 173], [166, 17, 67]]),
]


def one_axis(position: int, extent: int, resized: int) -> tuple[int, int, int, int]:
    """Return a new pixel's neighbours and weights in OpenCV's fixed-point numbers."""
    place = np.float32((position + 0.5) * (1 / (resized / extent)) - 0.5)
    before = math.floor(place)
    fraction = np.float32(place - np.float32(before))
    weights = round(float((np.float32(1) - fraction) * 2048)), round(float(fraction * np.float32(2048)))
    return min(max(before, 0), extent - 1), min(max(before + 1, 0), extent - 1), *weights


def resize_by_loops(plane: Any, width: int, height: int) -> list[list[int]]:
    rows, columns = len(plane), len(plane[0])
    picture = []
    for y in range(height):
        upper, lower, upper_weight, lower_weight = one_axis(y, rows, height)
        line = []
        for x in range(width):
            left, right, left_weight, right_weight = one_axis(x, columns, width)
            above, below = (
                (int(plane[row][left]) * left_weight + int(plane[row][right]) * right_weight) // 16
                for row in (upper, lower)
            )
            line.append((above * upper_weight // 65536 + below * lower_weight // 65536 + 2) // 4)
        picture.append(line)
    return picture


def resize(picture: np.ndarray, size: tuple[int, int], sampling: str, channels: int = 3) -> np.ndarray:
    """Return a picture of another size, int [height, width, channels]."""
    spec = TensorSpec("x", (size[1], size[0], channels), "uint8")
    array = PictureInput(spec, Preparation(sampling=sampling, layout="nhwc")).prepare(picture)[0]
    return array.astype(int)


def colours(plane: Any) -> np.ndarray:
    return np.repeat(np.array(plane, np.uint8)[..., None], 3, axis=2)


@pytest.mark.parametrize(("size", "reference"), TABLE)
def test_values_of_opencv_within_a_step(size: Any, reference: Any) -> None:
    assert np.abs(resize(colours(PLANE), size, "opencv")[..., 0] - reference).max() <= 1


@pytest.mark.parametrize("seed", range(12))
def test_any_size_as_by_plain_loops_within_a_step(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows, columns, width, height = (int(extent) for extent in generator.integers(1, 40, 4))
    plane = generator.integers(0, 256, (rows, columns), dtype=np.uint8)
    reference = np.array(resize_by_loops(plane, width, height))
    steps = resize(colours(plane), (width, height), "opencv")[..., 0] - reference
    assert np.abs(steps).max() <= 1


def test_steps_from_opencv_are_few_and_to_both_sides() -> None:
    picture = np.random.default_rng(1).integers(0, 256, (150, 200, 3), dtype=np.uint8)
    reference = np.array([resize_by_loops(picture[..., number], 97, 61) for number in range(3)]).transpose(1, 2, 0)
    steps = resize(picture, (97, 61), "opencv") - reference
    assert np.abs(steps).mean() < 0.1
    assert abs(steps.mean()) < 0.01


def test_grey_is_opencvs_within_a_step() -> None:
    primaries = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [12, 200, 77], [255, 255, 255]]], np.uint8)
    grey = resize(primaries, (5, 1), "opencv", channels=1)
    assert np.abs(grey[..., 0] - [[76, 150, 29, 130, 255]]).max() <= 1


@pytest.mark.parametrize("size", [(13, 9), (40, 7), (57, 81)])
def test_bilinear_averages_are_pillows_within_a_step(size: tuple[int, int]) -> None:
    image = pytest.importorskip("PIL.Image")
    picture = np.random.default_rng(1).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    reference = np.asarray(image.fromarray(picture).resize(size, image.Resampling.BILINEAR)).astype(int)
    assert np.abs(resize(picture, size, "bilinear") - reference).max() <= 1


@pytest.mark.parametrize("sampling", ["bicubic", "average"])
@pytest.mark.parametrize("size", [(13, 9), (57, 81)])
def test_averages_of_photos_are_pillows_bicubic_ones_within_a_step(size: tuple[int, int], sampling: str) -> None:
    """Of smooth pictures: Pillow limits what swings over to bytes between rows and columns."""
    image = pytest.importorskip("PIL.Image")
    columns, rows = np.meshgrid(np.linspace(0, 6, 40), np.linspace(0, 6, 30))
    picture = np.stack([127 + 100 * np.sin(columns), 127 + 90 * np.cos(rows), 127 + 80 * np.sin(rows - columns)], -1)
    picture = picture.astype(np.uint8)
    reference = np.asarray(image.fromarray(picture).resize(size, image.Resampling.BICUBIC)).astype(int)
    assert np.abs(resize(picture, size, sampling) - reference).max() <= 1
