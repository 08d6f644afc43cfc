"""YOLOv8 to 12 and YOLO26: a box and scores of classes for each cell, without anchors.

Their relatives for masks ("YOLACT", arXiv 1904.02689: sums of prototypes), key points and turned boxes have further
numbers for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface, mismatch
from pipeline.io.decoders.grid import ULTRALYTICS, describe_cells, match_strides
from pipeline.io.decoders.suppression import make_detections
from pipeline.io.decoders.turned_boxes import suppress_all, turned_overlap
from pipeline.io.decoders.yolov8_forms import (
    BINS,
    BOX,
    ROW,
    Yolov8Parameters,
    columns_first,
    find_levels,
    flat_output,
    make_reader,
)
from pipeline.io.results import Result

_COCO = 80
_USUAL: dict[int, dict[str, dict[str, Any]]] = {
    _COCO: {"yolov8": {}},
    52: {"yolov8-pose": {"points": [17, 3]}},
    16: {"yolov8-obb": {}},
}
"""Tasks by the numbers behind a box, of the models published for COCO and DOTA."""


class PoseParameters(Yolov8Parameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of key points."""

    points: tuple[int, int] = (17, 3)
    """Number of points, and numbers of a point: 2, or 3 with a score."""


def make(interface: ModelInterface, parameters: Yolov8Parameters) -> Decode:
    """Return the decoder of boxes."""
    read = make_reader("yolov8", interface, parameters)
    return lambda outputs: read(outputs).detections(parameters, interface)[0]


def make_masks(interface: ModelInterface, parameters: Yolov8Parameters) -> Decode:
    """Return the decoder of boxes with masks."""
    prototypes = find_prototypes(interface)
    if prototypes is None:
        raise mismatch("yolov8-seg", "an output of boxes and one of prototypes [1, 32, height, width]", interface)
    spec, last = prototypes
    read = make_reader("yolov8-seg", interface, parameters, spec.shape[3 if last else 1])

    def decode(outputs: Mapping[str, np.ndarray]) -> Result:
        result, weights = read(outputs).detections(parameters, interface)
        planes = outputs[spec.name][0]
        planes = planes.transpose(2, 0, 1) if last else planes
        masks = weights @ planes.reshape(len(planes), -1)
        return replace(result, masks=masks.reshape(-1, *planes.shape[1:]), mask_threshold=0.0)

    return decode


def find_prototypes(interface: ModelInterface) -> tuple[TensorSpec, bool] | None:
    """Return the output with prototypes of masks beside one of boxes, and whether channels are its last axis."""
    maps = [output for output in interface.outputs if len(output.shape) == 4]
    if len(maps) != 1 or len(interface.outputs) != 2:
        return None
    width, height = interface.size
    rows, columns = maps[0].shape[2:]
    return maps[0], rows * width != columns * height


def make_points(interface: ModelInterface, parameters: PoseParameters) -> Decode:
    """Return the decoder of boxes with key points."""
    count, numbers = parameters.points
    if count < 1 or numbers not in (2, 3):
        raise InputError(f"the decoder 'yolov8-pose' has points={count},{numbers}; it needs their number, and 2 or 3")
    read = make_reader("yolov8-pose", interface, parameters, count * numbers)

    def decode(outputs: Mapping[str, np.ndarray]) -> Result:
        candidates = read(outputs)
        result, values = candidates.detections(parameters, interface)
        points = np.ones((len(result), count, 3), np.float32)
        points[..., :numbers] = values.reshape(-1, count, numbers)
        points[..., :2] *= candidates.scale
        return replace(result, points=points)

    return decode


def make_turned(interface: ModelInterface, parameters: Yolov8Parameters) -> Decode:
    """Return the decoder of turned boxes."""
    read = make_reader("yolov8-obb", interface, parameters, 1, centres=True)

    def decode(outputs: Mapping[str, np.ndarray]) -> Result:
        candidates = read(outputs)
        boxes, angles, classes = candidates.boxes, candidates.extras[:, 0], candidates.classes
        # Two boxes share at most all.
        iou = 1.0 if candidates.final else parameters.iou
        overlap = turned_overlap(boxes, angles, iou, None if parameters.agnostic else classes)
        winners = suppress_all(candidates.scores, overlap, parameters.most)
        result = make_detections(boxes[winners], candidates.scores[winners], classes[winners], interface)
        return replace(result, angles=angles[winners])

    return decode


