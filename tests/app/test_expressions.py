"""Conditions for frames and boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.app.app_frame import AppFrame
from pipeline.app.expressions import Expression
from pipeline.app.scopes import Evaluation
from pipeline.errors import AppError
from pipeline.io.results import Classes, Detections, Text
from pipeline.io.source_frame import SECOND, SourceFrame
from pipeline.picture.pixels import Pixels
from pipeline.picture.small_grey import small_grey

ZONES = {"door": ((0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 1.0))}
LINES = {"gate": ((50.0, 0.0), (50.0, 100.0))}
PICTURE = np.zeros((100, 100), np.uint8)
NAMES = ("people", "scene", "plate", "night-light")


def boxes(*rows: tuple[float, float, int]) -> Detections:
    """Return boxes of 10 x 10 pixels by the middle of their feet, their score as given."""
    corners = np.array([[x - 5, y - 10, x + 5, y] for x, y, _ in rows], np.float32).reshape(-1, 4)
    scores = np.array([0.9 - 0.1 * number for number in range(len(rows))], np.float32)
    tracks = np.array([track for *_, track in rows], np.int64)
    return Detections(corners, scores, np.arange(len(rows)), ("person", "dog", "cat"), tracks=tracks)


class Watch:
    """A condition that sees frame after frame."""

    def __init__(self, text: str, *, rows: bool = False) -> None:
        self._expression = Expression.parse(text, zones=ZONES, lines=LINES, names=NAMES, rows=rows)
        self._memories: dict[Any, dict[Any, Any]] = {}
        self._index, self._rows = -1, rows

    def __call__(self, results: Any = None, time_s: float = 0.0, picture: np.ndarray = PICTURE) -> Any:
        self._index += 1
        pixels = Pixels("gray", picture.shape[1], picture.shape[0])
        frame = AppFrame("a", self._index, SourceFrame("", picture, round(time_s * SECOND), pixels=pixels), {})
        frame.results = {} if self._rows else results or {}
        value = self._expression.evaluate(Evaluation(frame, self._memories, results if self._rows else None))
        return np.broadcast_to(value, len(results)).tolist() if self._rows else bool(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("label == 'person'", [True, False, False]),
        ("label in ('dog', 'cat')", [False, True, True]),
        ("label not in ['dog']", [True, False, True]),
        ("score >= 0.75 and not label == 'dog'", [True, False, False]),
        ("x < 30 or x > 70", [True, False, True]),
        ("0.65 < score < 0.85", [False, True, True]),
        ("inside(door)", [True, False, False]),
        ("inside('door')", [True, False, False]),
        ("width == 10 and height == 10 and bottom == 20", [True, True, True]),
        ("True", [True, True, True]),
        ("-1 < track", [True, True, False]),
    ],
)
def test_conditions_choose_boxes(text: str, expected: list[bool]) -> None:
    assert Watch(text, rows=True)(boxes((20, 20, 0), (60, 20, 1), (80, 20, -1))) == expected


def test_conditions_of_no_box_choose_none() -> None:
    assert Watch("inside(door) and score > 0.5 and for_frames(2)", rows=True)(boxes()) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("people", True),
        ("not plate", True),
        ("count(people) == 2", True),
        ("count(people, label == 'dog') == 1", True),
        ("any(people, inside(door)) and all(people, score > 0.5)", True),
        ("count(plate) == 0", True),
        ("scene.label == 'cat' and scene.score > 0.8", True),
        ("people.label == 'person'", True),
        ("plate.text == 'B-X 1'", False),
        ("night-light", False),
    ],
)
def test_conditions_choose_frames(text: str, expected: bool) -> None:
    scene = Classes(np.array([2]), np.array([0.85], np.float32), ("person", "dog", "cat"))
    assert Watch(text)({"people": boxes((20, 20, 0), (60, 20, 1)), "scene": scene}) is expected


def test_a_text_is_compared() -> None:
    assert Watch("plate.text == 'B-X 1' and plate.score > 0.5")({"plate": Text("B-X 1", 0.75)})


def test_a_line_is_crossed_once_by_steps_of_which_one_ends_on_it() -> None:
    watch = Watch("crossed(gate)", rows=True)
    steps = [watch(boxes((x, 50, 7))) for x in (30, 50, 60, 40, 40)]
    assert steps == [[False], [False], [True], [True], [False]]


def test_a_zone_is_entered_by_what_was_seen_outside() -> None:
    watch = Watch("entered(door)", rows=True)
    assert [watch(boxes((x, 50, 1))) for x in (60, 40, 30, 70, 20)] == [[False], [True], [False], [False], [True]]
    assert watch(boxes((20, 50, 2))) == [False]


def test_tracks_hold_for_frames_in_a_row() -> None:
    watch = Watch("for_frames(3, inside(door))", rows=True)
    assert [watch(boxes((x, 50, 1)))[0] for x in (20, 20, 20, 80, 20, 20, 20)] == [
        *(False, False, True, False, False, False, True)
    ]
    assert watch(boxes()) == []
    assert watch(boxes((20, 50, 1))) == [False]


def test_frames_come_every_so_often() -> None:
    watch, timed = Watch("every(3)"), Watch("every_seconds(0.5)")
    assert [watch() for _ in range(7)] == [True, False, False, True, False, False, True]
    assert [timed(time_s=time_s) for time_s in (0, 0.4, 0.5, 0.9, 1.1, 0.2)] == [True, False, True, False, True, True]


def noisy(seed: int, level: int, square: tuple[int, int] | None = None) -> np.ndarray:
    """Return a picture of 100 x 100 pixels with a camera's noise, and maybe a darker square of 20 pixels."""
    picture = np.random.default_rng(seed).normal(level, 4, (100, 100))
    if square:
        picture[square[1] : square[1] + 20, square[0] : square[0] + 20] -= 60
    return picture.clip(0, 255).astype(np.uint8)


