"""Detector of the demo: its network, scenes as a source of frames, and the boxes on them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import pipeline
from pipeline.demo.scenes import Scene, scenes
from pipeline.io.results import Detections
from pipeline.io.sinks.overlay import draw
from pipeline.io.source_frame import SECOND, SourceFrame
from pipeline.io.sources.base import FrameSource
from pipeline.picture.pixels import Pixels
from pipeline.system.optional import require

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle

FILE = Path(__file__).with_name("detector.onnx")
"""The trained network, as shipped, with its card; ``tools/train_detector.py`` trains such ones."""

WIDTH, HEIGHT = 640, 480
SEED = 5

SCENES = 24
"""Scenes, which are shown over and over."""

PICTURES = 4
"""Scenes in a picture, two in a row."""

OVERLAP = 0.5
"""Least intersection over union of a digit and its box."""


class SceneSource(FrameSource):
    """Pictures of scenes.

    `fps`: frames per second, without end, as from a camera; without it each scene comes once.
    `scenes`: the scenes, with the digits in them.
    """

    owns_memory = True
    pixels: Pixels

    def __init__(self, fps: float | None = None) -> None:
        self.pixels = Pixels("rgb24", WIDTH, HEIGHT)
        self.scenes: Sequence[Scene] = list(islice(scenes(SEED, WIDTH, HEIGHT), SCENES))
        self.live, self._fps = fps is not None, fps

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the frames."""
        begin = time.time()
        for number in count() if self._fps else range(SCENES):
            if self._fps:
                time.sleep(max(0.0, begin + number / self._fps - time.time()))
            now = time.time()
            picture = self.scenes[number % SCENES].picture
            yield SourceFrame(f"{number:06d}", picture, round(now * SECOND), now, self.pixels)


@dataclass(frozen=True)
class Recognition:
    """Boxes against the digits in the scenes."""

    digits: int
    recognised: int
    """Digits, and those with a box of their class."""
    wrong: int
    """Boxes of no digit, or of another class."""


def recognise(bundle: Bundle, path: Path) -> Recognition:
    """Stream the scenes through the detector, and draw boxes on some.

    `path`: the picture to write.
    """
    source = SceneSource()
    results = [frame.detections for frame in pipeline.stream(bundle, source)]
    pictures = [draw(scene.picture, result) for scene, result in zip(source.scenes[:PICTURES], results, strict=False)]
    rows = [np.concatenate(pictures[number : number + 2], axis=1) for number in range(0, PICTURES, 2)]
    image = require("PIL.Image", "images", "drawing the scenes")
    image.fromarray(np.concatenate(rows)).save(path)
    truths = [Detections(scene.boxes, np.ones(len(scene.boxes)), scene.classes) for scene in source.scenes]
    hits = [match(truth, result) for truth, result in zip(truths, results, strict=True)]
    boxes = sum(map(len, results))
    misses = [match(result, truth) for truth, result in zip(truths, results, strict=True)]
    return Recognition(sum(map(len, truths)), int(sum(map(np.sum, hits))), boxes - int(sum(map(np.sum, misses))))


def match(detections: Detections, references: Detections, overlap: float = OVERLAP) -> np.ndarray:
    """Find, as bool [N], the boxes with a reference of their class at their place.

    The least intersection over union is `overlap`.
    """
    boxes, others = detections.boxes[:, None], references.boxes[None]
    sides = np.minimum(boxes[..., 2:], others[..., 2:]) - np.maximum(boxes[..., :2], others[..., :2])
    common = np.clip(sides, 0, None).prod(-1)
    areas = [(corners[..., 2:] - corners[..., :2]).prod(-1) for corners in (boxes, others)]
    ratios = common / np.maximum(areas[0] + areas[1] - common, 1e-9)
    same = detections.classes[:, None] == references.classes[None]
    matches: np.ndarray = ((ratios >= overlap) & same).any(1)
    return matches
