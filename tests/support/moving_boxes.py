"""Boxes that wander, are missed at times, and hide one another: what trackers are tried with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeline.io.results import Detections


def moving_boxes(seed: int, frames: int) -> Iterator[Detections]:
    """Yield the detections of each frame; things are hidden for twelve frames in sixty, and missed in one of seven."""
    generator = np.random.default_rng(seed)
    count = int(generator.integers(1, 25))
    corners, velocities = generator.uniform(0, 600, (count, 2)), generator.normal(0, 4, (count, 2))
    sizes = generator.uniform(20, 90, (count, 2))
    for number in range(frames):
        corners = corners + velocities
        velocities = velocities + generator.normal(0, 0.3, velocities.shape)
        velocities[(corners < 0) | (corners > 600)] *= -1
        boxes = np.concatenate([corners, corners + sizes], 1) + generator.normal(0, 1, (count, 4))
        scores, is_seen = generator.uniform(0.2, 1, count), generator.uniform(size=count) > 0.15
        is_seen &= ((np.arange(count) * 7 + number) // 12) % 5 != 0
        yield Detections(
            boxes[is_seen].astype(np.float32),
            scores[is_seen].astype(np.float32),
            np.zeros(int(is_seen.sum()), np.int64),
        )
