"""Components: connected pixels of a mask, and their smallest turned rectangles.

All of them at once, in NumPy: runs of pixels along rows stand for the pixels.
"""

from __future__ import annotations

import numpy as np


def ragged_ranges(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers from each start to its end, and the position of the start for each."""
    counts = np.maximum(ends - starts, 0)
    owners = np.repeat(np.arange(len(counts)), counts)
    offsets = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    return starts[owners] + offsets, owners


def label_runs(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find runs along rows, and their components by eight neighbours.

    Returns int [N, 3] of row, first column and column behind the last; and int [N], numbers of components from 0.
    """
    flags = np.pad(mask, ((0, 0), (1, 1))).astype(np.int8)
    steps = np.diff(flags, axis=1)
    (rows, starts), (_, ends) = np.nonzero(steps == 1), np.nonzero(steps == -1)
    # Keys in order of rows, then columns; no run reaches the next row's.
    stride = mask.shape[1] + 2
    begin_keys, end_keys = rows * stride + starts, rows * stride + ends
    # Neighbours below, also over a corner: those that end behind the start, and start before the end.
    first = np.searchsorted(end_keys, begin_keys + stride, "left")
    last = np.searchsorted(begin_keys, end_keys + stride, "right")
    below, above = ragged_ranges(first, last)
    # Smallest numbers spread along neighbours; the jumps to labels of labels make that logarithmic.
    labels = np.arange(len(rows))
    while True:
        previous = labels.copy()
        smaller = np.minimum(labels[above], labels[below])
        np.minimum.at(labels, previous[above], smaller)
        np.minimum.at(labels, previous[below], smaller)
        labels = labels[labels]
        if np.array_equal(labels, previous):
            break
    return np.stack([rows, starts, ends], axis=1), np.unique(labels, return_inverse=True)[1]


def hulls(runs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the corners of the components' convex hulls, in a round, and their components.

    The corners are float [P, 2] of x, y, in order of components.
    """
    order = np.lexsort((runs[:, 1], runs[:, 0], labels))
    runs, labels = runs[order], labels[order]
    # The first and last pixel of each row of a component are all that its hull can touch.
    new = np.append(True, (np.diff(labels) != 0) | (np.diff(runs[:, 0]) != 0))
    begins = np.flatnonzero(new)
    left = runs[begins, 1].astype(np.float64)
    right = np.maximum.reduceat(runs[:, 2], begins) - 1.0
    rows, owners = runs[begins, 0].astype(np.float64), labels[begins]
    chains = []
    for columns, sign in ((left, 1), (-right, -1)):
        points, chain = _bend(np.stack([columns, rows], axis=1), owners)
        points[:, 0] *= sign
        # Down on one side and up on the other.
        order = np.lexsort((points[:, 1] * sign, chain))
        chains.append((points[order], chain[order]))
    points, owners = (np.concatenate(parts) for parts in zip(*chains, strict=True))
    order = np.argsort(owners, kind="stable")
    return points[order], owners[order]


def _bend(points: np.ndarray, owners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drop the points of chains that lie behind the line between their neighbours, until none does."""
    while True:
        previous, following = np.roll(points, 1, axis=0), np.roll(points, -1, axis=0)
        ends = (np.roll(owners, 1) != owners) | (np.roll(owners, -1) != owners)
        ahead, across = points - previous, following - previous
        keep = ends | (ahead[:, 0] * across[:, 1] - ahead[:, 1] * across[:, 0] < 0)
        # The first and last one of all have no neighbour.
        keep[[0, -1]] = True
        if keep.all():
            return points.copy(), owners
        points, owners = points[keep], owners[keep]


def smallest_rectangles(points: np.ndarray, owners: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the turned rectangles of the smallest area around hulls: centres, sizes and angles.

    One side of each lies on a side of the hull (Freeman and Shapira, 1975). Sizes have the width along the angle first.
    Angles are in radians, clockwise, within an eighth of a turn.
    """
    starts = np.flatnonzero(np.append(True, np.diff(owners) != 0))
    ends = np.append(starts[1:], len(owners))
    # 1. Directions of the sides, from each point to the next one of its hull.
    following = np.arange(len(points)) + 1
    following[ends - 1] = starts
    sides = points[following] - points
    angles = np.arctan2(sides[:, 1], sides[:, 0])
    # Quarter turns are the same rectangle.
    angles -= np.round(angles / (np.pi / 2)) * (np.pi / 2)
    axes = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    # 2. Extents along and across each side, over all points of the hull.
    groups = np.repeat(np.arange(len(starts)), ends - starts)
    members, edges = ragged_ranges(starts[groups], ends[groups])
    along = (points[members] * axes[edges]).sum(1)
    across = points[members, 1] * axes[edges, 0] - points[members, 0] * axes[edges, 1]
    begins = np.flatnonzero(np.append(True, np.diff(edges) != 0))
    lows = np.stack([np.minimum.reduceat(values, begins) for values in (along, across)], axis=1)
    highs = np.stack([np.maximum.reduceat(values, begins) for values in (along, across)], axis=1)
    # 3. The smallest of each hull.
    areas = (highs - lows).prod(1)
    best = np.lexsort((areas, groups))[starts]
    middles, x, y = (lows + highs)[best] / 2, axes[best, 0], axes[best, 1]
    centres = np.stack([middles[:, 0] * x - middles[:, 1] * y, middles[:, 0] * y + middles[:, 1] * x], axis=1)
    return centres, (highs - lows)[best], angles[best]
