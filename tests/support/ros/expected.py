"""What the node answers to a picture, computed by NumPy."""

from __future__ import annotations

import numpy as np

from tests.support.ros import onnx_bundle


def boxes(picture: np.ndarray) -> list[list[float | str]]:
    """Return centre, size, score and class of each detection."""
    return [
        [(left + right) / 2, (top + bottom) / 2, abs(right - left), abs(bottom - top), score, str(int(number))]
        for left, top, right, bottom, score, number in onnx_bundle.rows(picture).tolist()
    ]


def weighted_sum(values: np.ndarray) -> int:
    """Return a sum that changes when bytes change places, as the peers in C and C++ compute it."""
    flat = values.reshape(-1).astype(np.uint64)
    return int((flat * (np.arange(flat.size, dtype=np.uint64) % np.uint64(251) + np.uint64(1))).sum())
