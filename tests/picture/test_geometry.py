from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from pipeline.picture.geometry import Geometry, fit

ROOMS = [(640, 640), (320, 256), (416, 416), (224, 224), (97, 131)]


def sizes() -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield sizes of pictures and inputs: usual ones, and hundreds by chance."""
    for picture in ((1920, 1080), (810, 1080), (1000, 667), (4000, 3000), (1, 1), (3000, 2), (2, 3000)):
        for room in ROOMS:
            yield picture, room
    generator = np.random.default_rng(0)
    for _ in range(300):
        width, height = generator.integers(1, 4000, 2)
        yield (int(width), int(height)), ROOMS[int(generator.integers(len(ROOMS)))]


def test_centred_letterboxes_are_ultralytics() -> None:
    for (width, height), room in sizes():
        ratio = min(room[1] / height, room[0] / width)
        resized = round(width * ratio), round(height * ratio)
        free_x, free_y = (room[0] - resized[0]) / 2, (room[1] - resized[1]) / 2
        geometry = fit("letterbox", (width, height), room)
        # A picture of one row or column is too thin for that project.
        if min(resized) > 0:
            assert (geometry.width, geometry.height) == resized
            assert (geometry.left, geometry.top) == (round(free_x - 0.1), round(free_y - 0.1))
        assert (geometry.scale_x, geometry.scale_y) == (ratio, ratio)


def test_letterboxes_in_the_corner_are_yoloxs() -> None:
    for (width, height), room in sizes():
        ratio = min(room[1] / height, room[0] / width)
        geometry = fit("letterbox", (width, height), room, margin="corner", rounding="down")
        assert (geometry.width, geometry.height) == (max(1, int(width * ratio)), max(1, int(height * ratio)))
        assert (geometry.left, geometry.top, geometry.scale_x) == (0, 0, ratio)
        assert geometry.margins == (geometry.width < room[0] or geometry.height < room[1])


@pytest.mark.parametrize(("short", "side"), [(256, 224), (232, 224), (224, 224), (342, 299), (248, 224)])
def test_crops_with_a_fraction_are_torchvisions(short: int, side: int) -> None:
    for (width, height), _ in sizes():
        tall, wide = (short, int(short * height / width)), (int(short * width / height), short)
        resized = tall if width <= height else wide
        left, top = (round((extent - side) / 2) for extent in resized)
        geometry = fit("crop", (width, height), (side, side), rounding="down", fraction=side / short)
        assert (geometry.width, geometry.height) == resized
        assert (geometry.left, geometry.top) == (-left, -top)
        assert not geometry.margins


@pytest.mark.parametrize("share", [0.875, 0.9, 0.94, 0.95, 0.96, 1.0])
@pytest.mark.parametrize("side", [160, 224, 288, 384])
def test_the_shorter_side_is_timms(share: float, side: int) -> None:
    geometry = fit("crop", (600, 500), (side, side), rounding="down", fraction=share)
    assert geometry.height == math.floor(side / share)


def policies() -> Iterator[tuple[tuple[int, int], Geometry]]:
    for picture, room in sizes():
        yield picture, fit("stretch", picture, room)
        for margin, rounding in (("centre", "nearest"), ("corner", "down"), ("corner", "nearest"), ("centre", "down")):
            yield picture, fit("letterbox", picture, room, margin=margin, rounding=rounding)
        yield picture, fit("crop", picture, room)
        yield picture, fit("crop", picture, room, rounding="down", fraction=0.875)


def test_boxes_come_back_to_where_they_were() -> None:
    """Both to the pixels that were resized, and to the labels that the network was trained with."""
    generator = np.random.default_rng(1)
    for picture, geometry in policies():
        size = np.array(picture, np.float64)
        boxes = generator.random((4, 2, 2)) * size
        offset = np.array((geometry.left, geometry.top))
        labels = boxes * np.array((geometry.scale_x, geometry.scale_y)) + offset
        np.testing.assert_allclose(geometry.back_points(labels), boxes, atol=0.01, rtol=1e-4)
        # Sides are rounded to pixels: half of one of the input when to the nearest, else one.
        resized = boxes * np.array((geometry.width, geometry.height)) / size + offset
        scale = np.array((geometry.scale_x, geometry.scale_y))
        # A side shorter than a pixel takes one.
        error = np.abs(geometry.back_points(resized) - boxes) * scale
        assert error.max() <= 1.01
        assert geometry.back(*labels[0, 0]) == pytest.approx(tuple(boxes[0, 0]))


def test_boxes_of_the_usual_policies_are_right_to_half_a_pixel_of_the_input() -> None:
    for picture, room in sizes():
        for geometry in (fit("stretch", picture, room), fit("letterbox", picture, room)):
            corner = (geometry.left + geometry.width, geometry.top + geometry.height)
            x, y = geometry.back(*corner)
            if min(picture) * geometry.scale_x >= 1:
                assert abs(x - picture[0]) * geometry.scale_x <= 0.501
                assert abs(y - picture[1]) * geometry.scale_y <= 0.501


@pytest.mark.parametrize(
    ("resize", "options"),
    [("stretch", {}), ("letterbox", {}), ("letterbox", {"margin": "corner"}), ("crop", {"fraction": 0.8})],
)
def test_a_map_comes_back_to_the_picture(resize: str, options: dict[str, float]) -> None:
    """A map of the input's own positions is one of the picture's positions, once it is brought back."""
    picture, room = (90, 61), (64, 48)
    geometry = fit(resize, picture, room, **options)  # type: ignore[arg-type]
    columns = np.broadcast_to(np.arange(room[0]) + 0.5, room[::-1])
    rows = np.broadcast_to(np.arange(room[1])[:, None] + 0.5, room[::-1])
    back_x, back_y = geometry.back_map(np.stack([columns, rows]), picture)
    middle = np.s_[20:40, 30:60]
    reference_x = (np.arange(90) + 0.5) * geometry.width / 90 + geometry.left
    reference_y = (np.arange(61) + 0.5) * geometry.height / 61 + geometry.top
    np.testing.assert_allclose(back_x[middle], np.broadcast_to(reference_x, (61, 90))[middle], atol=1e-6)
    np.testing.assert_allclose(back_y[middle], np.broadcast_to(reference_y[:, None], (61, 90))[middle], atol=1e-6)


@pytest.mark.parametrize("picture", [(90, 61), (20, 61), (640, 100)])
@pytest.mark.parametrize("margin", ["centre", "corner"])
def test_margins_do_not_show_in_a_map(picture: tuple[int, int], margin: str) -> None:
    geometry = fit("letterbox", picture, (64, 48), margin=margin)
    scores = np.zeros((48, 64), np.float32)
    scores[geometry.top : geometry.top + geometry.height, geometry.left : geometry.left + geometry.width] = 1
    np.testing.assert_allclose(geometry.back_map(scores, picture), 1, atol=1e-6)
