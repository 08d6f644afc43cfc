"""Functions of expressions: zones, lines, and what holds for some time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from pipeline.app.scopes import Evaluation
from pipeline.picture.small_grey import small_grey

MOST_TRACKS = 1000
"""Upper bound on tracks that a function remembers; the ones seen least recently are forgotten."""

BACKGROUND_RATE = 0.2
"""Share of a frame in the picture that motion is a difference to: slow things have to move for some frames."""

MOTION_STEP = 16
"""Steps of brightness of 255 that are more than the noise of a camera at night."""


class ConditionFunction(NamedTuple):
    """A function of expressions."""

    compute: Callable[..., Any]
    """Function of the evaluation, its memory, and its arguments."""
    arguments: tuple[int, int]
    """Least and most arguments."""
    shape: str = ""
    """Kind of its arguments: ``"zone"`` or ``"line"``; empty for values."""


def contains(polygon: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Test which points [N, 2] lie inside a polygon, by the even-odd rule."""
    inside = np.zeros(len(points), bool)
    x, y = points.T
    for (left, top), (right, bottom) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        crosses = (top > y) != (bottom > y)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside ^= crosses & (x < (right - left) * (y - top) / (bottom - top) + left)
    return inside


def _inside(evaluation: Evaluation, _: dict[Any, Any], zone: np.ndarray) -> np.ndarray:
    return contains(zone, evaluation.rows.feet)


def _entered(evaluation: Evaluation, memory: dict[Any, Any], zone: np.ndarray) -> np.ndarray:
    """Test which tracks are inside now and were outside when last seen."""
    inside = contains(zone, evaluation.rows.feet)
    before = _exchange(memory, evaluation.rows.field("track"), inside)
    return np.array([was is False and bool(is_inside) for was, is_inside in zip(before, inside, strict=True)], bool)


def _crossed(evaluation: Evaluation, memory: dict[Any, Any], line: np.ndarray) -> np.ndarray:
    """Test which tracks have crossed a line since they were seen last."""
    feet = evaluation.rows.feet
    before = _exchange(memory, evaluation.rows.field("track"), feet)
    start, end = line[0], line[-1]
    return np.array(
        [was is not None and _intersect(was, now, start, end) for was, now in zip(before, feet, strict=True)], bool
    )


def _exchange(memory: dict[Any, Any], tracks: np.ndarray, values: np.ndarray) -> list[Any]:
    """Return what was remembered of tracks, and remember new values; None for those unknown."""
    before = []
    for track, value in zip(tracks.tolist(), values, strict=True):
        # Taken out and put back, so that the last ones are those seen last.
        before.append(memory.pop(track, None) if track >= 0 else None)
        if track >= 0:
            memory[track] = value.copy() if value.ndim else bool(value)
    while len(memory) > MOST_TRACKS:
        del memory[next(iter(memory))]
    return before


def _intersect(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> bool:
    """Test if the segments ab and cd cross."""

    def side(p: np.ndarray, q: np.ndarray, r: np.ndarray) -> float:
        return float((q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0]))

    # A step that ends on the line has not crossed it; the next one, which begins there, has.
    return (side(c, d, a) >= 0) != (side(c, d, b) >= 0) and (side(a, b, c) >= 0) != (side(a, b, d) >= 0)


def _for_frames(evaluation: Evaluation, memory: dict[Any, Any], count: int, condition: Any = True) -> Any:
    """Test what has held for so many frames in a row: of tracks, or of the stream."""
    if not evaluation.has_rows:
        memory[0] = memory.get(0, 0) + 1 if condition else 0
        return memory[0] >= count
    tracks = evaluation.rows.field("track").tolist()
    holds = np.broadcast_to(condition, len(tracks))
    counts = {
        track: (memory.get(track, 0) + 1 if is_held else 0)
        for track, is_held in zip(tracks, holds, strict=True)
        if track >= 0
    }
    # A track that is not seen in a frame begins anew.
    memory.clear()
    memory.update(counts)
    return np.array([counts.get(track, 0) >= count for track in tracks], bool)


def _every(evaluation: Evaluation, _: dict[Any, Any], count: int) -> bool:
    return evaluation.frame.index % max(1, int(count)) == 0


def _every_seconds(evaluation: Evaluation, memory: dict[Any, Any], seconds: float) -> bool:
    last = memory.get(0)
    # A recording that is played again begins at an earlier time.
    now = evaluation.frame.time_s
    if last is not None and last <= now < last + seconds:
        return False
    memory[0] = now
    return True


def _motion(evaluation: Evaluation, memory: dict[Any, Any], zone: np.ndarray | None = None) -> float:
    """Return the share of the picture, or of a zone, that differs from the frames before."""
    grey = small_grey(*evaluation.frame.frame.read_picture())
    background = memory.get("background")
    if background is None or background.shape != grey.shape:
        memory["background"], memory["cells"] = grey, np.ones(grey.shape, bool)
        if zone is not None:
            places = np.stack(np.meshgrid(*(np.arange(extent) + 0.5 for extent in grey.shape[::-1])), -1).reshape(-1, 2)
            scale = np.divide(evaluation.frame.size, grey.shape[::-1])
            memory["cells"] = contains(zone, places * scale).reshape(grey.shape)
        return 0.0
    change = grey - background
    memory["background"] = background + BACKGROUND_RATE * change
    # A camera that adapts its exposure changes the whole picture alike.
    moved = np.abs(change - np.median(change)) > MOTION_STEP
    return float(moved[memory["cells"]].mean()) if memory["cells"].any() else 0.0


_COMMON = {"for_frames": ConditionFunction(_for_frames, (1, 2))}

ROW_FUNCTIONS: Mapping[str, ConditionFunction] = {
    "inside": ConditionFunction(_inside, (1, 1), "zone"),
    "entered": ConditionFunction(_entered, (1, 1), "zone"),
    "crossed": ConditionFunction(_crossed, (1, 1), "line"),
    **_COMMON,
}
"""Functions in conditions on boxes."""

FRAME_FUNCTIONS: Mapping[str, ConditionFunction] = {
    "every": ConditionFunction(_every, (1, 1)),
    "motion": ConditionFunction(_motion, (0, 1), "zone"),
    "every_seconds": ConditionFunction(_every_seconds, (1, 1)),
    **_COMMON,
}
"""Functions in conditions on frames."""

SELECTIONS: Mapping[str, Callable[[np.ndarray], Any]] = {
    "count": lambda rows: int(rows.sum()),
    "any": lambda rows: bool(rows.any()),
    "all": lambda rows: bool(rows.all()),
}
"""Functions of a node and a condition on its boxes."""
