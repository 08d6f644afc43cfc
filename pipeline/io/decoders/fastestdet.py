"""FastestDet: one map of an objectness, a box and scores of classes.

By dog-qiuqiu/FastestDet: centres lie at most a cell beside theirs, sizes are fractions of the input.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface, check_labels, mismatch
from pipeline.io.decoders.grid import corners, grid_cells
from pipeline.io.decoders.suppression import BoxParameters, Fraction, best_boxes, best_classes
from pipeline.io.results import Result

_FIELDS = 5
"""Numbers of a cell before its classes: objectness, x, y, width, height."""

_STRIDE = 16


class FastestDetParameters(BoxParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of FastestDet."""

    score: Fraction = 0.65
    agnostic: bool = True


def _fits(interface: ModelInterface) -> bool:
    width, height = interface.size
    shape = interface.outputs[0].shape
    return (
        len(interface.outputs) == 1
        and width > 0
        and len(shape) == 4
        and shape[1] > _FIELDS
        and (shape[2] * _STRIDE, shape[3] * _STRIDE) == (height, width)
    )


def make(interface: ModelInterface, parameters: FastestDetParameters) -> Decode:
    """Return the decoder of a model."""
    if not _fits(interface):
        wanted = [1, "5 + classes", *(extent // _STRIDE for extent in interface.size[::-1])]
        raise mismatch("fastestdet", f"[{', '.join(map(str, wanted))}]", interface)
    check_labels(interface, interface.outputs[0].shape[1] - _FIELDS, interface.outputs[0].name)
    name, size = interface.outputs[0].name, np.array(interface.size, np.float32)
    cells, _ = grid_cells(interface.size, (_STRIDE,))

    def decode(outputs: Mapping[str, np.ndarray]) -> Result:
        # 1. The best class of each cell; quantised scores may lie below zero.
        rows = outputs[name].reshape(-1, cells.shape[1])
        numbers, classes, scores = best_classes(rows[_FIELDS:], 0.0)
        scores = np.maximum(rows[0, numbers], 0) ** 0.6 * scores**0.4
        # 2. Boxes of those above the threshold.
        above = scores > parameters.score
        numbers, classes, scores = numbers[above], classes[above], scores[above]
        x, y = (np.tanh(rows[1:3, numbers]) + cells[:, numbers]) * _STRIDE
        # The sigmoid, by the hyperbolic tangent, which does not overflow.
        width, height = (0.5 + 0.5 * np.tanh(0.5 * rows[3:_FIELDS, numbers])) * size[:, None]
        return best_boxes(corners(x, y, width, height), scores, classes, parameters, interface)[0]

    return decode


def recognise(interface: ModelInterface) -> Guess | None:
    """Recognise one map with a cell of sixteen pixels, and the number of classes."""
    if not _fits(interface):
        return None
    classes = interface.outputs[0].shape[1] - _FIELDS
    reason = f"its output {list(interface.outputs[0].shape)} has 5 numbers and {classes} scores for each 16x16 pixels"
    certain = classes == (len(interface.labels) or 80)
    return Guess(reason, {}, Preparation(channels="bgr", sampling="average"), certain)


FAMILIES = (DecoderFamily("fastestdet", "detect", FastestDetParameters, make, recognise),)
