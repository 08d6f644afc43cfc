"""YOLOv5 and YOLOv7: three boxes for each cell, as factors of anchors.

Exports have rows of boxes in pixels (or fractions, in TFLite); models that were cut before that have a map for each
level, which is decoded here: ``xy = 2 s - 0.5 + cell``, ``wh = (2 s)**2 * anchor`` with a sigmoid s.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.decoders import grid
from pipeline.io.decoders.activation import activate, logit
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface, check_labels, mismatch
from pipeline.io.decoders.suppression import best_boxes
from pipeline.io.results import Result

_PER_CELL = 3
_FIELDS = 5
_ANCHORS = (10, 13, 16, 30, 33, 23, 30, 61, 62, 45, 59, 119, 116, 90, 156, 198, 373, 326)


class Yolov5Parameters(grid.GridParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of YOLOv5."""

    anchors: tuple[float, ...] = _ANCHORS
    """Width and height of three anchors in pixels, for each level; only for undecoded maps."""


def make(interface: ModelInterface, parameters: Yolov5Parameters) -> Decode:
    """Return the decoder of a model."""
    rows = _rows(interface)
    if rows is not None:
        check_labels(interface, rows.shape[2] - _FIELDS, rows.name)
        return lambda outputs: _decode_rows(outputs[rows.name][0], interface, parameters)
    maps = _maps(interface, parameters.strides)
    if not maps:
        wanted = (
            f"[1, 3 boxes for {grid.describe_cells(interface, parameters.strides)}, 5 + classes], or a map for each"
        )
        raise mismatch("yolov5", wanted, interface)
    if len(parameters.anchors) != 2 * _PER_CELL * len(maps):
        raise InputError(
            f"the decoder 'yolov5' has {len(parameters.anchors)} numbers of anchors; {len(maps)} strides need "
            f"{2 * _PER_CELL * len(maps)}, width and height of three for each"
        )
    check_labels(interface, maps[0].shape[1] // _PER_CELL - _FIELDS, maps[0].name)
    return _map_decoder(maps, interface, parameters)


def _rows(interface: ModelInterface) -> TensorSpec | None:
    """Return the output with a row for each box; older exports have undecoded maps beside it."""
    fits = (
        output
        for output in interface.outputs
        if len(output.shape) == 3
        and output.shape[2] > _FIELDS
        and grid.match_strides(interface, output.shape[1], _PER_CELL) is not None
    )
    return next(fits, None)


def _maps(interface: ModelInterface, strides: tuple[int, ...]) -> list[TensorSpec]:
    """Return the map [1, 3 * fields, rows, columns] of each level, or none."""
    fits = [output for output in interface.outputs if len(output.shape) == 4 and output.shape[1] % _PER_CELL == 0]
    by_size = {output.shape[2:]: output for output in fits if output.shape[1] > _PER_CELL * _FIELDS}
    sizes = grid.grid_sizes(interface.size, strides)
    return [by_size[size] for size in sizes] if all(size in by_size for size in sizes) else []


def _decode_rows(rows: np.ndarray, interface: ModelInterface, parameters: Yolov5Parameters) -> Result:
    numbers, classes, scores = grid.best_rows(rows, parameters.score)
    boxes = grid.corners(*rows[numbers, :4].T)
    if not grid.in_pixels(parameters, rows[:, 0], 2):
        boxes = boxes * np.array(interface.size * 2, np.float32)
    return best_boxes(boxes, scores, classes, parameters, interface)[0]


def _map_decoder(maps: list[TensorSpec], interface: ModelInterface, parameters: Yolov5Parameters) -> Decode:
    positions, strides = zip(
        *(grid.grid_cells(interface.size, (stride,)) for stride in parameters.strides), strict=True
    )
    # Anchors vary slower than cells.
    cells = np.concatenate([np.tile(position, _PER_CELL) for position in positions], 1).T
    stride = np.concatenate([np.tile(level, _PER_CELL) for level in strides])
    sizes = np.array(parameters.anchors, np.float32).reshape(-1, _PER_CELL, 2)
    anchors = np.concatenate(
        [np.repeat(size, position.shape[1], 0) for size, position in zip(sizes, positions, strict=True)]
    )
    threshold = logit(parameters.score)

    def decode(outputs: Mapping[str, np.ndarray]) -> Result:
        rows = np.concatenate([_level_rows(outputs[spec.name][0]) for spec in maps])
        # Sigmoids only of what can be above the threshold.
        numbers = np.flatnonzero(rows[:, 4] > threshold)
        values = activate(rows[numbers], "sigmoid", 1)
        values[:, :2] = (2 * values[:, :2] - 0.5 + cells[numbers]) * stride[numbers, None]
        values[:, 2:4] = np.square(2 * values[:, 2:4]) * anchors[numbers]
        kept, classes, scores = grid.best_rows(values, parameters.score)
        return best_boxes(grid.corners(*values[kept, :4].T), scores, classes, parameters, interface)[0]

    return decode


def _level_rows(level: np.ndarray) -> np.ndarray:
    """Return a map as rows, by anchor and cell."""
    fields = len(level) // _PER_CELL
    rows: np.ndarray = level.reshape(_PER_CELL, fields, -1).swapaxes(1, 2).reshape(-1, fields)
    return rows


def recognise(interface: ModelInterface) -> Guess | None:
    """Recognise three boxes for each cell."""
    rows = _rows(interface)
    expected = _FIELDS + (len(interface.labels) or 80)
    if rows is not None:
        strides, fields = grid.match_strides(interface, rows.shape[1], _PER_CELL) or (), rows.shape[2]
        reason = f"its output {list(rows.shape)} has three rows for {grid.describe_cells(interface, strides)}"
        # Those with prototypes of masks beside them have further numbers.
        fits = all(len(output.shape) == 5 for output in interface.outputs if output is not rows)
    else:
        strides = Yolov5Parameters().strides
        maps = _maps(interface, strides)
        fields = maps[0].shape[1] // _PER_CELL if maps else 0
        reason = f"its outputs have three times {fields} numbers for {grid.describe_cells(interface, strides)}"
        # Numbers of many maps are multiples of three.
        fits = len(maps) == len(interface.outputs) and fields == expected
    return Guess(reason, {"strides": list(strides)}, grid.ULTRALYTICS, fields == expected) if fits else None


FAMILIES = (DecoderFamily("yolov5", "detect", Yolov5Parameters, make, recognise),)
