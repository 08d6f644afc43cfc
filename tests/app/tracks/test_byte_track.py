"""ByteTrack, compared with the package trackers."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest

from pipeline.app.tracks.byte_track import ByteTrack, ByteTrackOptions
from pipeline.app.tracks.iou_track import IouTrack
from pipeline.io.results import Detections
from tests.support.moving_boxes import moving_boxes

FRAMES = 200

GOLDEN = {
    0: (44, "cfad04a5a573dcb7"),
    1: (17, "80b47c23527db676"),
    2: (32, "0a572c741d98d0b1"),
    3: (36, "7e658afb020d3fc3"),
    4: (32, "9ff2ebe21932db5d"),
    5: (24, "cffcee60d0dd1dfe"),
}
"""By seed, the number of tracks and the beginning of the SHA-256 of all numbers, as trackers 2.6.1 gives them."""


def numbers(seed: int) -> np.ndarray:
    """Return the numbers of all boxes of a sequence, in order."""
    tracker = ByteTrack()
    tracks = [tracker.update(detections).tracks for detections in moving_boxes(seed, FRAMES)]
    return np.concatenate(tracks)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", GOLDEN)
def test_numbers_are_those_of_the_package_trackers(seed: int) -> None:
    tracks = numbers(seed)
    assert (tracks.max() + 1, hashlib.sha256(tracks.tobytes()).hexdigest()[:16]) == GOLDEN[seed]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_numbers_are_those_of_the_package_trackers_if_it_is_there(seed: int) -> None:
    pytest.importorskip("trackers", reason="trackers is not installed; its numbers for some sequences are golden")
    reference = importlib.import_module("trackers").ByteTrackTracker()
    tracker = ByteTrack()
    for detections in moving_boxes(seed, FRAMES):
        assert _by_box(tracker.update(detections)) == _by_box_of_supervision(reference, detections)


def _by_box(detections: Detections) -> dict[tuple[float, ...], int]:
    assert detections.tracks is not None
    rows = zip(detections.boxes.tolist(), detections.tracks.tolist(), strict=True)
    return {tuple(np.round(box, 3).tolist()): track for box, track in rows}


def _by_box_of_supervision(tracker: Any, detections: Detections) -> dict[tuple[float, ...], int]:
    result = tracker.update(detections.to_supervision())
    return {
        tuple(np.round(box.astype(np.float64), 3).tolist()): int(track)
        for box, track in zip(result.xyxy, result.tracker_id, strict=True)
    }


def test_boxes_pass_unchanged_and_in_order() -> None:
    tracker = ByteTrack()
    for detections in moving_boxes(3, 50):
        result = tracker.update(detections)
        assert result.boxes is detections.boxes
        assert result.scores is detections.scores


def test_a_thing_keeps_its_number_through_an_occlusion_and_not_for_ever() -> None:
    tracker, seen = ByteTrack(ByteTrackOptions(lost=10)), []
    for number in range(60):
        is_hidden = 20 <= number < 28 or 40 <= number < 55
        boxes = np.array([[10 + number, 10, 50 + number, 50]], np.float32)[: 0 if is_hidden else 1]
        rows = len(boxes)
        result = tracker.update(Detections(boxes, np.full(rows, 0.9, np.float32), np.zeros(rows, np.int64)))
        assert result.tracks is not None
        seen += result.tracks.tolist()
    assert seen == [-1, *[0] * 31, -1, *[1] * 4]


@pytest.mark.parametrize("make", [ByteTrack, IouTrack])
def test_what_is_no_number_and_no_box_does_no_harm(make: Callable[[], Any]) -> None:
    tracker = make()
    boxes = np.array([[np.nan] * 4, [0, 0, np.inf, 1], [5, 5, 5, 5], [0, 0, 10, 10]], np.float32)
    for _ in range(5):
        result = tracker.update(Detections(boxes, np.full(4, 0.9, np.float32), np.zeros(4, np.int64)))
        assert len(result.tracks) == 4
    assert result.tracks[3] >= 0
    assert result.tracks[0] == result.tracks[1] == -1


def test_an_overlap_tracker_follows_what_overlaps() -> None:
    tracker, tracks = IouTrack(), []
    for number in range(10):
        boxes = np.array([[5 * number, 0, 5 * number + 40, 40], [300, 5 * number, 340, 5 * number + 40]], np.float32)
        boxes = boxes[:: -1 if number % 2 else 1]
        result = tracker.update(Detections(boxes, np.full(2, 0.9, np.float32), np.zeros(2, np.int64)))
        assert result.tracks is not None
        tracks.append(result.tracks[:: -1 if number % 2 else 1].tolist())
    assert tracks == [[0, 1]] * 10


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_memory_is_flat_over_a_million_frames() -> None:
    # The process's memory, since tracemalloc makes each frame five times as slow.
    # A leak of one small object per frame would be 25 MB.
    tracker, process = ByteTrack(), psutil.Process()
    frames = list(moving_boxes(5, 200))
    sizes = []
    for number in range(1_000_000):
        tracker.update(frames[number % len(frames)])
        if number % 100_000 == 50_000:
            sizes.append(process.memory_info().rss)
    assert max(sizes) < sizes[0] + 8_000_000
