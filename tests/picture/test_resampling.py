from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pipeline.picture.resampling import resize_opencv, resize_picture

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


@pytest.mark.parametrize(("size", "reference"), TABLE)
def test_values_of_opencv(size: Any, reference: Any) -> None:
    assert resize_opencv(np.array(PLANE, np.uint8), size).tolist() == reference


@pytest.mark.parametrize("seed", range(12))
def test_any_size_as_by_plain_loops(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows, columns, width, height = (int(extent) for extent in generator.integers(1, 40, 4))
    plane = generator.integers(0, 256, (rows, columns), dtype=np.uint8)
    assert resize_opencv(plane, (width, height)).tolist() == resize_by_loops(plane, width, height)


def test_colours_are_resized_apart_and_grey_is_opencvs() -> None:
    picture = np.random.default_rng(1).integers(0, 256, (9, 11, 3), dtype=np.uint8)
    planes = resize_picture(picture, (7, 5), 3, "opencv")
    assert planes.shape == (3, 5, 7)
    assert [plane.tolist() for plane in planes] == [resize_by_loops(picture[..., number], 7, 5) for number in range(3)]
    colours = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [12, 200, 77], [255, 255, 255]]], np.uint8)
    assert resize_picture(colours, (5, 1), 1, "opencv").tolist() == [[[76, 150, 29, 130, 255]]]


@pytest.mark.parametrize(
    ("sampling", "rule"), [("bilinear", "BILINEAR"), ("bicubic", "BICUBIC"), ("average", "BICUBIC")]
)
def test_averages_are_pillows(sampling: str, rule: str) -> None:
    image = pytest.importorskip("PIL.Image")
    picture = np.random.default_rng(1).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    for channels, mode in ((3, "RGB"), (1, "L")):
        reference = np.asarray(image.fromarray(picture).convert(mode).resize((13, 9), image.Resampling[rule]))
        planes = resize_picture(picture, (13, 9), channels, sampling)
        np.testing.assert_array_equal(planes.transpose(1, 2, 0).reshape(reference.shape), reference)
