"""Overlay: a result drawn on its picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline.io.results import Classes, Detections, FrameResults, Mask, Result, Text, label
from pipeline.io.sinks.canvas import LINE_HEIGHT, Canvas, Colour
from pipeline.picture.pixels import Pixels

# Bright ones, which stand out from photographs; by class, so that a kind of thing keeps its colour.
COLOURS: tuple[Colour, ...] = (
    (0, 200, 255), (255, 159, 28), (122, 229, 130), (255, 77, 109), (199, 125, 255), (255, 230, 109),
)  # fmt: skip

WHITE: Colour = (255, 255, 255)

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


def draw(picture: np.ndarray, result: Result | FrameResults, pixels: Pixels | None = None) -> np.ndarray:
    """Return a copy of a picture with a result in its pixels.

    Without a format, the picture is uint8 RGB [height, width, 3]. Raises `MissingExtra` if Pillow is not installed.
    """
    pixels = pixels or Pixels("rgb24", picture.shape[1], picture.shape[0])
    # One after the other in memory, as views of planes need them.
    drawn = np.array(picture, order="C")
    canvas = Canvas(drawn, pixels)
    for part in result.parts.values() if isinstance(result, FrameResults) else (result,):
        _DRAWINGS[type(part)](canvas, part)
    return drawn


def _has_background(mask: Mask) -> bool:
    # Without names, most networks are trained with class 0 for what is nothing.
    return not mask.labels or mask.labels[0].strip().lower() in BACKGROUNDS


def _draw_detections(canvas: Canvas, result: Detections) -> None:
    limits = np.array([canvas.width, canvas.height], np.float32)
    corners, points = _clip(result.corners(), limits), result.points
    points = None if points is None else np.concatenate([_clip(points[..., :2], limits), points[..., 2:]], axis=-1)
    colours = [COLOURS[int(number) % len(COLOURS)] for number in result.classes]
    # Masks first, so that nothing of the rest is covered, and the best last, on top of the others.
    order = range(len(result) - 1, -1, -1)
    if result.masks is not None:
        boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=-1)
        for row in order:
            _paint_mask(canvas, boxes[row], result.masks[row], colours[row])
    names, tracks = (
        result.names,
        [""] * len(result) if result.tracks is None else [f" #{track}" for track in result.tracks],
    )
    for row in order:
        if result.angles is None:
            canvas.box(corners[row, 0].tolist(), corners[row, 2].tolist(), colours[row])
        else:
            canvas.lines(corners[row], np.roll(corners[row], -1, axis=0), colours[row])
            # Round corners, since the ends of two thick lines leave a notch between them.
            canvas.dots(corners[row], canvas.pen / 2, colours[row])
        if points is not None:
            _draw_points(canvas, points[row], colours[row])
        left, top = corners[row].min(axis=0).tolist()
        # Above the box, or at the edge of the picture where the box touches it.
        texts = [f"{names[row]}{tracks[row]} {result.scores[row]:.2f}"]
        texts += (values[row].summary() for values in result.attributes.values())
        canvas.text((left, top - LINE_HEIGHT * canvas.size), " ".join(texts), colours[row])


def _clip(points: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Return points [..., x, y] not far outside, since networks that diverge have infinite boxes."""
    clipped: np.ndarray = np.clip(np.nan_to_num(points), -limits, 2 * limits)
    return clipped


def _paint_mask(canvas: Canvas, box: np.ndarray, mask: np.ndarray, colour: Colour) -> None:
    # Nothing is outside of the box.
    left, top, right, bottom = box.clip(0).astype(int).tolist()
    canvas.paint(mask[top : bottom + 1, left : right + 1], colour, left, top)


def _draw_points(canvas: Canvas, points: np.ndarray, colour: Colour) -> None:
    seen, places = points[:, 2] >= LEAST_POINT_SCORE, points[:, :2]
    bones = np.array(SKELETONS.get(len(points), np.empty((0, 2))), int)
    bones = bones[seen[bones].all(axis=1)]
    canvas.lines(places[bones[:, 0]], places[bones[:, 1]], colour)
    radius = canvas.pen + 1
    # Points that are hardly there are rings.
    canvas.dots(places[~seen], radius, colour, hole=radius - 1)
    canvas.dots(places[seen], radius, WHITE)
    canvas.dots(places[seen], radius - 1, colour)


def _draw_classes(canvas: Canvas, result: Classes) -> None:
    names = zip(result.names, result.scores, strict=True)
    _draw_lines(canvas, [(f"{name} {score:.2f}", WHITE) for name, score in names])


def _draw_mask(canvas: Canvas, result: Mask) -> None:
    hidden = 0 if _has_background(result) else -1
    shares = [(number, share) for number, share in result.shares().items() if number != hidden]
    if result.classes is not None and result.classes.shape == (canvas.height, canvas.width):
        for number, _ in shares:
            canvas.paint(result.classes == number, COLOURS[number % len(COLOURS)])
    lines = [
        (f"{label(result.labels, number)} {share:.0%}", COLOURS[number % len(COLOURS)]) for number, share in shares
    ]
    _draw_lines(canvas, lines[:MOST_LINES])


def _draw_text(canvas: Canvas, result: Text) -> None:
    _draw_lines(canvas, [(f"{result.text} {result.score:.2f}", WHITE)])


def _draw_lines(canvas: Canvas, lines: list[tuple[str, Colour]]) -> None:
    """Write at the left top, one below the other."""
    for number, (text, colour) in enumerate(lines):
        canvas.text((canvas.size / 2, canvas.size * (0.5 + 1.4 * number)), text, colour)


_DRAWINGS: dict[type, Callable[[Canvas, Any], None]] = {
    Detections: _draw_detections,
    Classes: _draw_classes,
    Mask: _draw_mask,
    Text: _draw_text,
}
