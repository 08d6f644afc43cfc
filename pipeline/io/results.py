"""Results: decoded outputs of a model, in the source picture's pixels.

A decoder returns them in the pixels of the model's input; `to_picture` maps them back to the picture.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.picture.geometry import Geometry

COCO_POINTS = (
    "nose", "left eye", "right eye", "left ear", "right ear", "left shoulder", "right shoulder", "left elbow",
    "right elbow", "left wrist", "right wrist", "left hip", "right hip", "left knee", "right knee", "left ankle",
    "right ankle",
)  # fmt: skip
"""Names of the 17 key points of a person in the data set COCO, which most networks for poses are trained with."""


def label(labels: Sequence[str], number: int) -> str:
    """Name of a class; its number without labels."""
    return labels[number] if 0 <= number < len(labels) else f"class {number}"


@dataclass(frozen=True)
class Detections:
    """Boxes in a picture, by descending score.

    Notes
    -----
    The annotators of the package supervision take it as they take their own ``Detections``; `to_supervision` makes one.
    """

    boxes: np.ndarray
    """float32 [N, 4] of left, top, right, bottom in pixels."""
    scores: np.ndarray
    """float32 [N], from 0 to 1."""
    classes: np.ndarray
    """int64 [N]."""
    labels: Sequence[str] = ()
    """Names of the classes; numbers without."""
    points: np.ndarray | None = None
    """float32 [N, K, 3] of x, y in pixels, and score."""
    masks: np.ndarray | None = None
    """bool [N, height, width] of the picture, true inside of the boxes only; of a decoder, float32 logits or scores at
    any size over the model's input, and `mask_threshold` to compare them with."""
    angles: np.ndarray | None = None
    """float32 [N] in radians, clockwise: a box is turned by it about its centre."""
    tracks: np.ndarray | None = None
    """int64 [N], numbers of things followed over frames."""
    mask_threshold: float = 0.5
    point_names: Sequence[str] = ()
    """Names of the K points; without, those of COCO for 17 points."""
    attributes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """A result for each box, by the name of the model that was run on it."""

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, index: Any) -> Any:
        """Return the detections at an index, slice or mask, or a field of `data` by its name."""
        if isinstance(index, str):
            return self.data[index]
        rows = np.atleast_1d(np.arange(len(self))[index])
        names = ("boxes", "scores", "classes", "points", "masks", "angles", "tracks")
        arrays = {name: getattr(self, name) for name in names}
        attributes = {name: tuple(values[row] for row in rows) for name, values in self.attributes.items()}
        chosen = {name: array[rows] for name, array in arrays.items() if array is not None}
        return replace(self, attributes=attributes, **chosen)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield box, mask, score, class, track and data of each, as supervision does."""
        data = self.data
        for row in range(len(self)):
            mask, track = (None if array is None else array[row] for array in (self.masks, self.tracks))
            facts = {name: array[row] for name, array in data.items()}
            yield self.boxes[row], mask, self.scores[row], self.classes[row], track, facts

    # Names of supervision's attributes, by which its annotators read.
    xyxy = property(lambda self: self.boxes)
    confidence = property(lambda self: self.scores)
    class_id = property(lambda self: self.classes)
    mask = property(lambda self: self.masks)
    tracker_id = property(lambda self: self.tracks)
    metadata = property(lambda _: {})

    @property
    def data(self) -> dict[str, np.ndarray]:
        """Names of the classes and corners of turned boxes, by supervision's names."""
        corners = {} if self.angles is None else {"xyxyxyxy": self.corners()}
        return {"class_name": np.array(self.names, dtype=str), **corners}

    if not TYPE_CHECKING:  # else no wrong name of an attribute would be seen

        def __getattr__(self, name: str) -> Any:
            """Return another attribute of supervision's, such as its anchors, for those who have imported it."""
            if name.startswith("_") or "supervision" not in sys.modules:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return getattr(self.to_supervision(), name)

    def to_supervision(self) -> Any:
        """Return them as ``supervision.Detections``; needs that package."""
        names = ("xyxy", "mask", "confidence", "class_id", "tracker_id", "data")
        return importlib.import_module("supervision").Detections(**{name: getattr(self, name) for name in names})

    def corners(self) -> np.ndarray:
        """Return the corners of the boxes, turned by their angles: float32 [N, 4, 2]."""
        centres, halves = (self.boxes[:, :2] + self.boxes[:, 2:]) / 2, (self.boxes[:, 2:] - self.boxes[:, :2]) / 2
        angles = np.zeros(len(self), np.float32) if self.angles is None else self.angles
        cosines, sines = np.cos(angles)[:, None], np.sin(angles)[:, None]
        # From the left top, in the order of a clock's hand.
        x, y = (halves[:, axis : axis + 1] * signs for axis, signs in enumerate(([-1, 1, 1, -1], [-1, -1, 1, 1])))
        # Networks that diverge have infinite boxes.
        with np.errstate(invalid="ignore"):
            offsets = np.stack([x * cosines - y * sines, x * sines + y * cosines], axis=-1)
            turned: np.ndarray = (centres[:, None] + offsets).astype(np.float32)
        return turned

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
        points, masks, angles = self.points, self.masks, self.angles
        if angles is None:
            # Beyond the picture there is nothing to be seen; turned boxes have their corners elsewhere.
            boxes = np.clip(geometry.back_points(self.boxes.reshape(-1, 2, 2)), 0, np.array(size, np.float32))
        else:
            boxes, angles = upright_boxes(geometry.back_points(self.corners()))
        if points is not None:
            points = np.concatenate([geometry.back_points(points[..., :2]), points[..., 2:]], axis=-1)
        if masks is not None:
            # One by one, and inside of its box: floats of all of them at the picture's size would fill the memory.
            planes, masks = masks, np.zeros((len(self), size[1], size[0]), bool)
            for mask, plane, corners in zip(masks, planes, np.ceil(boxes).astype(int), strict=True):
                columns, rows = (slice(*extent) for extent in corners.T.tolist())
                mask[rows, columns] = geometry.back_map(plane, size, (columns, rows)) > self.mask_threshold
        return replace(self, boxes=boxes.reshape(-1, 4), points=points, masks=masks, angles=angles)

    def facts(self) -> list[dict[str, Any]]:
        """Return plain values for JSON, one mapping per box.

        Angles are in radians, and masks are run lengths as COCO has them: column by column, beginning with the pixels
        outside.
        """
        rows = zip(self.names, self.classes, self.scores, self.boxes, strict=True)
        facts: list[dict[str, Any]] = [
            {"label": name, "class": int(number), "score": _rounded(score, 4), "box": _rounded(box, 2)}
            for name, number, score, box in rows
        ]
        for number, fact in enumerate(facts):
            if self.points is not None:
                # Hundredths of a pixel, and of the score, are more than any network can tell.
                fact["points"] = _rounded(self.points[number], 2)
            if self.point_labels:
                fact["points"] = dict(zip(self.point_labels, fact["points"], strict=True))
            if self.angles is not None:
                fact["angle"] = _rounded(self.angles[number], 4)
            if self.tracks is not None:
                fact["track"] = int(self.tracks[number])
            if self.masks is not None:
                fact["mask"] = run_lengths(self.masks[number])
            fact |= {name: values[number].facts() for name, values in self.attributes.items()}
        return facts

    @property
    def point_labels(self) -> Sequence[str]:
        """Names of the key points; empty if unknown."""
        count = 0 if self.points is None else self.points.shape[1]
        names = self.point_names or (COCO_POINTS if count == len(COCO_POINTS) else ())
        return names if len(names) == count else ()

    def summary(self) -> str:
        """Return one line for people."""
        rows = zip(self.names, self.scores, self.boxes, strict=True)
        texts = (f"{name} {score:.2f} [{' '.join(f'{value:.0f}' for value in box)}]" for name, score, box in rows)
        return ", ".join(texts) or "nothing"


