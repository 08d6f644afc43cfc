"""Results drawn on a picture's own planes, against the same drawing in RGB."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.io.results import Classes, Detections, Mask, Result
from pipeline.io.sinks.canvas import Canvas
from pipeline.io.sinks.overlay import draw
from pipeline.picture.pixels import Pixels

pytest.importorskip("PIL")
pytest.importorskip("av")

WIDTH, HEIGHT = 160, 120
GREY = np.full((HEIGHT, WIDTH, 3), 96, np.uint8)
SUBSAMPLED = ("yuv420p", "yuvj420p", "nv12", "yuyv422")


def detections(**fields: Any) -> Detections:
    """Return two boxes at even places, the second one at the right edge."""
    boxes = np.array([[20, 40, 80, 100], [120, 60, 160, 90]], np.float32)
    return Detections(boxes, np.array([0.9, 0.5], np.float32), np.array([0, 3]), ["cat", "", "", "bus"], **fields)


def points() -> np.ndarray:
    places = np.random.default_rng(0).uniform(30, 90, (2, 17, 3)).astype(np.float32)
    places[..., 2] = np.arange(17) % 5 > 0
    return places


def masks() -> np.ndarray:
    inside = np.zeros((2, HEIGHT, WIDTH), bool)
    inside[0, 50:80, 30:60] = inside[1, 62:80, 130:150] = True
    return inside


RESULTS: dict[str, Result] = {
    "boxes": detections(tracks=np.array([4, 5])),
    "turned": detections(angles=np.array([0.5, -0.3], np.float32)),
    "points": detections(points=points()),
    "masks": detections(masks=masks()),
    "map": Mask((np.arange(HEIGHT)[:, None] // 40 + np.zeros(WIDTH, int)).astype(np.uint8), labels=["", "road", "sky"]),
    "lines": Classes(np.array([0, 1]), np.array([0.5, 0.25]), ["a cat", "a dog"]),
}


def convert(picture: np.ndarray, name: str, colorspace: int = 5) -> tuple[Pixels, np.ndarray]:
    """Return a picture in another format, converted by FFmpeg."""
    rgb = Pixels("rgb24", WIDTH, HEIGHT)
    frame = rgb.wrap(picture).reformat(format=name, dst_colorspace=colorspace)
    pixels = Pixels(name, WIDTH, HEIGHT, colorspace, 2 if name == "yuvj420p" else 1)
    return pixels, pixels.array(frame)


@pytest.mark.parametrize("case", RESULTS)
@pytest.mark.parametrize("name", [*SUBSAMPLED, "bgr24", "rgba", "bgra"])
def test_it_looks_as_in_rgb(name: str, case: str) -> None:
    reference = draw(GREY, RESULTS[case]).astype(int)
    pixels, picture = convert(GREY, name)
    canvas = draw(picture, RESULTS[case], pixels)
    assert (canvas.shape, canvas.dtype) == (picture.shape, np.uint8)
    drawn = pixels.rgb(canvas).astype(int)
    if name not in SUBSAMPLED:
        np.testing.assert_array_equal(drawn, reference)
        return
    # One sample of colour for several pixels: their mean is the same, and their brightness.
    weights = np.array([0.299, 0.587, 0.114])
    assert np.abs((drawn - reference) @ weights).mean() < 3
    blocks = [array.reshape(HEIGHT // 8, 8, WIDTH // 8, 8, 3).mean((1, 3)) for array in (drawn, reference)]
    assert np.abs(blocks[0] - blocks[1]).mean() < 8


@pytest.mark.parametrize("colorspace", [1, 5])
@pytest.mark.parametrize("name", SUBSAMPLED)
def test_colours_are_those_of_the_picture_s_colour_space(name: str, colorspace: int) -> None:
    colour = (255, 159, 28)
    pixels, picture = convert(GREY, name, colorspace)
    Canvas(picture, pixels).paint(np.ones((HEIGHT, WIDTH), bool), colour)
    painted = GREY // 2 + np.array(colour, np.uint8) // 2
    reference = convert(painted, name, colorspace)[1]
    assert np.abs(picture.astype(int) - reference).max() <= 2


@pytest.mark.parametrize("case", RESULTS)
@pytest.mark.parametrize("name", [*SUBSAMPLED, "gray", "rgb24"])
def test_the_picture_itself_stays(name: str, case: str) -> None:
    pixels, picture = (Pixels("gray", WIDTH, HEIGHT), GREY[..., 0].copy()) if name == "gray" else convert(GREY, name)
    before = picture.copy()
    assert (draw(picture, RESULTS[case], pixels) != before).any()
    np.testing.assert_array_equal(picture, before)


def test_in_grey_boxes_are_bright_and_text_stands_on_black() -> None:
    picture = np.full((HEIGHT, WIDTH), 90, np.uint8)
    canvas = draw(picture, detections(), Pixels("gray", WIDTH, HEIGHT))
    assert canvas[70, 20] > 200
    assert (canvas[28:40, 20:70] == 0).any()
    assert (canvas[28:40, 20:70] > 200).any()
    assert (canvas[102:] == 90).all()


@pytest.mark.parametrize("name", SUBSAMPLED)
def test_thin_lines_at_odd_places_have_their_colour(name: str) -> None:
    pixels, picture = convert(GREY, name)
    Canvas(picture, pixels).box([31, 51], [77, 95], (255, 77, 109))
    red, _, blue = pixels.rgb(picture)[70, 31].astype(int)
    assert red - blue > 60


def test_a_line_is_as_thick_as_the_pen_in_any_direction() -> None:
    pixels = Pixels("gray", 1200, 1200)
    for angle in np.linspace(0, np.pi, 9):
        picture = np.zeros((1200, 1200), np.uint8)
        canvas, reach = Canvas(picture, pixels), 400 * np.array([np.cos(angle), np.sin(angle)])
        canvas.lines(600 - reach[None], 600 + reach[None], (255, 255, 255))
        assert np.count_nonzero(picture) / 800 == pytest.approx(canvas.pen, rel=0.15)


@pytest.mark.parametrize("place", [(-500.0, -500.0), (-3.0, 50.0), (157.0, 117.0), (400.0, 30.0)])
def test_what_lies_outside_is_left_out(place: tuple[float, float]) -> None:
    pixels, picture = convert(GREY, "nv12")
    canvas, end = Canvas(picture, pixels), (place[0] + 40, place[1] + 40)
    canvas.box(place, end, (0, 200, 255))
    canvas.lines(np.array([place]), np.array([end]), (0, 200, 255))
    canvas.dots(np.array([place, end]), 6, (0, 200, 255), hole=3)
    canvas.text(place, "a long text that is wider than the picture", (0, 200, 255))
    assert picture.shape == (180, 160)


def test_crossed_corners_are_the_same_box() -> None:
    pictures = []
    for corners in ([20, 30], [90, 80]), ([90, 80], [20, 30]), ([20, 80], [90, 30]):
        pixels, picture = convert(GREY, "yuv420p")
        Canvas(picture, pixels).box(*corners, (0, 200, 255))
        pictures.append(picture)
    assert (pictures[0] == pictures[1]).all()
    assert (pictures[0] == pictures[2]).all()
