"""Overlay: drawings on a picture, derived from a model's outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.output_forms import BOXES, SCORES
from pipeline.io.source_frame import FrameResult
from pipeline.picture.geometry import Geometry
from pipeline.system.optional import require

# Bright ones, which stand out from photographs; by class, so that a kind of thing keeps its colour.
COLOURS = ("#00c8ff", "#ff9f1c", "#7ae582", "#ff4d6d", "#c77dff", "#ffe66d")


@dataclass(frozen=True)
class Box:
    """Labelled rectangle in a picture's pixels."""

    left: float
    top: float
    right: float
    bottom: float
    label: str = ""
    kind: int = 0


@dataclass(frozen=True)
class Overlay:
    """Boxes, and lines of text in the corner."""

    boxes: Sequence[Box] = ()
    lines: Sequence[str] = ()


Reading = Callable[[FrameResult], Overlay]
"""Reads from a result what shall be drawn."""


def draw(picture: np.ndarray, overlay: Overlay) -> np.ndarray:
    """Draw `overlay` on `picture`, uint8 [height, width, 3], or raise `MissingExtra`."""
    image = require("PIL.Image", "images", "drawing onto pictures")
    # A thirtieth of the height can be read when the video fills a screen; below 10 pixels nothing can.
    font_size = max(10, len(picture) // 30)
    font = require("PIL.ImageFont", "images", "drawing onto pictures").load_default(font_size)
    canvas = image.fromarray(picture)
    pen = require("PIL.ImageDraw", "images", "drawing onto pictures").Draw(canvas)
    for box in overlay.boxes:
        colour = COLOURS[box.kind % len(COLOURS)]
        # Pillow refuses rectangles whose corners are exchanged, as some detectors give them.
        corners = sorted((box.left, box.right)) + sorted((box.top, box.bottom))
        pen.rectangle((corners[0], corners[2], corners[1], corners[3]), outline=colour, width=max(1, font_size // 8))
        # Above the box, or at the edge of the picture where the box touches it.
        _text(pen, (corners[0], max(0.0, corners[2] - 1.3 * font_size)), box.label, font, colour)
    for number, line in enumerate(overlay.lines):
        _text(pen, (font_size / 2, font_size * (0.5 + 1.4 * number)), line, font, "white")
    return np.asarray(canvas)


def _text(pen: Any, corner: tuple[float, float], text: str, font: Any, colour: str) -> None:
    if text:
        # On black, since the picture below may have any colour.
        pen.rectangle(pen.textbbox(corner, text, font=font), fill="black")
        pen.text(corner, text, font=font, fill=colour)


@dataclass(frozen=True)
class BestLabel:
    """Reads the best class of a classifier.

    Attributes
    ----------
    labels : sequence of str
        Names of the classes; numbers without.
    """

    labels: Sequence[str] = ()

    def check(self, output: TensorSpec) -> None:
        """Raise `InputError` unless an output has one score per label."""
        SCORES.check(output.shape, output.name)
        count = max(output.shape, default=1)
        if self.labels and len(self.labels) != count:
            # Of a list that is longer, too, all may be wrong: some begin with a class for the background.
            raise InputError(f"there are {len(self.labels)} labels for the {count} classes of {output.name!r}")

    def __call__(self, result: FrameResult) -> Overlay:
        """Return its name and score as a line."""
        scores = _first(result)
        SCORES.check(scores.shape)
        scores = scores.reshape(-1)
        best = int(scores.argmax())
        return Overlay(lines=[f"{_label(self.labels, best)} {float(scores[best]):.2f}"])


@dataclass(frozen=True)
class Boxes:
    """Reads a detector's rows: left, top, right, bottom, score, class.

    Attributes
    ----------
    geometry : Geometry or None
        Position of the picture in the model's input.
    labels : sequence of str
        Names of the classes; numbers without.
    minimum_score : float
        Scores below are left out.
    """

    geometry: Geometry | None = None
    labels: Sequence[str] = ()
    minimum_score: float = 0.5

    @staticmethod
    def check(output: TensorSpec) -> None:
        """Raise `InputError` unless an output has rows of boxes."""
        BOXES.check(output.shape, output.name)

    def __call__(self, result: FrameResult) -> Overlay:
        """Return the boxes in the picture's pixels."""
        rows = _first(result)
        BOXES.check(rows.shape)
        return Overlay(
            boxes=[self._box(row) for row in rows.reshape(-1, rows.shape[-1]) if row[4] >= self.minimum_score]
        )

    def _box(self, row: np.ndarray) -> Box:
        back = self.geometry.back if self.geometry else lambda x, y: (x, y)
        left, top = back(float(row[0]), float(row[1]))
        right, bottom = back(float(row[2]), float(row[3]))
        return Box(left, top, right, bottom, f"{_label(self.labels, int(row[5]))} {row[4]:.2f}", int(row[5]))


def _first(result: FrameResult) -> np.ndarray:
    return np.asarray(next(iter(result.numbers.values())))


def _label(labels: Sequence[str], number: int) -> str:
    return labels[number] if 0 <= number < len(labels) else f"class {number}"