def recognise_tasks(interface: ModelInterface) -> dict[str, Guess]:
    """Return guesses for all families.

    Tasks have outputs of the same form; only the numbers of labels, or of a published model's classes, tell them apart.
    """
    output, prototypes = flat_output(interface), find_prototypes(interface)
    if output is None:
        return _recognise_maps(interface)
    if len(interface.outputs) > (1 if prototypes is None else 2):
        return {}
    masks = prototypes[0].shape[3 if prototypes[1] else 1] if prototypes else 0
    form = columns_first(interface, output, masks)
    labels = len(interface.labels)
    reason = f"its output {list(output.shape)} has "
    if form is None:
        numbers = output.shape[2] - ROW
        if output.shape[1] <= output.shape[2]:
            return {}
        reason += f"rows of a box, score, class and {numbers} numbers"
        # Rows of boxes alone are no family's.
        tasks, certain = _further(numbers, masks), bool(masks) or numbers == 51
    else:
        numbers = output.shape[1 if form else 2] - BOX
        strides = match_strides(interface, output.shape[2 if form else 1]) or ()
        reason += f"a box and {numbers} numbers for {describe_cells(interface, strides)}"
        if not form and numbers != (labels or 80):
            # Detectors of other families have such rows.
            return {}
        if masks or labels:
            tasks, certain = _further(numbers - (labels or numbers - masks), masks), True
            if not masks and numbers == _COCO != labels:
                # Rather a list of labels that is too short by one than a turned box.
                tasks, certain = {"yolov8": {}, **tasks}, False
        elif numbers in _USUAL:
            tasks, certain = _USUAL[numbers], True
        else:
            tasks, certain = {"yolov8": {}, **_further(1, 0), **_further(numbers - 1, 0)}, False
    return {name: Guess(reason, parameters, ULTRALYTICS, certain) for name, parameters in tasks.items()}


def _further(numbers: int, masks: int) -> dict[str, dict[str, Any]]:
    """Return families, with their parameters, that have so many numbers behind box and scores."""
    if masks:
        return {"yolov8-seg": {}} if numbers == masks else {}
    if numbers < 2:
        return {("yolov8", "yolov8-obb")[numbers]: {}} if numbers >= 0 else {}
    size = next((size for size in (3, 2) if numbers % size == 0), None)
    return {"yolov8-pose": {"points": [numbers // size, size]}} if size else {}


def _recognise_maps(interface: ModelInterface) -> dict[str, Guess]:
    parameters = Yolov8Parameters()
    levels = find_levels(interface, parameters)
    if not levels or len({(level.bins, level.classes, len(level.maps)) for level in levels}) > 1:
        return {}
    classes, pairs, labels = levels[0].classes, len(levels[0].maps) == 2, len(interface.labels)
    # Without labels, nothing but the published models' 80 classes tells them from others.
    plausible = classes == labels if labels else pairs or classes == _COCO
    if len(interface.outputs) not in (len(levels), 2 * len(levels), 3 * len(levels)) or not plausible:
        return {}
    reason = f"its outputs have {BOX * levels[0].bins} numbers of a box and {classes} of classes for "
    reason += describe_cells(interface, parameters.strides)
    return {"yolov8": Guess(reason, {}, ULTRALYTICS, levels[0].bins == BINS or not pairs)}


def _recognise(name: str, interface: ModelInterface) -> Guess | None:
    return recognise_tasks(interface).get(name)


FAMILIES = tuple(
    DecoderFamily(name, task, parameters, make_decoder, partial(_recognise, name))
    for name, task, parameters, make_decoder in (
        ("yolov8", "detect", Yolov8Parameters, make),
        ("yolov8-seg", "segment", Yolov8Parameters, make_masks),
        ("yolov8-pose", "pose", PoseParameters, make_points),
        ("yolov8-obb", "obb", Yolov8Parameters, make_turned),
    )
)
