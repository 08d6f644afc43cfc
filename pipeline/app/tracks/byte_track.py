"""ByteTrack: boxes followed by their motion, also those with low scores.

Y. Zhang et al., "ByteTrack: Multi-Object Tracking by Associating Every Detection Box", ECCV 2022.  Boxes with high
scores are paired with the predicted boxes of tracks first, and those with low scores with the tracks that are left:
what is half hidden has a low score.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from pipeline.app.tracks.assignment import assign, overlaps
from pipeline.io.results import Detections

MEASUREMENT_NOISE, PROCESS_NOISE = 0.1, 0.01
"""Variances of the Kalman filter, in squared pixels and per frame."""


class ByteTrackOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of ByteTrack."""

    lost: int = 30
    """Frames for which a track that is not seen is kept."""
    start: float = 0.7
    """Score of a box that begins a track."""
    high: float = 0.6
    """Score from which a box is paired first."""
    overlap: float = 0.1
    """Intersection over union of a pair, at least."""
    frames: int = 2
    """Frames in a row that a track has to be seen before it has a number."""


class _Tracks:
    """Kalman filters of constant velocity, as columns.

    The four edges of a box move independently and with equal noise, so that they share one covariance of position and
    velocity: three numbers per track in place of 64.
    """

    def __init__(self) -> None:
        self.position, self.velocity = np.empty((0, 4)), np.empty((0, 4))
        # Variance of position, covariance, variance of velocity.
        self.covariance = np.empty((0, 3))
        self.number, self.missed, self.hits = (np.empty(0, np.int64) for _ in range(3))

    def __len__(self) -> int:
        return len(self.number)

    def predict(self) -> None:
        """Move all tracks on by a frame."""
        self.position += self.velocity
        position, both, velocity = self.covariance.T
        self.covariance = np.stack(
            [position + 2 * both + velocity + PROCESS_NOISE, both + velocity, velocity + PROCESS_NOISE], axis=1
        )
        self.hits[self.missed > 0] = 0
        self.missed += 1

    def update(self, rows: np.ndarray, boxes: np.ndarray) -> None:
        """Correct tracks by the boxes that were found for them."""
        position, both, velocity = self.covariance[rows].T
        gains = np.stack([position, both], axis=1) / (position + MEASUREMENT_NOISE)[:, None]
        step = boxes - self.position[rows]
        self.position[rows] += gains[:, :1] * step
        self.velocity[rows] += gains[:, 1:] * step
        rest = 1 - gains[:, 0]
        self.covariance[rows] = np.stack([rest * position, rest * both, velocity - gains[:, 1] * both], axis=1)
        self.missed[rows] = 0
        self.hits[rows] += 1

    def add(self, boxes: np.ndarray) -> None:
        """Begin tracks."""
        count = len(boxes)
        self.position = np.concatenate([self.position, boxes])
        self.velocity = np.concatenate([self.velocity, np.zeros((count, 4))])
        self.covariance = np.concatenate([self.covariance, np.tile([1.0, 0.0, 1.0], (count, 1))])
        self.number = np.concatenate([self.number, np.full(count, -1)])
        self.missed = np.concatenate([self.missed, np.zeros(count, np.int64)])
        self.hits = np.concatenate([self.hits, np.ones(count, np.int64)])

    def keep(self, mask: np.ndarray) -> None:
        """Forget all other tracks."""
        for name in ("position", "velocity", "covariance", "number", "missed", "hits"):
            setattr(self, name, getattr(self, name)[mask])


class ByteTrack:
    """Tracker of one stream."""

    def __init__(self, options: ByteTrackOptions = ByteTrackOptions()) -> None:  # noqa: B008 - it is immutable
        self._options, self._tracks, self._next = options, _Tracks(), 0

    def update(self, detections: Detections, _: object = None) -> Detections:
        """Return the boxes of the next frame with their tracks; -1 for those without a number yet."""
        options, tracks = self._options, self._tracks
        is_finite = np.isfinite(detections.boxes).all(1)
        boxes, scores = detections.boxes.astype(np.float64), detections.scores
        numbers = np.full(len(boxes), -1, np.int64)
        # 1. Boxes with high scores against all tracks, then those with low scores against the tracks that are left.
        tracks.predict()
        rest = np.arange(len(tracks))
        high = np.flatnonzero(is_finite & (scores >= options.high))
        low = np.flatnonzero(is_finite & (scores < options.high))
        rest, unpaired = self._pair(rest, high, boxes, numbers)
        self._pair(rest, low, boxes, numbers)
        # 2. New tracks from boxes with high scores that nobody claims.
        tracks.add(boxes[unpaired[scores[unpaired] >= options.start]])
        # 3. Tracks end that were lost for long, and at once if they never had a number.
        is_known = (tracks.number >= 0) | (tracks.hits >= options.frames)
        tracks.keep((tracks.missed <= options.lost) & (is_known | (tracks.missed == 0)))
        return replace(detections, tracks=numbers)

    def _pair(
        self, rest: np.ndarray, chosen: np.ndarray, boxes: np.ndarray, numbers: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Pair tracks with boxes; return the tracks and boxes that are left."""
        tracks = self._tracks
        shares = overlaps(tracks.position[rest], boxes[chosen])
        rows, columns = assign(shares)
        are_near = shares[rows, columns] >= self._options.overlap
        rows, columns = rows[are_near], columns[are_near]
        tracks.update(rest[rows], boxes[chosen[columns]])
        for row in rest[rows]:
            if tracks.number[row] < 0 and tracks.hits[row] >= self._options.frames:
                tracks.number[row], self._next = self._next, self._next + 1
        numbers[chosen[columns]] = tracks.number[rest[rows]]
        return np.delete(rest, rows), np.delete(chosen, columns)
