"""NaN: frames with NaN values, a source of plausible wrong results."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

logger = logging.getLogger(__name__)


class NanCount:
    """Counts frames with NaN in inputs or outputs, warning once.

    Kernels such as a ReLU or an argmax make numbers of NaN, so that results do not show it.
    """

    def __init__(self, side: str) -> None:
        self._side, self.frames = side, 0

    def note(self, frame: str, arrays: Any) -> None:
        """Inspect a frame's arrays, by name, or its only one."""
        named_arrays = arrays if isinstance(arrays, Mapping) else {"": arrays}
        names = [name for name, array in named_arrays.items() if _has_nan(array)]
        if names and not self.frames:
            title = f"{self._side} {names[0]!r}" if names[0] else self._side
            logger.warning("the %s of frame %r has NaN: what is made of it means nothing", title, frame)
        self.frames += bool(names)


def _has_nan(array: Any) -> bool:
    # The least of them is NaN if any is: one pass, and no array of flags.
    return isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.size > 0 and bool(np.isnan(array.min()))
