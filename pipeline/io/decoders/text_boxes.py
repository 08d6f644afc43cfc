"""Text boxes: turned rectangles around lines of text, from a map of probabilities.

By "Real-time Scene Text Detection with Differentiable Binarization", arXiv 1911.08947: the network finds the middle of
a line, which is widened by a share of its area over its circumference.  RapidOCR cuts corners to whole pixels before
and rounds them after, so that its boxes lie up to 1.5 pixels beside.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface
from pipeline.io.decoders.components import hulls, label_runs, ragged_ranges, smallest_rectangles
from pipeline.io.decoders.mask import choose_map, map_shape
from pipeline.io.results import Detections

LABELS = ("text",)

PREPARATION = Preparation(resize="letterbox", margin="corner", channels="bgr", mean=(0.5,), std=(0.5,), fill=0)
"""Preparation by RapidOCR, whose models are PaddleOCR's, but for the margin that a fixed size needs."""

_SMALLEST = 3.0
"""Pixels of a line's height at least, before it is widened."""


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of text boxes, with RapidOCR's defaults."""

    threshold: float = 0.3
    """Probability of a pixel inside of text."""
    score: float = 0.5
    """Mean probability of a box."""
    unclip: float = 1.6
    """Share of area over circumference by which boxes are widened."""
    dilate: bool = True
    """True to join pixels with their right and lower neighbours."""
    limit: int = 1000
    """Boxes of a picture."""
    output: str = ""
    """Name of the output with the map; the first that looks like it by default."""


def _make(interface: ModelInterface, parameters: Parameters) -> Decode:
    name, shape = choose_map(interface, parameters.output)
    labels = tuple(interface.labels) or LABELS
    scale = np.array([interface.size[0] / shape.width, interface.size[1] / shape.height])

    def decode(outputs: Mapping[str, np.ndarray]) -> Detections:
        plane = shape.planes(np.asarray(outputs[name], np.float32))[0]
        centres, sizes, angles, scores = _find(plane, parameters)
        # Widened by the same distance on all sides.
        sizes = sizes + 2 * parameters.unclip * (sizes.prod(1) / (2 * sizes.sum(1)))[:, None]
        order = np.argsort(-scores, kind="stable")[: parameters.limit]
        centres, halves = (centres * scale)[order], (sizes * scale)[order] / 2
        boxes = np.concatenate([centres - halves, centres + halves], axis=1).astype(np.float32)
        classes = np.zeros(len(order), np.int64)
        return Detections(boxes, scores[order], classes, labels, angles=angles[order].astype(np.float32))

    return decode


def _find(plane: np.ndarray, parameters: Parameters) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return centres, sizes, angles and scores of rectangles in cells of the map."""
    mask = plane > parameters.threshold
    if parameters.dilate:
        padded = np.pad(mask, ((1, 0), (1, 0)))
        mask = padded[1:, 1:] | padded[:-1, 1:] | padded[1:, :-1] | padded[:-1, :-1]
    if not mask.any():
        return np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0), np.zeros(0, np.float32)
    centres, sizes, angles = smallest_rectangles(*hulls(*label_runs(mask)))
    large = sizes.min(1) >= _SMALLEST
    centres, sizes, angles = centres[large], sizes[large], angles[large]
    scores = _mean_inside(plane, centres, sizes, angles)
    found = scores >= parameters.score
    return centres[found], sizes[found], angles[found], scores[found].astype(np.float32)


def _mean_inside(plane: np.ndarray, centres: np.ndarray, sizes: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """Return the mean over the pixels of each rectangle, its outline included, as OpenCV fills polygons."""
    # 1. Corners in a round, at whole pixels.
    boxes = np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1)
    corners = Detections(boxes, boxes[:, 0], boxes[:, 0], angles=angles).corners()
    corners = np.trunc(np.clip(corners, 0, np.array(plane.shape[::-1]) - 1.0)).astype(np.float64)
    # 2. Rows of all rectangles, and on each the columns on the inner side of all four edges.
    rows, owners = ragged_ranges(corners[..., 1].min(1).astype(int), corners[..., 1].max(1).astype(int) + 1)
    low, high = corners[..., 0].min(1)[owners], corners[..., 0].max(1)[owners]
    for start, end in zip(corners.swapaxes(0, 1), np.roll(corners, -1, axis=1).swapaxes(0, 1), strict=True):
        (across, down), begin = (end - start)[owners].T, start[owners]
        # Half a pixel further: lines are drawn to the nearest one.
        reach = across * (rows - begin[:, 1]) + np.abs(end - start).max(1)[owners] / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = begin[:, 0] + reach / down
        high = np.where(down > 0, np.minimum(high, bound), high)
        low = np.where(down < 0, np.maximum(low, bound), low)
    # 3. Sums between them, as differences of running sums.
    first, last = np.ceil(low).astype(int), np.floor(high).astype(int) + 1
    sums = np.pad(np.cumsum(plane, axis=1, dtype=np.float64), ((0, 0), (1, 0)))
    last = np.maximum(first, last)
    totals = np.bincount(owners, sums[rows, last] - sums[rows, first], len(centres))
    counts = np.bincount(owners, last - first, len(centres))
    means: np.ndarray = totals / np.maximum(counts, 1)
    return means


def _recognise(interface: ModelInterface) -> Guess | None:
    if len(interface.outputs) != 1:
        return None
    output = interface.outputs[0]
    shape = map_shape(output.shape, interface.size)
    if shape is None or shape.channels != 1 or not output.dtype.startswith("float"):
        return None
    # Sizes of DB's networks are multiples of 32.
    if any(extent % 32 for extent in interface.size):
        return None
    certain = output.name.startswith("sigmoid_")
    # DB's exports have channels first: a TFLite model's map with channels last is rather a mask.
    if shape.last and not certain:
        return None
    name = f", with the name {output.name!r} of PaddlePaddle's exporter" if certain else ""
    reason = f"its only output {list(output.shape)} has a score for each pixel{name}"
    return Guess(reason, {}, PREPARATION, certain)


FAMILIES = (DecoderFamily("text-boxes", "obb", Parameters, _make, _recognise),)
