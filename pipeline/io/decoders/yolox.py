"""YOLOX: rows of a box, an objectness and scores of classes, for each cell of a grid.

Boxes are offsets from their cells and logarithms of sizes, in strides; exports with ``decode_in_inference`` have pixels
instead.  By "YOLOX: Exceeding YOLO Series in 2021", arXiv 2107.08430.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.io.decoders import grid
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface, check_labels, mismatch
from pipeline.io.decoders.suppression import Fraction, best_boxes
from pipeline.io.results import Result

PREPARATION = Preparation(
    resize="letterbox", margin="corner", channels="bgr", scale=255, fill=114, rounding="down", sampling="opencv"
)
"""Preparation by YOLOX's own demonstrations."""

_FIELDS = 5
"""Numbers of a row before its classes: x, y, width, height, objectness."""


class YoloxParameters(grid.GridParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of YOLOX: as in its demonstrations, boxes of all classes suppress one another."""

    score: Fraction = 0.3
    agnostic: bool = True


def make(interface: ModelInterface, parameters: YoloxParameters) -> Decode:
    """Return the decoder of a model."""
    name, shape = interface.outputs[0].name, interface.outputs[0].shape
    count = grid.count_cells(interface.size, parameters.strides)
    if len(shape) != 3 or shape[1] != count or shape[2] <= _FIELDS:
        wanted = f"[1, {count}, 5 + classes] with strides {', '.join(map(str, parameters.strides))}"
        raise mismatch("yolox", wanted, interface)
    check_labels(interface, shape[2] - _FIELDS, name)
    cells, strides = grid.grid_cells(interface.size, parameters.strides)

    def decode(outputs: Mapping[str, np.ndarray]) -> Result:
        rows = outputs[name][0]
        numbers, classes, scores = grid.best_rows(rows, parameters.score)
        x, y, width, height = rows[numbers, :4].T
        if not grid.in_pixels(parameters, rows[:, 0], interface.size[0] / 2):
            stride = strides[numbers]
            x, y = (x + cells[0, numbers]) * stride, (y + cells[1, numbers]) * stride
            with np.errstate(over="ignore"):
                width, height = np.exp(width) * stride, np.exp(height) * stride
        return best_boxes(grid.corners(x, y, width, height), scores, classes, parameters, interface)[0]

    return decode


def recognise(interface: ModelInterface) -> Guess | None:
    """Recognise one output with a row for each cell."""
    if len(interface.outputs) != 1 or len(interface.outputs[0].shape) != 3:
        return None
    _, count, fields = interface.outputs[0].shape
    strides = grid.match_strides(interface, count)
    if strides is None or fields <= _FIELDS:
        return None
    reason = f"its output {list(interface.outputs[0].shape)} has a row for {grid.describe_cells(interface, strides)}"
    # Without labels, 84 are rather the 80 classes of COCO beside a box without an objectness, and a fourth level is
    # rather NanoDet's.
    usual = fields != _FIELDS + 79 and strides == YoloxParameters().strides
    certain = fields == _FIELDS + len(interface.labels) if interface.labels else usual
    return Guess(reason, {"strides": list(strides)}, PREPARATION, certain)


FAMILIES = (DecoderFamily("yolox", "detect", YoloxParameters, make, recognise),)
