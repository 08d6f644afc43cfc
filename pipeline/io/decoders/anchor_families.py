"""Families of detectors with anchors, by how these are laid.

``ssd``: in several shapes per cell, which grow evenly with the level, by "SSD: Single Shot MultiBox Detector", arXiv
1512.02325, as those of MobileNet's detectors in TensorFlow; others, such as EfficientDet's, can be stated.
``blazeface``, ``palm`` and ``blazepose``: pixels, and boxes that overlap become their mean, by MediaPipe's graphs.
``ultraface`` (Ultra-Light-Fast-Generic-Face-Detector-1MB) and ``retinaface`` (Pytorch_Retinaface): squares of several
sizes per cell.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Literal

import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.io.decoders.anchors import AnchorParameters, anchor_family, lay_anchors
from pipeline.io.decoders.suppression import Fraction


class SsdParameters(AnchorParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of SSD."""

    order: Literal["xywh", "yxhw"] = "yxhw"
    background: bool = True
    score: Fraction = 0.4
    iou: Fraction = 0.6
    strides: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    scales: tuple[float, float] = (0.2, 0.95)
    """Sizes of the first and the last level's anchors, as fractions."""
    ratios: tuple[float, ...] = (1.0, 2.0, 0.5, 3.0, 1 / 3)
    """Widths by heights."""
    interpolated: bool = True
    """True for one more anchor, between its own level's size and the next one's."""
    reduced: bool = True
    """True if the first level has three anchors only."""


def _grow(size: tuple[int, int], parameters: SsdParameters) -> np.ndarray:
    sizes = [*np.linspace(*parameters.scales, len(parameters.strides)), 1.0]
    shapes = []
    for level, (scale, next_scale) in enumerate(pairwise(sizes)):
        pairs = [(scale, ratio) for ratio in parameters.ratios]
        if parameters.interpolated:
            pairs.append((np.sqrt(scale * next_scale), 1.0))
        if parameters.reduced and not level:
            pairs = [(0.1, 1.0), (scale, 2.0), (scale, 0.5)]
        scales, ratios = np.array(pairs).T
        shapes.append(np.stack([scales * np.sqrt(ratios), scales / np.sqrt(ratios)], 1))
    return lay_anchors(size, parameters.strides, shapes)


class BlazeParameters(AnchorParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of BlazeFace and its like."""

    variances: tuple[float, float] = (1.0, 1.0)
    exponential: bool = False
    sigmoid: bool | None = True
    score: Fraction = 0.5
    iou: Fraction = 0.3
    strides: tuple[int, ...] = (8, 16)
    per_cell: tuple[int, ...] = (2, 6)
    """Anchors of a cell, for each level."""


def _repeat_pixels(size: tuple[int, int], parameters: BlazeParameters) -> np.ndarray:
    pixel = 1 / np.array([size])
    return lay_anchors(size, parameters.strides, [pixel.repeat(count, 0) for count in parameters.per_cell])


class PriorParameters(AnchorParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of UltraFace."""

    background: bool = True
    score: Fraction = 0.7
    iou: Fraction = 0.3
    decoded: bool | None = None
    strides: tuple[int, ...] = (8, 16, 32, 64)
    sizes: tuple[tuple[float, ...], ...] = ((10, 16, 24), (32, 48), (64, 96), (128, 192, 256))
    """Sides of a cell's squares in pixels, for each level."""


class RetinaFaceParameters(PriorParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of RetinaFace."""

    score: Fraction = 0.6
    iou: Fraction = 0.4
    decoded: bool | None = False
    strides: tuple[int, ...] = (8, 16, 32)
    sizes: tuple[tuple[float, ...], ...] = ((16, 32), (64, 128), (256, 512))


def _lay_squares(size: tuple[int, int], parameters: PriorParameters, *, exact: bool = False) -> np.ndarray:
    shapes = [np.array(sides)[:, None] / np.array(size) for sides in parameters.sizes]
    anchors = lay_anchors(size, parameters.strides, shapes, exact=exact)
    # UltraFace cuts those larger than the input.
    return anchors if exact else anchors.clip(0, 1)


_BLAZE = Preparation("letterbox", mean=(0.5,), std=(0.5,), fill=0, sampling="opencv")
_PALM = Preparation("letterbox", fill=0, sampling="opencv")
_ULTRAFACE = Preparation(mean=(127 / 255,), std=(128 / 255,), sampling="opencv")
_RETINAFACE = Preparation(
    "letterbox", (104.0, 117.0, 123.0), channels="bgr", scale=255, margin="corner", sampling="opencv"
)
_blaze_family = partial(anchor_family, rule=_repeat_pixels, merge=True)

FAMILIES = (
    anchor_family(
        "ssd",
        _grow,
        [SsdParameters()],
        widths={"boxes": 4, "scores": None},
        preparation=Preparation(mean=(0.5,), std=(0.5,), sampling="opencv"),
    ),
    _blaze_family(
        "blazeface",
        # The second one is MediaPipe's for faces far away.
        variants=[BlazeParameters(), BlazeParameters(strides=(4,), per_cell=(1,))],
        widths={"boxes": 16, "scores": 1},
        preparation=_BLAZE,
        labels=("face",),
    ),
    _blaze_family(
        "palm",
        variants=[BlazeParameters()],
        widths={"boxes": 18, "scores": 1},
        preparation=_PALM,
        labels=("palm",),
    ),
    _blaze_family(
        "blazepose",
        variants=[BlazeParameters(strides=(8, 16, 32), per_cell=(2, 2, 6))],
        widths={"boxes": 12, "scores": 1},
        preparation=_BLAZE,
        labels=("person",),
    ),
    anchor_family(
        "ultraface",
        _lay_squares,
        [PriorParameters()],
        widths={"boxes": 4, "scores": 2},
        preparation=_ULTRAFACE,
        labels=("face",),
    ),
    anchor_family(
        "retinaface",
        partial(_lay_squares, exact=True),
        [RetinaFaceParameters()],
        widths={"boxes": 4, "points": 10, "scores": 2},
        preparation=_RETINAFACE,
        labels=("face",),
    ),
)
