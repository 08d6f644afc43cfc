"""Overlay: a result drawn on its picture."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from pipeline.io.results import Classes, Detections, FrameResults, Mask, Result, Text, label
from pipeline.system.optional import require

# Bright ones, which stand out from photographs; by class, so that a kind of thing keeps its colour.
COLOURS = ("#00c8ff", "#ff9f1c", "#7ae582", "#ff4d6d", "#c77dff", "#ffe66d")

BACKGROUNDS = ("", "__background__", "background", "other", "unlabeled", "void")
"""Names of class 0 for pixels that belong to nothing, which stay as they are."""

MOST_LINES = 8
"""Lines of a legend; what covers less of the picture is left out."""

LEAST_POINT_SCORE = 0.2
"""Score of a key point to be drawn with bones; those below are guesses behind something."""

SKELETONS = {
    # Of COCO's key points of a person, by their number.
    17: (
        (0, 1), (0, 2), (1, 3), (2, 4), (5, 6), (5, 7), (7, 9), (6, 8), (8, 10), (5, 11), (6, 12), (11, 12), (11, 13),
        (13, 15), (12, 14), (14, 16),
    ),
}  # fmt: skip
"""Bones, as pairs of points, by the number of points."""


class _Canvas:
    """Picture to draw on, with a pen and a font that suit its size."""

    def __init__(self, picture: np.ndarray) -> None:
        # A thirtieth of the shorter side can be read when the video fills a screen; below 10 pixels nothing can.
        self.size = max(10, min(picture.shape[:2]) // 30)
        self.width = max(1, self.size // 8)
        self._font = _font(self.size)
        self.image = require("PIL.Image", "images", "drawing onto pictures").fromarray(picture)
        self.pen = require("PIL.ImageDraw", "images", "drawing onto pictures").Draw(self.image)
        self._lines = 0

    def clip(self, points: np.ndarray) -> np.ndarray:
        """Return points [..., x, y] not far outside, since Pillow takes steps of a pixel to those that are."""
        limits = np.array(self.image.size, np.float32)
        inside = np.clip(np.nan_to_num(points[..., :2]), -limits, 2 * limits)
        return np.concatenate([inside, points[..., 2:]], axis=-1)

    def text(self, corner: tuple[float, float], text: str, colour: str) -> None:
        """Write on black, since the picture below may have any colour."""
        # At the right edge it begins further left, so that its end can be read.
        beyond = self.pen.textbbox(corner, text, font=self._font)[2] - self.image.width
        corner = max(0.0, corner[0] - max(0.0, beyond)), corner[1]
        self.pen.rectangle(self.pen.textbbox(corner, text, font=self._font), fill="black")
        self.pen.text(corner, text, font=self._font, fill=colour)

    def line(self, text: str, colour: str = "white") -> None:
        """Write the next line of the left top."""
        self.text((self.size / 2, self.size * (0.5 + 1.4 * self._lines)), text, colour)
        self._lines += 1


@cache
def _font(size: int) -> Any:
    return require("PIL.ImageFont", "images", "drawing onto pictures").load_default(size)


def draw(picture: np.ndarray, result: Result | FrameResults) -> np.ndarray:
    """Draw a result in its picture's pixels.

    Parameters
    ----------
    picture : array
        uint8 [height, width, 3]; stays as it is.
    result : Result or FrameResults

    Returns
    -------
    array
        uint8 [height, width, 3].

    Raises
    ------
    MissingExtra
        If Pillow is not installed.
    """
    if isinstance(result, FrameResults):
        for part in result.parts.values():
            picture = draw(picture, part)
        return picture
    # Masks first, in NumPy, so that nothing of the rest is covered.
    canvas = _Canvas(_paint(picture, result))
    _DRAWINGS[type(result)](canvas, result)
    drawn: np.ndarray = np.asarray(canvas.image)
    return drawn


def _paint(picture: np.ndarray, result: Result) -> np.ndarray:
    """Return a copy of the picture with half-transparent masks."""
    painted: np.ndarray = picture.copy()
    palette = np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in COLOURS], np.uint8)
    if isinstance(result, Detections) and result.masks is not None:
        # The best last, on top of the others.
        for mask, number in zip(result.masks[::-1], result.classes[::-1], strict=True):
            painted[mask] = painted[mask] // 2 + palette[number % len(palette)] // 2
    if isinstance(result, Mask) and result.classes is not None and result.classes.shape == picture.shape[:2]:
        inside = result.classes != 0 if _has_background(result) else np.ones(result.classes.shape, bool)
        painted[inside] = painted[inside] // 2 + palette[result.classes[inside] % len(palette)] // 2
    return painted


def _has_background(mask: Mask) -> bool:
    # Without names, most networks are trained with class 0 for what is nothing.
    return not mask.labels or mask.labels[0].strip().lower() in BACKGROUNDS


def _draw_detections(canvas: _Canvas, result: Detections) -> None:
    tracks = [""] * len(result) if result.tracks is None else [f" #{track}" for track in result.tracks]
    corners, labels = canvas.clip(result.corners()), result.names
    points = None if result.points is None else canvas.clip(result.points)
    # The best last, on top of the others.
    for row in reversed(range(len(result))):
        colour = COLOURS[int(result.classes[row]) % len(COLOURS)]
        outline = [(float(x), float(y)) for x, y in corners[row]]
        # A polygon, since rectangles with exchanged corners, as some detectors give them, are refused by Pillow.
        canvas.pen.line([*outline, outline[0]], fill=colour, width=canvas.width, joint="curve")
        if points is not None:
            _draw_points(canvas, points[row], colour)
        left, top = np.min(outline, axis=0)
        # Above the box, or at the edge of the picture where the box touches it.
        corner = float(left), max(0.0, float(top) - 1.3 * canvas.size)
        texts = [values[row].summary() for values in result.attributes.values()]
        canvas.text(corner, " ".join([f"{labels[row]}{tracks[row]} {result.scores[row]:.2f}", *texts]), colour)


def _draw_points(canvas: _Canvas, points: np.ndarray, colour: str) -> None:
    seen = points[:, 2] >= LEAST_POINT_SCORE
    for start, end in SKELETONS.get(len(points), ()):
        if seen[start] and seen[end]:
            canvas.pen.line([tuple(points[start, :2]), tuple(points[end, :2])], fill=colour, width=canvas.width)
    radius = canvas.width + 1
    for (x, y, _), is_seen in zip(points.tolist(), seen, strict=True):
        # Points that are hardly there are rings.
        box = (x - radius, y - radius, x + radius, y + radius)
        canvas.pen.ellipse(box, fill=colour if is_seen else None, outline="white" if is_seen else colour)


def _draw_classes(canvas: _Canvas, result: Classes) -> None:
    for name, score in zip(result.names, result.scores, strict=True):
        canvas.line(f"{name} {score:.2f}")


def _draw_legend(canvas: _Canvas, result: Mask) -> None:
    hidden = 0 if _has_background(result) else -1
    shares = [(number, share) for number, share in result.shares().items() if number != hidden]
    for number, share in shares[:MOST_LINES]:
        canvas.line(f"{label(result.labels, number)} {share:.0%}", COLOURS[number % len(COLOURS)])


def _draw_text(canvas: _Canvas, result: Text) -> None:
    canvas.line(f"{result.text} {result.score:.2f}")


_DRAWINGS: dict[type, Callable[[_Canvas, Any], None]] = {
    Detections: _draw_detections,
    Classes: _draw_classes,
    Mask: _draw_legend,
    Text: _draw_text,
}
