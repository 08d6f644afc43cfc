"""Assignment of rows to columns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pipeline.app.tracks.assignment import assign, overlaps


def best_sum(scores: np.ndarray) -> float:
    """Return the largest sum, of all ways to pair the shorter side."""
    rows, columns = scores.shape
    if rows > columns:
        return best_sum(scores.T)
    ways = itertools.permutations(range(columns), rows)
    return max(float(sum(scores[row, column] for row, column in enumerate(way))) for way in ways)


@pytest.mark.parametrize("seed", range(60))
def test_the_sum_is_the_largest(seed: int) -> None:
    generator = np.random.default_rng(seed)
    scores = generator.uniform(-1, 1, (int(generator.integers(0, 6)), int(generator.integers(0, 6))))
    # Equal scores, as of boxes that do not overlap, are no reason to stop.
    scores[generator.uniform(size=scores.shape) < 0.4] = 0
    rows, columns = assign(scores)
    assert len(rows) == min(scores.shape) == len(set(columns.tolist()))
    assert (np.diff(rows) > 0).all()
    assert scores[rows, columns].sum() == pytest.approx(best_sum(scores) if scores.size else 0, abs=1e-12)


def test_overlaps_are_shares_of_the_union() -> None:
    boxes = np.array([[0, 0, 10, 10], [5, 0, 15, 10], [20, 20, 30, 30], [5, 5, 5, 5]], np.float64)
    assert overlaps(boxes[:1], boxes).tolist() == [[1, pytest.approx(1 / 3), 0, 0]]
    assert overlaps(boxes[3:], boxes[3:]).tolist() == [[0]]
