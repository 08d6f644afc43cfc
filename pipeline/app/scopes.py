"""Evaluation: fields of a frame's results, for expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.io.results import Classes, Detections

if TYPE_CHECKING:
    from pipeline.app.app_frame import AppFrame

Points = Any
"""Sequence of (x, y), or an array of these."""

ROW_FIELDS: Mapping[str, Callable[[Detections], Any]] = {
    "label": lambda boxes: np.array(boxes.names, dtype=str),
    "score": lambda boxes: boxes.scores,
    "left": lambda boxes: boxes.boxes[:, 0],
    "top": lambda boxes: boxes.boxes[:, 1],
    "right": lambda boxes: boxes.boxes[:, 2],
    "bottom": lambda boxes: boxes.boxes[:, 3],
    "x": lambda boxes: boxes.boxes[:, ::2].mean(1),
    "y": lambda boxes: boxes.boxes[:, 1::2].mean(1),
    "width": lambda boxes: boxes.boxes[:, 2] - boxes.boxes[:, 0],
    "height": lambda boxes: boxes.boxes[:, 3] - boxes.boxes[:, 1],
    "track": lambda boxes: np.full(len(boxes), -1) if boxes.tracks is None else boxes.tracks,
}
"""Fields of a box, in pixels of the source's picture; a track is -1 before it has a number."""


def truth(result: Any) -> bool:
    """Test if a trigger fired, a function returned something true, or a node found anything."""
    return len(result) > 0 if isinstance(result, Detections) else bool(result)


def best_field(result: Any, field: str) -> Any:
    """Return a field of a result's best row; NaN or an empty text without any."""
    if isinstance(result, Classes | Detections) and field in ("label", "score"):
        if not len(result.scores):
            return "" if field == "label" else math.nan
        return result.names[0] if field == "label" else float(result.scores[0])
    return getattr(result, field, math.nan)


class RowScope:
    """Boxes of a result, as columns."""

    def __init__(self, boxes: Detections) -> None:
        self.boxes = boxes

    def __len__(self) -> int:
        return len(self.boxes)

    def field(self, name: str) -> Any:
        """Return a column of `ROW_FIELDS`."""
        return ROW_FIELDS[name](self.boxes)

    @property
    def feet(self) -> np.ndarray:
        """Middle of the lowest row of pixels of each box: where a thing stands, [N, 2]."""
        boxes = self.boxes.boxes
        # Half a pixel above the edge, so that a box at the picture's lower edge stands in a zone that ends there.
        return np.stack([(boxes[:, 0] + boxes[:, 2]) / 2, boxes[:, 3] - 0.5], axis=1)


class Evaluation:
    """One frame's results for an expression, with what its functions remember of the stream.

    Results of nodes that were skipped are missing. The functions fill the expression's memory of the stream; a
    condition on each box has them as `rows`.
    """

    def __init__(self, frame: AppFrame, memories: dict[Any, dict[Any, Any]], rows: Detections | None = None) -> None:
        self.frame, self._results, self._memories = frame, frame.results, memories
        self._rows = None if rows is None else RowScope(rows)

    @property
    def rows(self) -> RowScope:
        """Boxes of the condition."""
        if self._rows is None:
            raise AssertionError("a condition on frames has no boxes")
        return self._rows

    @property
    def has_rows(self) -> bool:
        """True in a condition on boxes."""
        return self._rows is not None

    def memory(self, key: object) -> dict[Any, Any]:
        """Return what a function remembers of the stream."""
        return self._memories.setdefault(key, {})

    def in_pixels(self, points: np.ndarray) -> np.ndarray:
        """Return points in pixels; shares of the picture's sides are all at most 1."""
        return points * self.frame.size if points.max() <= 1 else points

    def truth(self, node: str) -> bool:
        """Test if a trigger fired, a function returned something true, or a node found anything."""
        return truth(self._results.get(node))

    def best(self, node: str, field: str) -> Any:
        """Return a field of a result's best row; NaN or an empty text without any."""
        return best_field(self._results.get(node), field)

    def attribute(self, node: str, field: str) -> Any:
        """Return a field of what a model said of each box: ``clothes.label``."""
        values = self.rows.boxes.attributes.get(node)
        if values is None:
            return np.full(len(self.rows), "" if field in ("label", "text") else np.nan)
        return np.array([best_field(value, field) for value in values])

    def select(self, node: str, condition: Callable[[Evaluation], Any] | None) -> np.ndarray:
        """Return a truth value for each box of a node."""
        result = self._results.get(node)
        if not isinstance(result, Detections):
            return np.zeros(0, bool) if result is None else np.ones(1, bool)
        if condition is None:
            return np.ones(len(result), bool)
        inner = Evaluation(self.frame, self._memories, result)
        return np.broadcast_to(condition(inner), len(result))
