"""Non-maximum suppression against a plain loop, and at its edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.io.decoders.base import ModelInterface
from pipeline.io.decoders.suppression import BoxParameters, best_boxes, best_classes, suppress

SQUARE = (0.0, 0.0, 10.0, 10.0)


def by_loop(boxes: Any, scores: Any, classes: Any, iou: float) -> list[int]:
    """Return the winners' numbers, one pair after another."""
    boxes, scores, classes = boxes.astype(np.float64).tolist(), scores.tolist(), classes.tolist()
    winners: list[int] = []
    for number in sorted(range(len(boxes)), key=lambda number: (-scores[number], number)):
        left, top, right, bottom = boxes[number]
        for other in winners:
            x, y, x2, y2 = boxes[other]
            shared = max(0.0, min(right, x2) - max(left, x)) * max(0.0, min(bottom, y2) - max(top, y))
            areas = (right - left) * (bottom - top) + (x2 - x) * (y2 - y)
            if classes[number] == classes[other] and shared > iou * (areas - shared):
                break
        else:
            winners.append(number)
    return winners


@pytest.mark.parametrize(
    ("second", "scores", "iou", "winners"),
    [
        pytest.param((10, 0, 20, 10), (0.9, 0.8), 0.0, [0, 1], id="touching at an edge"),
        pytest.param((10, 10, 20, 20), (0.9, 0.8), 0.0, [0, 1], id="touching at a corner"),
        pytest.param((9, 9, 20, 20), (0.9, 0.8), 0.0, [0], id="a pixel shared, none allowed"),
        pytest.param(SQUARE, (0.9, 0.9), 0.5, [0], id="equal boxes with equal scores"),
        pytest.param((0, 0, 10, 20), (0.9, 0.8), 0.5, [0, 1], id="exactly at the threshold"),
        pytest.param((0, 0, 10, 19.9), (0.9, 0.8), 0.5, [0], id="just above the threshold"),
        pytest.param((0, 0, 10, 20), (0.8, 0.9), 0.499, [1], id="the second is better"),
        pytest.param((5, 5, 5, 5), (0.9, 0.8), 0.0, [0, 1], id="a box without an area"),
        pytest.param((8, 8, 2, 2), (0.9, 0.8), 0.0, [0, 1], id="corners exchanged"),
        pytest.param((2, 2, 4, 4), (0.9, 0.8), 0.04, [0, 1], id="inside, exactly at the threshold"),
        pytest.param(SQUARE, (0.9, 0.8), 1.0, [0, 1], id="nothing is above one"),
    ],
)
def test_of_two_boxes(second: Sequence[float], scores: Sequence[float], iou: float, winners: list[int]) -> None:
    boxes = np.array([SQUARE, second], np.float32)
    assert suppress(boxes, np.array(scores, np.float32), iou, 300).tolist() == winners


def test_boxes_without_an_area_leave_one_another() -> None:
    boxes = np.zeros((2, 4), np.float32)
    assert suppress(boxes, np.ones(2, np.float32), 0.0, 300).tolist() == [0, 1]


def test_a_suppressed_box_suppresses_no_other() -> None:
    boxes = np.array([[0, 0, 10, 10], [4, 0, 14, 10], [8, 0, 18, 10]], np.float32)
    assert suppress(boxes, np.array([0.9, 0.8, 0.7]), 0.3, 300).tolist() == [0, 2]


@pytest.mark.parametrize("count", [0, 1, 50, 1023, 1024, 1025, 2500])
@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.one_in(2)
def test_equals_a_plain_loop(count: int, classes: int) -> None:
    random = np.random.default_rng(count + classes)
    corner, extent = random.uniform(0, 300, (count, 2)), random.uniform(4, 60, (count, 2))
    boxes = np.concatenate([corner, corner + extent], 1).astype(np.float32)
    # Few values, so that many scores are equal.
    scores = random.integers(1, 60, count).astype(np.float32) / 60
    numbers = random.integers(0, classes, count)
    expected = by_loop(boxes, scores, numbers, 0.4)
    for most in (1, 40, 5000):
        winners = suppress(boxes, scores, 0.4, most, numbers)
        assert winners.tolist() == expected[:most]


def test_a_chain_of_boxes() -> None:
    # Of each two neighbours one goes, and the others follow from the first on.
    left = np.arange(500) * 4
    boxes = np.stack([left, left * 0, left + 10, left * 0 + 10], 1).astype(np.float32)
    scores = np.linspace(1, 0.5, 500)
    assert suppress(boxes, scores, 0.3, 300).tolist() == list(range(0, 500, 2))
    assert suppress(boxes, scores[::-1], 0.3, 300).tolist() == list(range(499, 0, -2))


def test_boxes_beyond_every_picture() -> None:
    boxes = np.array([[-1e30, 0, 1e30, 10], [-1e30, 0, 1e30, 11], SQUARE], np.float32)
    scores = np.array([0.9, 0.8, 0.7])
    assert suppress(boxes, scores, 0.5, 300, np.array([0, 0, 1])).tolist() == [0, 2]
    assert suppress(boxes, scores, 0.5, 300, np.array([0, 1, 0])).tolist() == [0, 1, 2]


def test_best_classes_of_cells_above_the_threshold() -> None:
    scores = np.array([[0.1, 0.6, np.nan, 0.5], [0.2, 0.7, 0.9, 0.4], [0.3, 0.7, 0.9, 0.2]], np.float32)
    cells, classes, best = best_classes(scores, 0.5)
    assert (cells.tolist(), classes.tolist(), best.tolist()) == ([1], [1], [np.float32(0.7)])


def test_boxes_that_are_no_numbers_are_left_out() -> None:
    boxes = np.array([[0, 0, np.inf, 10], [0, 0, np.nan, 10], SQUARE, SQUARE], np.float32)
    scores, classes = np.array([0.9, 0.8, 0.7, 0.6], np.float32), np.array([0, 0, 1, 2])
    interface = ModelInterface((64, 64), (), ("cat", "dog", "bird"))
    result, numbers = best_boxes(boxes, scores, classes, BoxParameters(), interface)
    assert result.names == ["dog", "bird"]
    assert numbers.tolist() == [2, 3]
    result, numbers = best_boxes(boxes, scores, classes, BoxParameters(agnostic=True), interface)
    assert result.names == ["dog"]
    assert (result.boxes.dtype, result.scores.dtype, result.classes.dtype) == (np.float32, np.float32, np.int64)
