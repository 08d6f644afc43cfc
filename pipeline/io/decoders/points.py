"""Key points: by regression, and by heat maps.

The rule of heat maps is that of "Simple Baselines for Human Pose Estimation and Tracking", arXiv 1804.06208: the
largest cell, and a quarter of a cell towards its larger neighbour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.core.picture_layout import PictureLayout
from pipeline.errors import InputError
from pipeline.io.decoders.activation import activate
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface
from pipeline.io.decoders.mask import choose_map, map_shape
from pipeline.io.results import Detections

LABELS = ("person",)
"""Labels without those of the card: nearly all networks for key points are for people."""

MOVENET = Preparation(resize="letterbox", fill=0, scale=255)
"""Preparation of MoveNet by its own demonstration, `tf.image.resize_with_pad`."""

LEAST_SCORE = 0.2
"""Score of the points within the box of all of them."""

_MOVENET_POINTS = 17
_LARGEST_FRACTION = 2.0
"""Coordinates up to here are fractions of the input; points outside of it are hardly a picture's width away."""


class PointParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of key points by regression."""

    fields: int = 3
    """Numbers of a point in the output."""
    order: str = "xy"
    """The first two: ``"xy"`` or ``"yx"``."""
    score: int = -1
    """Position of a point's score among its numbers; -1 for none. Logits are recognised by their values."""
    unit: str = "auto"
    """``"fraction"`` of the input or ``"pixel"``; ``"auto"`` goes by the values."""
    output: str = ""
    """Name of the output with the points; the first by default."""
    presence: str = ""
    """Name of an output with the score that there is anything, which is the box's in place of the points' mean."""
    least: float = 0.5
    """Score of presence below which there is nothing."""

    def __post_init__(self) -> None:
        choices = {"order": ("xy", "yx"), "unit": ("auto", "fraction", "pixel")}
        for name, words in choices.items():
            if getattr(self, name) not in words:
                raise InputError(f"{name} is {getattr(self, name)!r}; it must be {', '.join(words)}")
        if self.fields < 2 or self.score >= self.fields:
            raise InputError(f"a point has {self.fields} numbers, and its score is number {self.score} of them")


class HeatMapParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of key points by heat maps."""

    output: str = ""
    """Name of the output with a map for each point; the first that looks like it by default."""


def _make_points(interface: ModelInterface, parameters: PointParameters) -> Decode:
    shapes = {output.name: output.shape for output in interface.outputs}
    name = parameters.output or next(iter(shapes))
    for known in (name, parameters.presence or name):
        if known not in shapes:
            raise InputError(f"there is no output {known!r}; there are {', '.join(shapes)}")
    count, rest = divmod(int(np.prod(shapes[name])), parameters.fields)
    if rest or count < 1:
        raise InputError(
            f"the output {name!r} is {list(shapes[name])}, which are no points of {parameters.fields} numbers; give "
            "the decoder 'points' its fields=NUMBER"
        )
    if not all(interface.size):
        raise InputError("the decoder 'points' needs a model that takes one picture")
    labels = tuple(interface.labels) or LABELS

    def decode(outputs: Mapping[str, np.ndarray]) -> Detections:
        rows = np.asarray(outputs[name], np.float32).reshape(-1, parameters.fields)
        points = np.ones((len(rows), 3), np.float32)
        points[:, :2] = rows[:, 1::-1] if parameters.order == "yx" else rows[:, :2]
        is_fraction = parameters.unit == "fraction" or (
            parameters.unit == "auto" and bool(np.abs(points[:, :2]).max() <= _LARGEST_FRACTION)
        )
        if is_fraction:
            points[:, :2] *= np.array(interface.size, np.float32)
        if parameters.score >= 0:
            points[:, 2] = activate(rows[:, parameters.score][None], "auto", 0)[0]
        found = _person(points, labels)
        if not parameters.presence:
            return found
        score = activate(np.asarray(outputs[parameters.presence], np.float32).reshape(1, 1), "auto", 0)[0]
        return replace(found, scores=np.repeat(score, len(found)))[: int(score[0] >= parameters.least)]  # type: ignore[no-any-return]

    return decode


def _make_heat_map(interface: ModelInterface, parameters: HeatMapParameters) -> Decode:
    name, shape = choose_map(interface, parameters.output)
    labels = tuple(interface.labels) or LABELS

    def decode(outputs: Mapping[str, np.ndarray]) -> Detections:
        return _person(_read_maps(shape, np.asarray(outputs[name], np.float32), interface.size), labels)

    return decode


def _read_maps(shape: PictureLayout, array: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the points [K, 3] of heat maps."""
    maps = shape.planes(array)
    numbers = np.arange(len(maps))
    rows, columns = np.divmod(maps.reshape(len(maps), -1).argmax(1), shape.width)
    scores = activate(maps[numbers, rows, columns][None], "auto", 0)[0]
    # At the edge there is only one neighbour, and the point stays.
    around = np.pad(maps, ((0, 0), (1, 1), (1, 1)), mode="reflect")
    right, left = around[numbers, rows + 1, columns + 2], around[numbers, rows + 1, columns]
    below, above = around[numbers, rows + 2, columns + 1], around[numbers, rows, columns + 1]
    # A cell stands for its left top in the input, where training puts the peaks.
    x = (columns + 0.25 * np.sign(right - left)) * size[0] / shape.width
    y = (rows + 0.25 * np.sign(below - above)) * size[1] / shape.height
    return np.stack([x, y, scores], axis=1).astype(np.float32)


def _person(points: np.ndarray, labels: tuple[str, ...]) -> Detections:
    """Return one box around the points that are there, with their mean score."""
    seen = points[points[:, 2] >= LEAST_SCORE]
    # Without a point there is nobody.
    count = int(len(seen) > 0)
    area = points[None, :, :2] if not count else seen[None, :, :2]
    boxes = np.concatenate([area.min(1), area.max(1)], axis=1)[:count].astype(np.float32)
    scores = points[None, :, 2].mean(1)[:count]
    return Detections(boxes, scores, np.zeros(count, np.int64), labels, points[None][:count])


def _recognise_points(interface: ModelInterface) -> Guess | None:
    shape = interface.outputs[0].shape if len(interface.outputs) == 1 else ()
    if tuple(shape) not in ((1, 1, _MOVENET_POINTS, 3), (1, _MOVENET_POINTS, 3)) or not all(interface.size):
        return None
    reason = f"its only output {list(shape)} has y, x and score of COCO's {_MOVENET_POINTS} points, as MoveNet's"
    return Guess(reason, {"fields": 3, "order": "yx", "score": 2, "unit": "fraction"}, MOVENET)


def _recognise_heat_map(interface: ModelInterface) -> Guess | None:
    shape = map_shape(interface.outputs[0].shape, interface.size) if len(interface.outputs) == 1 else None
    # Maps of other sizes are rather masks; heat maps are a half to an eighth of the input.
    if shape is None or shape.channels < 4 or not 2 <= interface.size[0] / shape.width <= 8:
        return None
    reason = f"its only output has {shape.channels} maps of {shape.width}x{shape.height}, smaller than the input"
    return Guess(reason, certain=shape.channels == _MOVENET_POINTS)


FAMILIES = (
    DecoderFamily("points", "pose", PointParameters, _make_points, _recognise_points),
    DecoderFamily("heatmap", "pose", HeatMapParameters, _make_heat_map, _recognise_heat_map),
)
