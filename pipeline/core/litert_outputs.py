"""LiteRT outputs, also those that were never computed."""

from __future__ import annotations

from typing import Any

import numpy as np


def read_output(interpreter: Any, number: int) -> np.ndarray:
    """Return a copy of an interpreter's output by index."""
    # Asked for now: the shape may be another one for each frame.
    detail = interpreter.get_output_details()[number]
    # It refuses to hand out a tensor without elements.
    if 0 in detail["shape"]:
        return np.zeros(detail["shape"], detail["dtype"])
    return np.array(interpreter.get_tensor(detail["index"]))
