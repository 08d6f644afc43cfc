"""Crops: parts of a picture as frames of their own, and their results back in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.errors import InputError
from pipeline.io.decoders.suppression import suppress
from pipeline.io.results import Detections, Result, upright_boxes


def upright_angle(points: np.ndarray, upright: str) -> float:
    """Return the turn after which the second of two points is above the first."""
    try:
        below, above = (points[int(number), :2] for number in upright.split("-"))
    except (ValueError, IndexError):
        raise InputError(f"upright is {upright!r}; it must be two of {len(points)} key points, such as '0-9'") from None
    step = above - below
    # Up is against the y axis.
    return float(math.atan2(step[0], -step[1]))


def concatenate(parts: Sequence[Detections]) -> Detections:
    """Return the detections of several results as one."""
    first = parts[0]
    names = ("boxes", "scores", "classes", "points", "angles", "tracks")
    columns: dict[str, Any] = {name: [getattr(part, name) for part in parts] for name in names}
    if first.angles is None and any(part.angles is not None for part in parts):
        columns["angles"] = [np.zeros(len(part), np.float32) if part.angles is None else part.angles for part in parts]
    joined: dict[str, Any] = {
        name: np.concatenate(values) if all(value is not None for value in values) else None
        for name, values in columns.items()
    }
    return replace(first, masks=None, attributes={}, **joined)


LARGEST = 512
"""Pixels per side of a turned crop, at most: models take hardly more, and sampling costs by the pixel."""


@dataclass(frozen=True)
class Region:
    """A part of a picture, maybe turned."""

    # Its centre in pixels.
    x: float
    y: float
    width: float
    height: float
    angle: float = 0.0
    """Radians by which it is turned, clockwise."""
    row: int = -1
    """Row of the box that it is of."""

    def bounds(self, size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Return left, top, right and bottom in whole pixels inside of a picture."""
        left, top = math.floor(self.x - self.width / 2), math.floor(self.y - self.height / 2)
        right, bottom = math.ceil(self.x + self.width / 2), math.ceil(self.y + self.height / 2)
        left, top = min(max(left, 0), size[0] - 1), min(max(top, 0), size[1] - 1)
        return left, top, max(min(right, size[0]), left + 1), max(min(bottom, size[1]), top + 1)


@dataclass(frozen=True)
class Crop:
    """A crop, with the way back of its points."""

    picture: np.ndarray
    """uint8 [height, width, 3]."""
    origin: np.ndarray
    """Position of its corner in the source's picture."""
    axes: np.ndarray
    """Rows: steps in the source's picture for a pixel to the right, and one down."""
    angle: float
    row: int
    """Row of the box that it is of."""

    def points(self, points: np.ndarray) -> np.ndarray:
        """Map points [..., x, y] of the crop into the source's picture."""
        mapped: np.ndarray = points @ self.axes.astype(np.float32) + self.origin.astype(np.float32)
        return mapped


def box_regions(
    boxes: Detections, rows: Sequence[int], *, margin: float = 0.0, square: bool = False, upright: str = ""
) -> list[Region]:
    """Return the regions of boxes, with margins, squared, and turned as asked."""
    regions = []
    for row in rows:
        left, top, right, bottom = (float(value) for value in boxes.boxes[row])
        width, height = (right - left) * (1 + 2 * margin), (bottom - top) * (1 + 2 * margin)
        if square:
            width = height = max(width, height)
        angle = 0.0 if boxes.angles is None else float(boxes.angles[row])
        if upright and boxes.points is not None:
            angle = upright_angle(boxes.points[row], upright)
        regions.append(Region((left + right) / 2, (top + bottom) / 2, width, height, angle, row))
    return regions


def tile_regions(size: tuple[int, int], tile: tuple[int, int], overlap: float) -> list[Region]:
    """Return tiles that cover a picture, evenly spread, whose neighbours share at least `overlap` of their sides."""
    starts = [_starts(extent, side, overlap) for extent, side in zip(size, tile, strict=True)]
    width, height = (min(extent, side) for extent, side in zip(size, tile, strict=True))
    return [Region(left + width / 2, top + height / 2, width, height) for top in starts[1] for left in starts[0]]


def _starts(extent: int, side: int, overlap: float) -> list[int]:
    if extent <= side:
        return [0]
    count = math.ceil((extent - side) / (side * (1 - overlap))) + 1
    return [round(number * (extent - side) / (count - 1)) for number in range(count)]


