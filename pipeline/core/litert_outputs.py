"""LiteRT outputs: what an interpreter has computed, also where that is nothing."""

from __future__ import annotations

from typing import Any

import numpy as np


def read_output(interpreter: Any, number: int) -> np.ndarray:
    """Return a copy of an interpreter's output, by its place among the outputs."""
    # Asked for now: the shape may be another one for each frame.
    detail = interpreter.get_output_details()[number]
    # It refuses to hand out a tensor without elements.
    if 0 in detail["shape"]:
        return np.zeros(detail["shape"], detail["dtype"])
    return np.array(interpreter.get_tensor(detail["index"]))