def test_motion_is_the_share_of_the_picture_that_changes() -> None:
    watch = Watch("motion() > 0.03")
    still = [watch(picture=noisy(seed, 120)) for seed in range(5)]
    assert still == [False] * 5
    assert watch(picture=noisy(5, 120, (40, 40)))
    # A square of 4 % of the picture; a camera that adapts its exposure moves nothing.
    assert not Watch("motion() > 0.05")(picture=noisy(5, 120, (40, 40)))
    assert [watch(picture=noisy(seed, 160, (40, 40))) for seed in range(6, 20)][-5:] == [False] * 5
    # Another size begins anew.
    assert not watch(picture=noisy(3, 10)[:50])


def test_motion_of_a_zone_is_what_changes_in_it() -> None:
    watch = Watch("motion(door) > 0.07")
    pictures = [noisy(1, 120), noisy(2, 120, (70, 10)), noisy(3, 120, (10, 10))]
    assert [watch(picture=picture) for picture in pictures] == [False, False, True]


@pytest.mark.parametrize("format_name", ["gray", "rgb24", "bgra", "yuyv422", "nv12", "yuv420p"])
def test_brightness_is_read_of_all_formats(format_name: str) -> None:
    pixels = Pixels(format_name, 640, 360)
    array = np.full(pixels.shape, 7, np.uint8)
    array[100:140, 320:360] = 200
    grey = small_grey(pixels, array)
    assert grey.shape == (90, 160)
    assert (grey[28:33, 82:88] == 200).all()
    assert grey[60, 20] == 7


def test_all_parts_are_computed_so_that_counting_goes_on() -> None:
    watch = Watch("count(people) > 5 and for_frames(2, True) or for_frames(3, count(people) == 1)")
    results = {"people": boxes((1, 1, 1))}
    assert [watch(results) for _ in range(4)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("text", "rows", "words"),
    [
        ("__import__('os').system('true')", False, "cannot be part of a condition|no condition|there is no"),
        ("score > 0.5", False, "there is no node 'score'"),
        ("scor > 0.5", True, "did you mean 'score'"),
        ("inside(dor)", True, "no zone 'dor'; did you mean 'door'"),
        ("crossed(door)", True, "no line 'door'"),
        ("insid(door)", True, "no function 'insid'"),
        ("count(people, 1, 2) > 0", False, "count takes a node"),
        ("motion(dor) > 0", False, "no zone 'dor'; did you mean 'door'"),
        ("motion() > 0", True, "there is no function 'motion'"),
        ("every()", False, "every takes 1 arguments, and not 0"),
        ("people +", False, "is no condition"),
        ("people[0]", False, "cannot be part of a condition"),
        ("label is 'x'", True, "conditions compare by"),
        ("(" * 500 + "people" + ")" * 500, False, "is no condition|cannot|characters"),
        ("people and " * 200 + "people", False, "characters"),
        ("lambda: 1", False, "cannot be part"),
    ],
)
def test_what_is_no_condition_is_named(text: str, rows: bool, words: str) -> None:
    with pytest.raises(AppError, match=words):
        Expression.parse(text, zones=ZONES, lines=LINES, names=NAMES, rows=rows)
