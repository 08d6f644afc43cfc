"""Prior boxes: face detectors with squares of several sizes per cell.

``ultraface`` (Ultra-Light-Fast-Generic-Face-Detector-1MB) ends in corners of boxes or in corrections, ``retinaface``
(Pytorch_Retinaface) in corrections of boxes and of five points.
"""

from __future__ import annotations

import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.io.decoders.anchors import AnchorParameters, anchor_family, lay_anchors
from pipeline.io.decoders.suppression import Fraction


class PriorParameters(AnchorParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of UltraFace.

    Attributes
    ----------
    strides : sequence of int
        Pixels between the cells of each level.
    sizes : sequence of sequences of float
        Sides of a cell's squares in pixels, for each level.
    """

    background: bool = True
    score: Fraction = 0.7
    iou: Fraction = 0.3
    decoded: bool | None = None
    strides: tuple[int, ...] = (8, 16, 32, 64)
    sizes: tuple[tuple[float, ...], ...] = ((10, 16, 24), (32, 48), (64, 96), (128, 192, 256))


class RetinaFaceParameters(PriorParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of RetinaFace."""

    score: Fraction = 0.6
    iou: Fraction = 0.4
    decoded: bool | None = False
    strides: tuple[int, ...] = (8, 16, 32)
    sizes: tuple[tuple[float, ...], ...] = ((16, 32), (64, 128), (256, 512))


def _squares(size: tuple[int, int], parameters: PriorParameters) -> list[np.ndarray]:
    return [np.array(sides)[:, None] / np.array(size) for sides in parameters.sizes]


def _even_priors(size: tuple[int, int], parameters: PriorParameters) -> np.ndarray:
    # Those larger than the input are cut.
    return lay_anchors(size, parameters.strides, _squares(size, parameters)).clip(0, 1)


def _exact_priors(size: tuple[int, int], parameters: PriorParameters) -> np.ndarray:
    return lay_anchors(size, parameters.strides, _squares(size, parameters), exact=True)


FAMILIES = (
    anchor_family(
        "ultraface",
        _even_priors,
        [PriorParameters()],
        widths={"boxes": 4, "scores": 2},
        preparation=Preparation(mean=(127 / 255,), std=(128 / 255,), sampling="opencv"),
        labels=("face",),
    ),
    anchor_family(
        "retinaface",
        _exact_priors,
        [RetinaFaceParameters()],
        widths={"boxes": 4, "points": 10, "scores": 2},
        preparation=Preparation(
            "letterbox", (104.0, 117.0, 123.0), channels="bgr", scale=255, margin="corner", sampling="opencv"
        ),
        labels=("face",),
    ),
)
