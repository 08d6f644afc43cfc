"""Forms of the outputs of YOLOv8 to 12 and YOLO26.

They are three.  *Columns*: x, y, width, height, scores and a task's further numbers for each cell
(pixels; fractions in TFLite).  *Rows*, of end-to-end models: corners, score, class and further numbers of the best
boxes.  *Maps*, of models that were cut earlier: for each level, distances of the box's sides from the cell in strides,
or the distributions of these, and the classes' logits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np

from pipeline.core.plan.plan import TensorSpec
from pipeline.io.decoders import grid
from pipeline.io.decoders.activation import activate, logit
from pipeline.io.decoders.base import ModelInterface, check_labels, mismatch
from pipeline.io.decoders.suppression import BoxParameters, Fraction, best_boxes, best_classes
from pipeline.io.results import Detections

BOX = 4
"""Numbers of a box."""

ROW = 6
"""Numbers of a row before a task's own: corners, score, class."""

BINS = 16
"""Values of a distribution, in all published models."""

_SLACK = 0.01
"""Distance of quantised scores from 0, which their scale may miss."""


class Yolov8Parameters(grid.GridParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of YOLOv8 and its successors."""

    iou: Fraction = 0.7
    bins: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Numbers for each side of a box in maps, 1 or 16; 0 if labels or shapes tell."""


@dataclass(frozen=True)
class Candidates:
    """Boxes above the threshold, before suppression."""

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray
    """Boxes by their corners, of turned ones before they are turned. Arrays [N, 4], [N], [N]."""
    extras: np.ndarray
    """A task's further numbers. Array [N, extras]."""
    scale: tuple[int, int]
    """Pixels for one unit of the model's positions."""
    final: bool = False
    """True if the model has suppressed boxes itself."""

    def detections(self, parameters: BoxParameters, interface: ModelInterface) -> tuple[Detections, np.ndarray]:
        """Return the detections after suppression, and their further numbers."""
        result, numbers = best_boxes(
            self.boxes, self.scores, self.classes, parameters, interface, suppressed=self.final
        )
        return result, self.extras[numbers]


Reader = Callable[[Mapping[str, np.ndarray]], Candidates]


def flat_output(interface: ModelInterface) -> TensorSpec | None:
    """Return the output with columns or rows, if there is one."""
    flat = [output for output in interface.outputs if len(output.shape) == 3]
    return flat[0] if len(flat) == 1 else None


def columns_first(interface: ModelInterface, output: TensorSpec, extras: int) -> bool | None:
    """Test for columns [1, numbers, cells], true, or [1, cells, numbers], false; None for rows of boxes."""
    _, first, last = output.shape
    if grid.match_strides(interface, last) is not None:
        return True
    # Small pictures have fewer cells than end-to-end models have boxes.
    rows = last == ROW + extras and len(interface.labels) != ROW - BOX
    return None if rows or grid.match_strides(interface, first) is None else False


def make_reader(
    family: str, interface: ModelInterface, parameters: Yolov8Parameters, extras: int = 0, *, centres: bool = False
) -> Reader:
    """Return the reader of a model's form, or raise `InputError` that names the family.

    A box has `extras` further numbers. Rows have centres and sizes in place of corners if `centres` is True.
    """
    output = flat_output(interface)
    if output is not None:
        name, form = output.name, columns_first(interface, output, extras)
        if form is not None and output.shape[1 if form else 2] > BOX + extras:
            check_labels(interface, output.shape[1 if form else 2] - BOX - extras, name)
            return lambda outputs: _read_columns(
                outputs[name][0] if form else outputs[name][0].T, interface, parameters, extras
            )
        if form is None and output.shape[2] == ROW + extras:
            return lambda outputs: _read_rows(outputs[name][0], interface, parameters, centres=centres)
    levels = find_levels(interface, parameters)
    if levels and not extras:
        check_labels(interface, levels[0].classes, interface.outputs[0].name)
        return _map_reader(levels, interface, parameters)
    further = f" + {extras}" if extras else ""
    wanted = (
        f"[1, 4 + classes{further}, {grid.describe_cells(interface, parameters.strides)}] or [1, boxes, 6{further}]"
    )
    raise mismatch(family, wanted, interface)


def _read_columns(head: np.ndarray, interface: ModelInterface, parameters: Yolov8Parameters, extras: int) -> Candidates:
    end = len(head) - extras
    cells, classes, scores = best_classes(head[BOX:end], parameters.score)
    scale = _scale(interface, pixels=grid.in_pixels(parameters, head[0], 2))
    return Candidates(_scaled(grid.corners(*head[:BOX, cells]), scale), scores, classes, head[end:, cells].T, scale)


def _read_rows(
    rows: np.ndarray, interface: ModelInterface, parameters: Yolov8Parameters, *, centres: bool
) -> Candidates:
    scale = _scale(interface, pixels=grid.in_pixels(parameters, rows[:, :BOX], 2))
    rows = rows[rows[:, 4] > parameters.score]
    boxes = grid.corners(*rows[:, :BOX].T) if centres else rows[:, :BOX]
    return Candidates(_scaled(boxes, scale), rows[:, 4], rows[:, 5].astype(np.int64), rows[:, ROW:], scale, final=True)


def _scale(interface: ModelInterface, *, pixels: bool) -> tuple[int, int]:
    return (1, 1) if pixels else interface.size


def _scaled(boxes: np.ndarray, scale: tuple[int, int]) -> np.ndarray:
    return boxes if scale == (1, 1) else boxes * np.array(scale * 2, np.float32)


@dataclass(frozen=True)
class Level:
    """Maps of one stride: the box's and the scores', or one of both; `bins` numbers are for each side of a box."""

    stride: int
    size: tuple[int, int]
    maps: tuple[TensorSpec, ...]
    bins: int
    classes: int

    def planes(self, outputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the box's numbers and the classes' scores, [numbers, cells] each."""
        arrays = [outputs[spec.name][0] for spec in self.maps]
        arrays = [array if array.shape[1:] == self.size else array.transpose(2, 0, 1) for array in arrays]
        first, *rest = (array.reshape(len(array), -1) for array in arrays)
        end = BOX * self.bins
        return first[:end], rest[0] if rest else first[end:]


def find_levels(interface: ModelInterface, parameters: Yolov8Parameters) -> list[Level]:
    """Return the maps of each level, or an empty list."""
    levels = []
    for stride, size in zip(parameters.strides, grid.grid_sizes(interface.size, parameters.strides), strict=True):
        maps = {
            spec: spec.shape[1] if spec.shape[2:] == size else spec.shape[3]
            for spec in interface.outputs
            if len(spec.shape) == 4 and size in (spec.shape[2:], spec.shape[1:3])
        }
        if not maps:
            return []
        # The box's map first; behind the classes' there may be one of the sums of their scores.
        sides, *rest = sorted(maps, key=lambda spec: maps[spec] not in (BOX, BOX * BINS))
        classes = maps[rest[0]] if rest else len(interface.labels) or maps[sides] - BOX * BINS
        numbers = maps[sides] if rest else maps[sides] - classes
        bins = parameters.bins or numbers // BOX
        classes = classes if rest else maps[sides] - BOX * bins
        if bins < 1 or classes < 1 or (rest and numbers != BOX * bins):
            return []
        levels.append(Level(stride, size, (sides, *rest[:1]), bins, classes))
    return levels


def _map_reader(levels: list[Level], interface: ModelInterface, parameters: Yolov8Parameters) -> Reader:
    cells = [grid.grid_cells(interface.size, (level.stride,))[0] + np.float32(0.5) for level in levels]

    def read(outputs: Mapping[str, np.ndarray]) -> Candidates:
        planes = [level.planes(outputs) for level in levels]
        # Some exporters leave the sigmoid in the model. The last level is the smallest.
        logits = bool((planes[-1][1] < -_SLACK).any())
        parts = []
        for level, centres, (sides, scores) in zip(levels, cells, planes, strict=True):
            numbers, classes, best = best_classes(scores, logit(parameters.score) if logits else parameters.score)
            distances = sides[:, numbers]
            if level.bins > 1:
                distances = grid.mean_distances(distances.reshape(BOX, level.bins, -1).swapaxes(1, 2))
            centre = centres[:, numbers]
            boxes = np.concatenate([centre - distances[:2], centre + distances[2:]]).T * np.float32(level.stride)
            parts.append((boxes, activate(best, "sigmoid" if logits else "none", 0), classes))
        boxes, best, classes = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Candidates(boxes, best, classes, np.empty((len(best), 0), np.float32), _scale(interface, pixels=True))

    return read
