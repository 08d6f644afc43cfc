"""SSD: corrections of anchors in several shapes per cell, and scores of classes.

Anchors grow evenly with the level, by "SSD: Single Shot MultiBox Detector", arXiv 1512.02325, as those of MobileNet's
detectors in TensorFlow.  Others, such as EfficientDet's, can be stated.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.io.decoders.anchors import AnchorParameters, anchor_family, lay_anchors
from pipeline.io.decoders.suppression import Fraction


class SsdParameters(AnchorParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of SSD.

    Attributes
    ----------
    strides : sequence of int
        Pixels between the cells of each level.
    scales : (float, float)
        Sizes of the first and the last level's anchors, as fractions.
    ratios : sequence of float
        Widths by heights.
    interpolated : bool
        True for one more anchor, between its own level's size and the next one's.
    reduced : bool
        True if the first level has three anchors only.
    """

    order: Literal["xywh", "yxhw"] = "yxhw"
    background: bool = True
    score: Fraction = 0.4
    iou: Fraction = 0.6
    strides: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    scales: tuple[float, float] = (0.2, 0.95)
    ratios: tuple[float, ...] = (1.0, 2.0, 0.5, 3.0, 1 / 3)
    interpolated: bool = True
    reduced: bool = True


def ssd_anchors(size: tuple[int, int], parameters: SsdParameters) -> np.ndarray:
    """Lay anchors whose size grows evenly with the level."""
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


FAMILIES = (
    anchor_family(
        "ssd",
        ssd_anchors,
        [SsdParameters()],
        widths={"boxes": 4, "scores": None},
        preparation=Preparation(mean=(0.5,), std=(0.5,), sampling="opencv"),
    ),
)
