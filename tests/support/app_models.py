"""Models of applications whose answers are known: bright squares on a grid, and the brightness of a crop."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.executor.bundle import Bundle
from pipeline.io.source_frame import SECOND, SourceFrame
from pipeline.io.sources.base import FrameSource
from pipeline.picture.pixels import Pixels
from tests.support.media import identity

SIZE, CELL, MOST = 64, 8, 64
"""Extents of a picture and of a cell in pixels; cells of a picture."""

LEVELS = 10
"""Brightnesses of squares, which are the classes of crops."""

Square = tuple[int, int, int]
"""Column, row and level of a square."""


def scene(squares: Sequence[Square]) -> np.ndarray:
    """Return a picture, uint8 [64, 64, 3], with squares in cells of a grid."""
    picture = np.zeros((SIZE, SIZE, 3), np.uint8)
    for column, row, level in squares:
        picture[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL] = 25 * (level + 1)
    return picture


def random_squares(generator: np.random.Generator, count: int) -> list[Square]:
    """Return squares in different cells."""
    cells = generator.choice(MOST, count, replace=False)
    return [(int(cell) % 8, int(cell) // 8, int(generator.integers(LEVELS))) for cell in cells]


def frame(number: int, picture: np.ndarray) -> SourceFrame:
    """Return a picture as a source yields it."""
    return SourceFrame(str(number), picture, number * SECOND // 30, pixels=Pixels("rgb24", *picture.shape[1::-1]))


class Scenes(FrameSource):
    """A source of pictures; a live one has a pace."""

    owns_memory = True

    def __init__(self, pictures: Sequence[np.ndarray], fps: float = 0.0) -> None:
        self._pictures, self._fps, self.live = pictures, fps, fps > 0

    def __iter__(self) -> Iterator[SourceFrame]:
        for number, picture in enumerate(self._pictures):
            if self._fps:
                time.sleep(1 / self._fps)
            yield frame(number, picture)


def find_squares(picture: np.ndarray) -> np.ndarray:
    """Return rows of left, top, right, bottom, score and class for the squares of a picture."""
    cells = picture[..., 0].reshape(8, CELL, 8, CELL)[:, 0, :, 0]
    table = np.zeros((1, MOST, 6), np.float32)
    for number, (row, column) in enumerate(np.argwhere(cells)):
        left, top = column * CELL, row * CELL
        # Scores differ, so that the best ones are known: the first ones.
        table[0, number] = left, top, left + CELL, top + CELL, 0.99 - 0.005 * number, 0
    return table


def measure_level(picture: np.ndarray) -> np.ndarray:
    """Return the scores of a crop's brightness."""
    scores = np.full((1, LEVELS), 0.0, np.float32)
    scores[0, round(float(picture.mean()) / 25) - 1] = 1
    return scores


def function_bundle(
    function: Callable[[np.ndarray], np.ndarray], output: TensorSpec, card: ModelCard, size: int = SIZE, **options: Any
) -> Bundle:
    """Return a bundle of a Python function of pictures."""
    bundle = identity((size, size, 3)).with_stage(function, inputs=["y"], outputs=[output], fresh=True, **options)
    bundle.card = card
    return bundle


def detector(function: Callable[[np.ndarray], np.ndarray] = find_squares, **options: Any) -> Bundle:
    """Return a bundle that finds squares."""
    card = ModelCard(task="detect", decoder="rows", labels=("square",))
    return function_bundle(function, TensorSpec("rows", (1, MOST, 6)), card, **options)


def classifier(function: Callable[[np.ndarray], np.ndarray] = measure_level, **options: Any) -> Bundle:
    """Return a bundle that tells a crop's brightness."""
    labels = tuple(f"level {number}" for number in range(LEVELS))
    card = ModelCard(task="classify", decoder="classes", labels=labels, parameters={"activation": "none", "top": 1})
    return function_bundle(function, TensorSpec("scores", (1, LEVELS)), card, size=CELL, **options)


def fail_every(count: int, function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function, which fails on each so manieth call."""
    calls = itertools.count(1)

    def call(picture: np.ndarray) -> np.ndarray:
        if next(calls) % count == 0:
            raise RuntimeError("this crop fails")
        return function(picture)

    return call
