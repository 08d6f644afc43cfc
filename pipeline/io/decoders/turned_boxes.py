"""Turned boxes: their overlap as Gaussian distributions, and its suppression.

By "Gaussian Bounding Boxes and Probabilistic Intersection-over-Union", arXiv 2106.06072.
"""

from __future__ import annotations

import numpy as np

from pipeline.io.decoders.suppression import Overlap

_TINY = 1e-7
_BLOCK = 128


def turned_overlap(boxes: np.ndarray, angles: np.ndarray, iou: float, classes: np.ndarray | None = None) -> Overlap:
    """Return the test for a probabilistic intersection over union above `iou`.

    Boxes have left, top, right and bottom before they are turned about their centres, by radians. With `classes`, only
    boxes of one class are compared.
    """
    left, top, right, bottom = boxes.T
    x, y = (left + right) / 2, (top + bottom) / 2
    # Covariances of uniform distributions over the boxes.
    along, across = np.square(right - left) / 12, np.square(bottom - top) / 12
    cosine, sine = np.cos(angles), np.sin(angles)
    xx = along * cosine**2 + across * sine**2
    yy = along * sine**2 + across * cosine**2
    xy = (along - across) * cosine * sine
    area = np.maximum(xx * yy - xy**2, 0)

    def overlap(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        rows = first[:, None]
        a, b, c = xx[rows] + xx[second], yy[rows] + yy[second], xy[rows] + xy[second]
        dx, dy = x[rows] - x[second], y[rows] - y[second]
        determinant = a * b - c**2
        # Bhattacharyya's distance: of the centres, and of the shapes.
        centres = ((a * dy**2 + b * dx**2) / 4 - c * dx * dy / 2) / (determinant + _TINY)
        shapes = np.log(determinant / (4 * np.sqrt(area[rows] * area[second]) + _TINY) + _TINY) / 2
        distance = np.clip(centres + shapes, _TINY, 100)
        above: np.ndarray = 1 - np.sqrt(1 - np.exp(-distance) + _TINY) > iou
        return above if classes is None else above & (classes[rows] == classes[second])

    return overlap


def suppress_all(scores: np.ndarray, overlap: Overlap, most: int) -> np.ndarray:
    """Return the numbers of boxes that no better one overlaps, be it a winner or not, best first.

    This is the fast suppression of "YOLACT", arXiv 1904.02689.
    """
    order = np.argsort(-scores, kind="stable")
    winners: list[np.ndarray] = [order[:0]]
    for begin in range(0, len(order), _BLOCK):
        block = order[begin : begin + _BLOCK]
        beaten = np.triu(overlap(block, block), 1).any(0) | overlap(order[:begin], block).any(0)
        winners.append(block[~beaten])
        if sum(map(len, winners)) >= most:
            break
    return np.concatenate(winners)[:most]
