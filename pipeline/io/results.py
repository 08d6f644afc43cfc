"""Results: decoded outputs of a model, in the source picture's pixels.

A decoder returns them in the pixels of the model's input; `to_picture` maps them back to the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.picture.geometry import Geometry


def label(labels: Sequence[str], number: int) -> str:
    """Name of a class; its number without labels."""
    return labels[number] if 0 <= number < len(labels) else f"class {number}"


@dataclass(frozen=True)
class Detections:
    """Boxes in a picture, by descending score.

    Attributes
    ----------
    boxes : array
        float32 [N, 4] of left, top, right, bottom in pixels.
    scores : array
        float32 [N], from 0 to 1.
    classes : array
        int64 [N].
    labels : sequence of str
        Names of the classes; numbers without.
    points : array, optional
        float32 [N, K, 3] of x, y in pixels, and score.
    masks : array, optional
        bool [N, height, width] of the picture; of a decoder, float32 logits or scores at any size over the model's
        input, and `mask_threshold` to compare them with.
    angles : array, optional
        float32 [N] in radians, clockwise: a box is turned by it about its centre.
    tracks : array, optional
        int64 [N], numbers of things followed over frames.
    mask_threshold : float
    """

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray
    labels: Sequence[str] = ()
    points: np.ndarray | None = None
    masks: np.ndarray | None = None
    angles: np.ndarray | None = None
    tracks: np.ndarray | None = None
    mask_threshold: float = 0.5

    def __len__(self) -> int:
        return len(self.boxes)

    @property
    def names(self) -> list[str]:
        """Name of the class of each box."""
        return [label(self.labels, int(number)) for number in self.classes]

    def to_picture(self, geometry: Geometry, size: tuple[int, int]) -> Detections:
        """Return the detections in a picture's pixels.

        Parameters
        ----------
        geometry : Geometry
            Position of the picture in the model's input.
        size : (int, int)
            Width and height of the picture.
        """
        corners = geometry.back_points(self.boxes.reshape(-1, 2, 2))
        # Beyond the picture there is nothing to be seen, but for boxes that are turned, whose corners lie elsewhere.
        corners = corners if self.angles is not None else np.clip(corners, 0, np.array(size, np.float32))
        points, masks = self.points, self.masks
        if points is not None:
            points = np.concatenate([geometry.back_points(points[..., :2]), points[..., 2:]], axis=-1)
        if masks is not None:
            masks = geometry.back_map(masks, size) > self.mask_threshold
        return replace(self, boxes=corners.reshape(-1, 4), points=points, masks=masks)

    def facts(self) -> list[dict[str, Any]]:
        """Return plain values for JSON, one mapping per box."""
        return [
            {"label": name, "class": int(number), "score": float(score), "box": [float(value) for value in box]}
            for name, number, score, box in zip(self.names, self.classes, self.scores, self.boxes, strict=True)
        ]

    def summary(self) -> str:
        """Return one line for people."""
        rows = zip(self.names, self.scores, self.boxes, strict=True)
        return ", ".join(f"{name} {score:.2f} [{' '.join(f'{v:.0f}' for v in box)}]" for name, score, box in rows)


@dataclass(frozen=True)
class Classes:
    """Best classes of a picture, by descending score.

    Attributes
    ----------
    classes : array
        int64 [K].
    scores : array
        float32 [K].
    labels : sequence of str
    """

    classes: np.ndarray
    scores: np.ndarray
    labels: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """Name of each class."""
        return [label(self.labels, int(number)) for number in self.classes]

    def to_picture(self, geometry: Geometry, size: tuple[int, int]) -> Classes:  # noqa: ARG002 - one interface
        """Return the same classes, which have no position."""
        return self

    def facts(self) -> list[dict[str, Any]]:
        """Return plain values for JSON, one mapping per class."""
        rows = zip(self.names, self.classes, self.scores, strict=True)
        return [{"label": name, "class": int(number), "score": float(score)} for name, number, score in rows]

    def summary(self) -> str:
        """Return one line for people."""
        return ", ".join(f"{name} {score:.2f}" for name, score in zip(self.names, self.scores, strict=True))


@dataclass(frozen=True)
class Mask:
    """Class of each pixel.

    Attributes
    ----------
    classes : array
        uint8 or int64 [height, width] of the picture; of a decoder, None until `scores` are at the picture's size.
    scores : array, optional
        float32 [classes, height, width] or [1, height, width] over the model's input; only a decoder's.
    labels : sequence of str
    threshold : float
        Of a single score: larger ones are class 1.
    """

    classes: np.ndarray | None
    scores: np.ndarray | None = None
    labels: Sequence[str] = ()
    threshold: float = 0.5

    def to_picture(self, geometry: Geometry, size: tuple[int, int]) -> Mask:
        """Return the mask at a picture's size."""
        if self.scores is None:
            return self
        scores = geometry.back_map(self.scores, size)
        classes = scores.argmax(0) if len(scores) > 1 else scores[0] > self.threshold
        return replace(self, classes=classes.astype(np.uint8), scores=None)

    def facts(self) -> list[dict[str, Any]]:
        """Return plain values for JSON: pixels per class."""
        if self.classes is None:
            return []
        numbers, counts = np.unique(self.classes, return_counts=True)
        return [
            {"label": label(self.labels, int(number)), "class": int(number), "pixels": int(count)}
            for number, count in zip(numbers, counts, strict=True)
        ]

    def summary(self) -> str:
        """Return one line for people."""
        total = max(1, 0 if self.classes is None else self.classes.size)
        return ", ".join(f"{fact['label']} {fact['pixels'] / total:.0%}" for fact in self.facts())


@dataclass(frozen=True)
class Text:
    """Read text.

    Attributes
    ----------
    text : str
    score : float
        Mean score of its characters, from 0 to 1.
    """

    text: str
    score: float

    def to_picture(self, geometry: Geometry, size: tuple[int, int]) -> Text:  # noqa: ARG002 - one interface
        """Return the same text, which has no position."""
        return self

    def facts(self) -> list[dict[str, Any]]:
        """Return plain values for JSON."""
        return [{"text": self.text, "score": float(self.score)}]

    def summary(self) -> str:
        """Return one line for people."""
        return f"{self.text!r} {self.score:.2f}"


Result = Detections | Classes | Mask | Text
