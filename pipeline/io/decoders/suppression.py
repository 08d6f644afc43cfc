"""Suppression: the best of boxes that overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
import numpy as np

from pipeline.io.decoders.base import ModelInterface
from pipeline.io.results import Detections

Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""Number from 0 to 1, of a parameter."""

Overlap = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Tests boxes of numbers [N] against those of numbers [M]: bool [N, M], true where they are one thing."""

_MOST_PAIRS = 1 << 19
"""Largest number of pairs compared at once, which bounds their memory; all pairs of 1024 boxes are fewer."""

_FAR = 1e6
"""Pixels that no picture has: boxes end there for the search of their neighbours."""


class ScoreParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of decoders of boxes."""

    score: Fraction = 0.25
    """Scores up to this one are left out."""
    most: Annotated[int, msgspec.Meta(ge=1)] = 300
    """Largest number of boxes."""


class BoxParameters(ScoreParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of decoders with a non-maximum suppression."""

    iou: Fraction = 0.45
    """Of two boxes with a larger intersection over union, the better stays."""
    agnostic: bool = False
    """True if boxes of different classes suppress one another as well."""


def best_classes(scores: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the best class of each cell, where its score is above a threshold.

    `scores`: [classes, cells].  Cells with a score that is no number are left out.
    """
    # Most cells see nothing: their class is of no interest.
    cells = np.flatnonzero(np.maximum.reduce(scores, axis=0) > threshold)
    columns = scores[:, cells]
    classes = columns.argmax(0)
    return cells, classes, columns[classes, np.arange(len(cells))]


def box_overlap(boxes: np.ndarray, iou: float) -> Overlap:
    """Return the test for an intersection over union above `iou`, of boxes [N, 4]."""
    test = _pair_test(np.ascontiguousarray(boxes.T), iou)
    return lambda first, second: test(first[:, None], second)


def _pair_test(corners: np.ndarray, iou: float) -> Overlap:
    """Return a test of pairs of boxes, of corners [4, N], by their numbers, which are broadcast."""
    left, top, right, bottom = corners
    # A box whose corners are exchanged has no area.
    area = np.maximum(right - left, 0) * np.maximum(bottom - top, 0)

    def test(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        width = np.minimum(right[first], right[second]) - np.maximum(left[first], left[second])
        height = np.minimum(bottom[first], bottom[second]) - np.maximum(top[first], top[second])
        shared = np.maximum(width, 0) * np.maximum(height, 0)
        # No division, which fails for boxes without an area.
        above: np.ndarray = shared > iou * (area[first] + area[second] - shared)
        return above

    return test


def suppress(
    boxes: np.ndarray, scores: np.ndarray, iou: float, most: int, classes: np.ndarray | None = None
) -> np.ndarray:
    """Return the numbers of boxes that no better one overlaps by more than `iou`, best first.

    Of equal scores, the first is the better. With `classes`, only boxes of one class suppress one another.
    """
    order = np.argsort(-scores, kind="stable")
    if len(order) < 2:
        return order
    corners = boxes[order].T.clip(-_FAR, _FAR).astype(np.float64)
    if classes is not None:
        # Each class has a room of its own beside the others.
        corners[::2] += 3 * _FAR * classes[order]
    test = _pair_test(corners, iou)
    rest = np.arange(len(order))
    winners = [rest[:0]]
    while len(rest) and most > 0:
        # 1. The best boxes, among themselves.
        block = rest
        while (pairs := _neighbours(corners[0, block], corners[2, block])) is None:
            block = block[: len(block) // 2]
        (better, worse), rest = pairs, rest[len(block) :]
        hits = test(block[better], block[worse])
        block = block[_survivors(len(block), better[hits], worse[hits])][:most]
        winners.append(block)
        most -= len(block)
        # 2. The others, against these.
        if len(rest) and most > 0:
            rest = rest[~test(block[:, None], rest).any(0)]
    return order[np.concatenate(winners)]


def _neighbours(begins: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the pairs of intervals that overlap, the smaller number first, by a sweep; None if too many."""
    order = np.argsort(begins)
    starts = begins[order]
    counts = np.maximum(np.searchsorted(starts, ends[order]) - np.arange(1, len(order) + 1), 0)
    if counts.sum() > _MOST_PAIRS:
        return None
    first = np.repeat(np.arange(len(order)), counts)
    # One after another behind the first of a pair.
    second = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts) + first + 1
    first, second = order[first], order[second]
    return np.minimum(first, second), np.maximum(first, second)


def _survivors(count: int, better: np.ndarray, worse: np.ndarray) -> np.ndarray:
    """Return which boxes stay, bool [count]: losers suppress no others."""
    alive = np.ones(count, bool)
    while len(better):
        # Who is beaten by nobody wins, and whom a winner beats loses; chains of boxes take several rounds.
        beaten = np.zeros(count, bool)
        beaten[worse] = True
        alive[worse[~beaten[better]]] = False
        open_pairs = beaten[better] & alive[better] & alive[worse]
        better, worse = better[open_pairs], worse[open_pairs]
    return alive


def best_boxes(  # noqa: PLR0913 - the parts of a detection
    boxes: np.ndarray,
    scores: np.ndarray,
    classes: np.ndarray,
    parameters: ScoreParameters,
    interface: ModelInterface,
    *,
    suppressed: bool = False,
) -> tuple[Detections, np.ndarray]:
    """Return the detections after suppression, and their numbers among the boxes, all above the threshold.

    The parameters of a suppression are `BoxParameters`; with `suppressed` the model has done that itself.
    """
    # A network whose numbers overflow says nothing about a position.
    finite = np.isfinite(boxes)
    numbers = np.arange(len(boxes)) if finite.all() else np.flatnonzero(finite.all(1))
    if len(numbers) < len(boxes):
        boxes, scores, classes = boxes[numbers], scores[numbers], classes[numbers]
    if suppressed or not isinstance(parameters, BoxParameters):
        winners = np.argsort(-scores, kind="stable")[: parameters.most]
    else:
        rooms = None if parameters.agnostic else classes
        winners = suppress(boxes, scores, parameters.iou, parameters.most, rooms)
    return make_detections(boxes[winners], scores[winners], classes[winners], interface), numbers[winners]


def make_detections(
    boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, interface: ModelInterface
) -> Detections:
    """Return detections in the types that they have everywhere."""
    return Detections(
        boxes.astype(np.float32, copy=False),
        scores.astype(np.float32, copy=False),
        classes.astype(np.int64, copy=False),
        interface.labels,
    )
