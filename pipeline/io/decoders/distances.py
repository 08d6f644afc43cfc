"""Distances: boxes as distributions of the distances from a cell to their sides.

Generalised focal loss, arXiv 2006.04388, as NanoDet (RangiLyu/nanodet) and PicoDet (PaddleDetection) have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import msgspec
import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface, check_labels, mismatch
from pipeline.io.decoders.grid import count_cells, grid_cells, mean_distances
from pipeline.io.decoders.suppression import BoxParameters, Fraction, best_boxes, best_classes
from pipeline.io.results import Result

_PLUS = Preparation(
    mean=(103.53, 116.28, 123.675), std=(57.375, 57.12, 58.395), channels="bgr", scale=255, fill=0, sampling="opencv"
)
_NANODET = msgspec.structs.replace(_PLUS, resize="letterbox")
_PICODET = Preparation(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), sampling="opencv")

_Specs = Sequence[TensorSpec]


class DistanceParameters(BoxParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of NanoDet-Plus."""

    score: Fraction = 0.35
    iou: Fraction = 0.6
    strides: tuple[int, ...] = (8, 16, 32, 64)
    """Pixels between the cells of each level."""
    offset: float = 0.0
    """Position in a cell that distances count from: 0 for its corner, 0.5 for its middle."""
    bins: int = 8
    """Values of a distribution: distances of 0, 1, 2, ... strides."""


class NanoDetParameters(DistanceParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of NanoDet."""

    strides: tuple[int, ...] = (8, 16, 32)
    offset: float = 0.5


class PicoDetParameters(DistanceParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of PicoDet."""

    offset: float = 0.5


def _pair_outputs(interface: ModelInterface, parameters: DistanceParameters) -> tuple[_Specs, _Specs] | None:
    """Return the outputs of scores and of distances by level, the same one where it has both, or None."""
    counts = [count_cells(interface.size, (stride,)) for stride in parameters.strides if min(interface.size) > 0]
    width = 4 * parameters.bins
    specs = interface.outputs
    # No picture goes into it, or a number comes out.
    if not counts or not all(spec.shape for spec in specs):
        return None
    if len(specs) == 1:
        fits = prod(specs[0].shape[:-1]) == sum(counts) and specs[0].shape[-1] > width
        return (specs, specs) if fits else None
    levels = [[spec for spec in specs if prod(spec.shape[:-1]) == count] for count in counts]
    if 2 * len(levels) != len(specs) or any(len(level) != 2 for level in levels):
        return None
    # Scores come first where there are as many classes as numbers of distributions.
    scores, distances = zip(*(sorted(level, key=lambda spec: spec.shape[-1] == width) for level in levels), strict=True)
    fits = len({spec.shape[-1] for spec in scores}) == 1 and {spec.shape[-1] for spec in distances} == {width}
    return (scores, distances) if fits else None


def _make(family: str) -> Callable[[ModelInterface, DistanceParameters], Decode]:
    def make(interface: ModelInterface, parameters: DistanceParameters) -> Decode:
        pairs = _pair_outputs(interface, parameters)
        if pairs is None:
            counts = [count_cells(interface.size, (stride,)) for stride in parameters.strides]
            texts = ", ".join(f"[1, {count}, classes] and [1, {count}, {4 * parameters.bins}]" for count in counts)
            wanted = f"{texts}, or [1, {sum(counts)}, classes + {4 * parameters.bins}]"
            raise mismatch(family, wanted, interface)
        classes = pairs[0][0].shape[-1] - (4 * parameters.bins if pairs[0] is pairs[1] else 0)
        check_labels(interface, classes, pairs[0][0].name)
        cells, strides = grid_cells(interface.size, parameters.strides)
        places = (cells + parameters.offset) * strides
        extent = np.array(interface.size * 2, np.float32)

        def decode(outputs: Mapping[str, np.ndarray]) -> Result:
            scores, values = (
                np.concatenate([outputs[spec.name].reshape(-1, spec.shape[-1]) for spec in specs]) for specs in pairs
            )
            scores = scores[:, : -4 * parameters.bins] if pairs[0] is pairs[1] else scores
            numbers, classes, scores = best_classes(scores.T, parameters.score)
            logits = values[numbers, -4 * parameters.bins :].reshape(-1, 4, parameters.bins)
            sides = mean_distances(logits) * strides[numbers, None]
            centres = places[:, numbers].T
            boxes = np.hstack([centres - sides[:, :2], centres + sides[:, 2:]])
            return best_boxes(boxes.clip(0, extent), scores, classes, parameters, interface)[0]

        return decode

    return make


def _family(
    name: str, parameters: type[DistanceParameters], preparation: Preparation, *, single: bool = False
) -> DecoderFamily:
    defaults = parameters()

    def recognise(interface: ModelInterface) -> Guess | None:
        pairs = _pair_outputs(interface, defaults)
        named = interface.outputs[0].name.startswith("cls_pred_stride")
        if pairs is None or (len(interface.outputs) == 1 or named) != single:
            return None
        classes = pairs[0][0].shape[-1] - (4 * defaults.bins if pairs[0] is pairs[1] else 0)
        strides = ", ".join(map(str, defaults.strides))
        reason = f"its outputs have {classes} scores and 4 distributions for each cell of strides {strides}"
        return Guess(reason, {}, preparation, not single or named or classes == (len(interface.labels) or 80))

    return DecoderFamily(name, "detect", parameters, _make(name), recognise)


FAMILIES = (
    _family("nanodet", NanoDetParameters, _NANODET),
    _family("nanodet-plus", DistanceParameters, _PLUS, single=True),
    _family("picodet", PicoDetParameters, _PICODET),
)
