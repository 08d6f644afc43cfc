"""Rows: boxes behind a non-maximum suppression that is part of the model.

``rows`` is one table with a row for each box, ``lists`` are separate outputs, as those of TFLite's detectors.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.core.packed_value import is_packed
from pipeline.errors import InputError
from pipeline.io.decoders.base import Decode, DecoderFamily, Guess, ModelInterface, mismatch
from pipeline.io.decoders.suppression import Fraction, ScoreParameters, best_boxes
from pipeline.io.results import Detections, Result

COLUMNS = ("left", "top", "right", "bottom", "score", "class")
"""Columns of a table, as exporters of detectors write it."""


class RowParameters(ScoreParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of tables."""

    # The model has chosen how many already.
    most: int = sys.maxsize
    columns: tuple[str, ...] = COLUMNS
    """Names of the columns: those of `COLUMNS`, in any order, and others, which are of no interest."""
    fractions: bool = False
    """True if boxes are fractions of the input instead of pixels."""

    def __post_init__(self) -> None:
        missing = [name for name in COLUMNS if name not in self.columns]
        if missing:
            raise InputError(f"columns are {', '.join(self.columns)}; {', '.join(missing)} are missing")


class ListParameters(ScoreParameters, frozen=True, forbid_unknown_fields=True):
    """Parameters of separate outputs."""

    score: Fraction = 0.4
    most: int = sys.maxsize
    # Names of the outputs; empty for those that names and shapes tell, and where there is no count.
    boxes: str = ""
    scores: str = ""
    classes: str = ""
    count: str = ""
    order: Literal["yxyx", "xyxy"] = "yxyx"
    """``"yxyx"`` for top, left, bottom, right, else ``"xyxy"``."""
    fractions: bool = True
    """True if boxes are fractions of the input instead of pixels."""


def _detections(
    boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, parameters: Any, interface: ModelInterface
) -> Detections:
    rows = np.flatnonzero((scores > parameters.score) & np.isfinite(classes))
    scale = np.array(interface.size * 2 if parameters.fractions else 1, np.float32)
    return best_boxes(boxes[rows] * scale, scores[rows], classes[rows], parameters, interface)[0]


def make_rows(interface: ModelInterface, parameters: RowParameters) -> Decode:
    """Return the decoder of a table."""
    name, shape, width = interface.outputs[0].name, interface.outputs[0].shape, len(parameters.columns)
    wanted = f"rows of {', '.join(parameters.columns)}, such as [1, 100, {width}]"
    if len(interface.outputs) != 1 or not (is_packed(interface.outputs[0]) or shape[-1:] == (width,)):
        raise mismatch("rows", wanted, interface)
    positions = [parameters.columns.index(column) for column in COLUMNS]

    def decode(outputs: Mapping[str, np.ndarray]) -> Result:
        table = np.asarray(outputs[name])
        if table.shape[-1:] != (width,):
            raise InputError(
                f"the decoder 'rows' takes {wanted}; the output {name!r} of this frame is {list(table.shape)}"
            )
        rows = table.reshape(-1, width)[:, positions]
        return _detections(rows[:, :4], rows[:, 4], rows[:, 5], parameters, interface)

    return decode


def recognise_rows(interface: ModelInterface) -> Guess | None:
    """Recognise one table of six columns, or of an open number of rows."""
    spec = interface.outputs[0]
    if len(interface.outputs) != 1 or min(interface.size) < 1:
        return None
    preparation = Preparation()
    if is_packed(spec):
        return Guess(f"its output {spec.name!r} has an open number of rows, as boxes have", {}, preparation)
    if len(spec.shape) in (2, 3) and spec.shape[-1] == len(COLUMNS):
        # One row may be the scores of six classes.
        certain = len(spec.shape) == 3 or spec.shape[0] > 1
        return Guess(f"its output {list(spec.shape)} has the six columns of boxes", {}, preparation, certain)
    return None


_WORDS = {
    "boxes": ("box", "dets"),
    "scores": ("score", "conf"),
    "classes": ("class", "label"),
    "count": ("num", "count"),
}
"""Parts of the names of outputs, by their role."""

_ORDERS: dict[tuple[int, ...], tuple[str, ...]] = {
    # Of the operator itself, and of TensorFlow 2's exporter.
    (3, 2, 2, 1): ("boxes", "classes", "scores", "count"),
    (2, 3, 1, 2): ("scores", "boxes", "count", "classes"),
}
"""Roles of TFLite's outputs, by their numbers of axes."""


def _find_lists(interface: ModelInterface) -> dict[str, str]:
    """Return the outputs' names by role; empty if they do not tell."""
    names = [spec.name for spec in interface.outputs]
    matches = {
        role: next((name for name in names if any(word in name.lower() for word in words)), "")
        for role, words in _WORDS.items()
    }
    roles = {role: name for role, name in matches.items() if name}
    if {"boxes", "scores", "classes"} <= set(roles) and sorted(roles.values()) == sorted(names):
        return roles
    order = _ORDERS.get(tuple(len(spec.shape) for spec in interface.outputs), ())
    fits = any(len(spec.shape) == 3 and spec.shape[-1] == 4 for spec in interface.outputs)
    return dict(zip(order, names, strict=True)) if order and fits else {}


def make_lists(interface: ModelInterface, parameters: ListParameters) -> Decode:
    """Return the decoder of separate outputs."""
    names = _find_lists(interface)
    names |= {role: getattr(parameters, role) for role in _WORDS if getattr(parameters, role)}
    known = {spec.name for spec in interface.outputs}
    if not {"boxes", "scores", "classes"} <= set(names) or not set(names.values()) <= known:
        raise mismatch("lists", "boxes [1, N, 4], classes and scores [1, N], and a count [1] or none", interface)

    def decode(outputs: Mapping[str, np.ndarray]) -> Result:
        boxes = np.asarray(outputs[names["boxes"]]).reshape(-1, 4)
        scores, classes = (np.asarray(outputs[names[role]]).reshape(-1) for role in ("scores", "classes"))
        if not len(boxes) == len(scores) == len(classes):
            raise InputError(
                f"the decoder 'lists' takes a score and a class for each box; of this frame, {len(boxes)} boxes have "
                f"{len(scores)} scores and {len(classes)} classes"
            )
        boxes = boxes[:, [1, 0, 3, 2]] if parameters.order == "yxyx" else boxes
        count = int(np.asarray(outputs[names["count"]]).reshape(-1)[0]) if "count" in names else len(boxes)
        return _detections(boxes[:count], scores[:count], classes[:count], parameters, interface)

    return decode


def recognise_lists(interface: ModelInterface) -> Guess | None:
    """Recognise outputs by their names, or by the order of TFLite's detectors."""
    names = _find_lists(interface)
    if not names or min(interface.size) < 1:
        return None
    reason = f"its outputs are boxes {names['boxes']!r}, scores {names['scores']!r} and classes {names['classes']!r}"
    # TensorFlow counts from the top, in fractions; others from the left, in pixels.
    pixels = names["boxes"] in ("boxes", "det_boxes")
    parameters = {"order": "xyxy", "fractions": False} if pixels else {}
    preparation = Preparation() if pixels else Preparation(mean=(0.5,), std=(0.5,), sampling="opencv")
    return Guess(reason, {**names, **parameters}, preparation)


FAMILIES = (
    DecoderFamily("rows", "detect", RowParameters, make_rows, recognise_rows),
    DecoderFamily("lists", "detect", ListParameters, make_lists, recognise_lists),
)
