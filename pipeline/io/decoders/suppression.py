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

_BLOCK = 128
"""Boxes compared with one another at once, so that their matrix stays in the cache."""


class BoxParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of decoders with a non-maximum suppression.

    Attributes
    ----------
    score : float
        Scores up to this one are left out.
    iou : float
        Of two boxes with a larger intersection over union, the better stays.
    most : int
        Largest number of boxes.
    agnostic : bool
        True if boxes of different classes suppress one another as well.
    """

    score: Fraction = 0.25
    iou: Fraction = 0.45
    most: Annotated[int, msgspec.Meta(ge=1)] = 300
    agnostic: bool = False


def best_classes(scores: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the best class of each cell, where its score is above a threshold.

    Parameters
    ----------
    scores : array
        [classes, cells].  Cells with a score that is no number are left out.
    threshold : float

    Returns
    -------
    cells, classes, scores : arrays [N]
    """
    # Most cells see nothing: their class is of no interest.
    cells = np.flatnonzero(np.maximum.reduce(scores, axis=0) > threshold)
    columns = scores[:, cells]
    classes = columns.argmax(0)
    return cells, classes, columns[classes, np.arange(len(cells))]


def box_overlap(boxes: np.ndarray, iou: float, classes: np.ndarray | None = None) -> Overlap:
    """Return the test for an intersection over union above `iou`.

    Parameters
    ----------
    boxes : array
        [N, 4] of left, top, right, bottom.
    iou : float
    classes : array, optional
        [N]; only boxes of one class are compared.
    """
    left, top, right, bottom = np.ascontiguousarray(boxes.T)
    # A box whose corners are exchanged has no area.
    area = np.maximum(right - left, 0) * np.maximum(bottom - top, 0)

    def overlap(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        rows = first[:, None]
        width = np.minimum(right[rows], right[second]) - np.maximum(left[rows], left[second])
        height = np.minimum(bottom[rows], bottom[second]) - np.maximum(top[rows], top[second])
        shared = np.maximum(width, 0) * np.maximum(height, 0)
        # No division, which fails for boxes without an area.
        above: np.ndarray = shared > iou * (area[rows] + area[second] - shared)
        return above if classes is None else above & (classes[rows] == classes[second])

    return overlap


def suppress(scores: np.ndarray, overlap: Overlap, most: int) -> np.ndarray:
    """Return the numbers of boxes that no better one overlaps, best first.

    Of equal scores, the first is the better.

    Parameters
    ----------
    scores : array
        [N].
    overlap : callable
        The test of two boxes, such as `box_overlap`.
    most : int
    """
    order = np.argsort(-scores, kind="stable")
    winners: list[np.ndarray] = []
    while len(order) and sum(map(len, winners)) < most:
        # 1. The best ones, among themselves: each suppresses only worse ones.
        block, order = order[:_BLOCK], order[_BLOCK:]
        matrix = np.triu(overlap(block, block), 1)
        alive = np.ones(len(block), bool)
        for number in np.flatnonzero(matrix.any(1)):
            if alive[number]:
                alive &= ~matrix[number]
        # 2. The others, against these.
        block = block[alive]
        winners.append(block)
        if len(order):
            order = order[~overlap(block, order).any(0)]
    return np.concatenate([*winners, order[:0]])[:most]


def best_boxes(  # noqa: PLR0913 - the parts of a detection
    boxes: np.ndarray,
    scores: np.ndarray,
    classes: np.ndarray,
    parameters: BoxParameters,
    interface: ModelInterface,
    *,
    suppressed: bool = False,
) -> tuple[Detections, np.ndarray]:
    """Return the detections after suppression, and their numbers among the boxes.

    Parameters
    ----------
    boxes, scores, classes : arrays [N, 4], [N], [N]
        Boxes above the threshold.
    parameters : BoxParameters
    interface : ModelInterface
        Its labels.
    suppressed : bool
        True if the model has done that itself.
    """
    # A network whose numbers overflow says nothing about a position.
    finite = np.flatnonzero(np.isfinite(boxes).all(1))
    boxes, scores, classes = boxes[finite], scores[finite], classes[finite]
    if suppressed:
        winners = np.argsort(-scores, kind="stable")[: parameters.most]
    else:
        overlap = box_overlap(boxes, parameters.iou, None if parameters.agnostic else classes)
        winners = suppress(scores, overlap, parameters.most)
    result = Detections(
        boxes[winners].astype(np.float32, copy=False),
        scores[winners].astype(np.float32, copy=False),
        classes[winners].astype(np.int64, copy=False),
        interface.labels,
    )
    return result, finite[winners]
