"""Boxes: what crops and trackers do with detections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline.errors import InputError
from pipeline.io.results import Detections


def upright_angle(points: np.ndarray, upright: str) -> float:
    """Return the turn after which the second of two points is above the first."""
    try:
        below, above = (points[int(number), :2] for number in upright.split("-"))
    except (ValueError, IndexError):
        raise InputError(f"upright is {upright!r}; it must be two of {len(points)} key points, such as '0-9'") from None
    step = above - below
    # Up is against the y axis.
    return float(math.atan2(step[0], -step[1]))


def concatenate(parts: Sequence[Detections]) -> Detections:
    """Return the detections of several results as one."""
    first = parts[0]
    names = ("boxes", "scores", "classes", "points", "angles", "tracks")
    columns: dict[str, Any] = {name: [getattr(part, name) for part in parts] for name in names}
    if first.angles is None and any(part.angles is not None for part in parts):
        columns["angles"] = [np.zeros(len(part), np.float32) if part.angles is None else part.angles for part in parts]
    joined: dict[str, Any] = {
        name: np.concatenate(values) if all(value is not None for value in values) else None
        for name, values in columns.items()
    }
    return replace(first, masks=None, attributes={}, **joined)