def cut(picture: np.ndarray, region: Region) -> Crop:
    """Return the crop of a region from a picture of uint8 [height, width, 3].

    Parts outside of the picture are left out; those of a turned region show the pixels of the edge.
    """
    if not all(map(math.isfinite, (region.x, region.y, region.width, region.height, region.angle))):
        # A network that diverged; the smallest crop stands for it, so that rows and results match.
        region = Region(0, 0, 1, 1, row=region.row)
    if region.angle:
        return _cut_turned(picture, region)
    left, top, right, bottom = region.bounds((picture.shape[1], picture.shape[0]))
    return Crop(picture[top:bottom, left:right], np.array([left, top], np.float64), np.eye(2), 0.0, region.row)


def _cut_turned(picture: np.ndarray, region: Region) -> Crop:
    """Return a turned crop by bilinear interpolation."""
    shrink = max(1.0, region.width / LARGEST, region.height / LARGEST)
    columns, rows = (max(1, round(extent / shrink)) for extent in (region.width, region.height))
    cosine, sine = math.cos(region.angle), math.sin(region.angle)
    axes = np.array([[cosine, sine], [-sine, cosine]]) * [[region.width / columns], [region.height / rows]]
    origin = np.array([region.x, region.y]) - np.array([columns, rows]) / 2 @ axes
    grid = np.stack(np.meshgrid(np.arange(columns) + 0.5, np.arange(rows) + 0.5), axis=-1)
    # Centres of pixels lie half a pixel behind their beginnings.
    places = (grid @ axes + origin - 0.5).clip(0, [picture.shape[1] - 1, picture.shape[0] - 1])
    corner = np.minimum(places.astype(np.intp), [max(picture.shape[1] - 2, 0), max(picture.shape[0] - 2, 0)])
    shares = (places - corner).astype(np.float32)[..., None, :]
    x, y = corner[..., 0], corner[..., 1]
    right, below = np.minimum(x + 1, picture.shape[1] - 1), np.minimum(y + 1, picture.shape[0] - 1)
    above_row = picture[y, x] * (1 - shares[..., 0]) + picture[y, right] * shares[..., 0]
    below_row = picture[below, x] * (1 - shares[..., 0]) + picture[below, right] * shares[..., 0]
    pixels = above_row * (1 - shares[..., 1]) + below_row * shares[..., 1]
    return Crop(np.rint(pixels).astype(np.uint8), origin, axes, region.angle, region.row)


def lift(result: Detections, crop: Crop) -> Detections:
    """Return detections of a crop in the source's picture; masks are left behind."""
    points = result.points
    if points is not None:
        points = np.concatenate([crop.points(points[..., :2]), points[..., 2:]], axis=-1)
    corners = crop.points(result.corners())
    if not crop.angle and result.angles is None:
        boxes = np.concatenate([corners[:, 0], corners[:, 2]], axis=-1)
        return replace(result, boxes=boxes, points=points, masks=None)
    boxes, angles = upright_boxes(corners)
    return replace(result, boxes=boxes, points=points, masks=None, angles=angles)


def join(name: str, boxes: Detections, crops: Sequence[Crop], results: Sequence[Result]) -> Detections:
    """Return one result for the crops of a frame and their boxes.

    Detections of crops come together in the source's picture, with the track of the box that each was found in. Other
    results become attributes of their boxes, under the node's name.
    """
    rows = np.array([crop.row for crop in crops], np.intp)
    if results and all(isinstance(result, Detections) for result in results):
        found = [lift(result, crop) for result, crop in zip(results, crops, strict=True)]  # type: ignore[arg-type]
        counts = [len(result) for result in found]
        tracks = None if boxes.tracks is None else np.repeat(boxes.tracks[rows], counts)
        return replace(concatenate(found), tracks=tracks)
    chosen: Detections = boxes[rows]
    return replace(chosen, attributes={**chosen.attributes, name: tuple(results)})


def merge_tiles(crops: Sequence[Crop], results: Sequence[Result], threshold: float = 0.5) -> Result:
    """Return the detections of tiles without those that neighbours found as well."""
    if not all(isinstance(result, Detections) for result in results):
        raise InputError("only detections of tiles can be merged")
    found = concatenate([lift(result, crop) for result, crop in zip(results, crops, strict=True)])  # type: ignore[arg-type]
    merged: Detections = found[suppress(found.boxes, found.scores, threshold, len(found), found.classes)]
    return merged