def upright_boxes(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return boxes and angles of corners, of which a stretched picture leaves no right angles."""
    centres, across, down = corners.mean(1), corners[:, 1] - corners[:, 0], corners[:, 3] - corners[:, 0]
    halves = np.stack([np.linalg.norm(side, axis=-1) for side in (across, down)], axis=-1) / 2
    boxes = np.concatenate([centres - halves, centres + halves], axis=-1).astype(np.float32)
    return boxes, np.arctan2(across[:, 1], across[:, 0]).astype(np.float32)


def _rounded(values: Any, digits: int) -> Any:
    return np.round(np.asarray(values, np.float64), digits).tolist()


def run_lengths(mask: np.ndarray) -> dict[str, Any]:
    """Return a mask's size and run lengths, as COCO has them."""
    flags = np.pad(mask.T.reshape(-1), 1)
    ends = np.flatnonzero(flags[1:] != flags[:-1])
    # Zero pixels outside begin a mask whose first pixel is inside.
    counts = np.diff(ends, prepend=0, append=mask.size)
    return {"size": list(mask.shape), "counts": counts[: len(counts) - (counts[-1] == 0)].tolist()}


@dataclass(frozen=True)
class Classes:
    """Best classes of a picture, by descending score."""

    classes: np.ndarray
    """int64 [K]."""
    scores: np.ndarray
    """float32 [K]."""
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
        return [{"label": name, "class": int(number), "score": _rounded(score, 4)} for name, number, score in rows]

    def summary(self) -> str:
        """Return one line for people."""
        return ", ".join(f"{name} {score:.2f}" for name, score in zip(self.names, self.scores, strict=True))


@dataclass(frozen=True)
class Mask:
    """Class of each pixel."""

    classes: np.ndarray | None
    """uint8 [height, width] of the picture; of a decoder, at any size over the model's input, or None beside `scores`.
    """
    scores: np.ndarray | None = None
    """float32 [classes, height, width] or [1, height, width] over the model's input; only a decoder's."""
    labels: Sequence[str] = ()
    threshold: float = 0.5
    """Of a single score: larger ones are class 1."""

    def to_picture(self, geometry: Geometry, size: tuple[int, int]) -> Mask:
        """Return the mask at a picture's size."""
        if self.scores is None:
            classes = None if self.classes is None else geometry.back_map(self.classes, size, nearest=True)
            return replace(self, classes=classes)
        best = geometry.back_map(self.scores[0], size)
        classes = (best > self.threshold if len(self.scores) == 1 else np.zeros(best.shape)).astype(np.uint8)
        # Class by class: floats of all of them at the picture's size would fill the memory.
        for number, scores in enumerate(self.scores[1:], start=1):
            plane = geometry.back_map(scores, size)
            classes[plane > best] = number
            np.maximum(plane, best, out=best)
        return replace(self, classes=classes, scores=None)

    def facts(self) -> list[dict[str, Any]]:
        """Return plain values for JSON, one mapping per class: its pixels, and their run lengths."""
        shares = self.shares()
        if self.classes is None:
            return []
        return [
            {
                "label": label(self.labels, number),
                "class": number,
                "pixels": round(share * self.classes.size),
                "mask": run_lengths(self.classes == number),
            }
            for number, share in shares.items()
        ]

    def shares(self) -> dict[int, float]:
        """Return the share of the picture's pixels of each class, the largest first."""
        if self.classes is None or not self.classes.size:
            return {}
        counts = np.bincount(self.classes.reshape(-1))
        order = np.argsort(-counts, kind="stable")
        return {int(number): float(counts[number] / self.classes.size) for number in order if counts[number]}

    def summary(self) -> str:
        """Return one line for people."""
        return ", ".join(f"{label(self.labels, number)} {share:.0%}" for number, share in self.shares().items())


@dataclass(frozen=True)
class Text:
    """Read text."""

    text: str
    score: float
    """Mean score of its characters, from 0 to 1."""

    def to_picture(self, geometry: Geometry, size: tuple[int, int]) -> Text:  # noqa: ARG002 - one interface
        """Return the same text, which has no position."""
        return self

    def facts(self) -> list[dict[str, Any]]:
        """Return plain values for JSON."""
        return [{"text": self.text, "score": _rounded(self.score, 4)}]

    def summary(self) -> str:
        """Return one line for people."""
        return f"{self.text!r} {self.score:.2f}"


@dataclass(frozen=True)
class FrameResults:
    """Results of several models on one picture."""

    parts: Mapping[str, Detections | Classes | Mask | Text]
    """By the name of the model."""

    def facts(self) -> dict[str, Any]:
        """Return plain values for JSON, by the name of the model."""
        return {name: part.facts() for name, part in self.parts.items()}

    def summary(self) -> str:
        """Return one line for people."""
        return "; ".join(f"{name}: {part.summary()}" for name, part in self.parts.items())


Result = Detections | Classes | Mask | Text
