"""BlazeFace and its like: boxes and key points of faces, palms and persons.

Anchors are pixels, and boxes that overlap become their mean.  By "BlazeFace: Sub-millisecond Neural Face Detection on
Mobile GPUs", arXiv 1907.05047, and MediaPipe's graphs of the models.
"""

from __future__ import annotations

import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.io.decoders.anchors import AnchorParameters, anchor_family, lay_anchors
from pipeline.io.decoders.base import DecoderFamily
from pipeline.io.decoders.suppression import Fraction


class BlazeParameters(AnchorParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of BlazeFace and its like.

    Attributes
    ----------
    strides : sequence of int
        Pixels between the cells of each level.
    per_cell : sequence of int
        Anchors of a cell, for each level.
    """

    variances: tuple[float, float] = (1.0, 1.0)
    exponential: bool = False
    sigmoid: bool | None = True
    score: Fraction = 0.5
    iou: Fraction = 0.3
    strides: tuple[int, ...] = (8, 16)
    per_cell: tuple[int, ...] = (2, 6)


def _anchors(size: tuple[int, int], parameters: BlazeParameters) -> np.ndarray:
    pixel = 1 / np.array([size])
    return lay_anchors(size, parameters.strides, [pixel.repeat(count, 0) for count in parameters.per_cell])


def _family(name: str, label: str, points: int, *variants: BlazeParameters, mean: float = 0.5) -> DecoderFamily:
    return anchor_family(
        name,
        _anchors,
        variants or (BlazeParameters(),),
        widths={"boxes": 4 + 2 * points, "scores": 1},
        preparation=Preparation("letterbox", mean=(mean,), std=(1 - mean,), fill=0, sampling="opencv"),
        labels=(label,),
        merge=True,
    )


FAMILIES = (
    # The second one is MediaPipe's for faces far away.
    _family("blazeface", "face", 6, BlazeParameters(), BlazeParameters(strides=(4,), per_cell=(1,))),
    _family("palm", "palm", 7, mean=0.0),
    _family("blazepose", "person", 4, BlazeParameters(strides=(8, 16, 32), per_cell=(2, 2, 6))),
)
