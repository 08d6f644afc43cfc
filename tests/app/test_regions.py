"""Landmarks that say where to look in the next frame."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import pipeline
from pipeline.app.app_frame import AppFrame
from pipeline.app.application import App
from pipeline.app.nodes import Model, Stream, Track
from pipeline.app.tracks.regions import RegionOptions, Regions
from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import AppError, InputError
from pipeline.io.results import Detections
from tests.support import app_models


def one_box(*, score: float = 0.9, tracks: int | None = None) -> Detections:
    """Return a box of 20 x 10 pixels with a point below and one to the right of it, its upper side."""
    points = np.array([[[40, 50, 1], [60, 50, 1]]], np.float32)
    numbers = None if tracks is None else np.array([tracks])
    boxes, scores = np.array([[40, 45, 60, 55]], np.float32), np.array([score], np.float32)
    return Detections(boxes, scores, np.zeros(1, np.int64), points=points, tracks=numbers)


def test_a_region_is_a_turned_square_shifted_along_its_own_axis() -> None:
    regions = Regions(RegionOptions(found_upright="0-1", found_scale=2, found_shift=-0.5))
    result = regions.update(one_box(), None)
    # Its up is to the right, by a quarter turn; half of the box's height towards there are 5 pixels.
    assert result.angles is not None
    assert result.angles.tolist() == [pytest.approx(math.pi / 2)]
    assert result.boxes.tolist() == [pytest.approx([35, 30, 75, 70])]


def test_what_is_followed_is_not_found_again_and_keeps_its_number() -> None:
    regions = Regions()
    assert regions.update(one_box(), None).tracks.tolist() == [0]  # type: ignore[union-attr]
    assert regions.update(None, one_box(tracks=0)).tracks.tolist() == [0]  # type: ignore[union-attr]
    assert regions.update(one_box(), one_box(tracks=0)).tracks.tolist() == [0]  # type: ignore[union-attr]
    # Lost, and found again.
    assert len(regions.update(None, one_box(tracks=0, score=0.2))) == 0
    assert regions.update(one_box(), None).tracks.tolist() == [1]  # type: ignore[union-attr]


def test_points_that_are_not_there_are_named() -> None:
    with pytest.raises(InputError, match="upright is '0-9'; it must be two of 2 key points"):
        Regions(RegionOptions(found_upright="0-9")).update(one_box(), None)


def follow(pictures: list[np.ndarray]) -> tuple[list[AppFrame], int]:
    """Run a detector and landmarks that follow a square; return the frames, and how often the detector ran."""
    calls = itertools.count()

    def find(picture: np.ndarray) -> np.ndarray:
        next(calls)
        return app_models.find_squares(picture)

    def mark(picture: np.ndarray) -> np.ndarray:
        """Return the corners of what is bright, as x, y and score."""
        rows, columns = np.nonzero(picture[..., 0] > 100)
        if not len(rows):
            return np.zeros((1, 6), np.float32)
        left, top, right, bottom = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
        return np.array([[left, top, 1, right, bottom, 1]], np.float32)

    parameters = {"fields": 3, "score": 2, "unit": "pixel"}
    card = ModelCard(task="pose", decoder="points", parameters=parameters)
    app = App(
        {"a": Stream(source="-")},
        {
            "squares": Model(file="-", when="not previous(marks)"),
            "where": Track(reads=("squares",), method="regions", feedback="marks", options={"most": 1}),
            "marks": Model(file="-", reads=("where",), for_each="boxes"),
        },
    )
    ended = list[AppFrame]()
    bundles = {
        "squares": app_models.detector(find),
        "marks": app_models.function_bundle(mark, TensorSpec("points", (1, 6)), card, size=32),
    }
    source = app_models.Scenes(pictures)
    with pipeline.load_app(app, sources={"a": source}, bundles=bundles, on_frame=ended.append) as running:
        running.run()
    return ended, next(calls)


def test_the_detector_runs_only_where_nothing_is_followed() -> None:
    def square(left: int) -> np.ndarray:
        picture = np.zeros((64, 64, 3), np.uint8)
        picture[16:24, left : left + 8] = 200
        return picture

    empty = np.zeros((64, 64, 3), np.uint8)
    pictures = [square(16 + number) for number in range(20)] + [empty] * 3 + [square(40)] * 5
    ended, calls = follow(pictures)
    assert [frame.error for frame in ended] == [None] * 28
    boxes = [frame.results["marks"].boxes for frame in ended]
    lefts = [*range(16, 36), *[0] * 3, *[40] * 5]
    for number, (left, found) in enumerate(zip(lefts, boxes, strict=True)):
        assert len(found) == (0 if number in (20, 21, 22) else 1)
        # Crops are resized: edges lie within a pixel.
        assert not len(found) or np.abs(found[0] - [left, 16, left + 8, 24]).max() <= 1
    # On the first frame, on those behind a frame without anything, and not on the frame where it is lost.
    assert calls == 1 + 3


def test_a_condition_may_name_what_its_node_reads_and_what_was_before() -> None:
    streams = {"a": Stream(source="-")}
    with pytest.raises(AppError, match=r"one.when: it names 'two', which 'one' does not read; .* ask previous\(two\)"):
        App(streams, {"one": Model(file="-", when="not two"), "two": Model(file="-", for_each="boxes", reads=("one",))})
