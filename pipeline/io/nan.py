"""NaN: frames with values that are no numbers, from which plausible results may come."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

logger = logging.getLogger(__name__)


class NanCount:
    """Counts the frames with NaN in their inputs, or outputs, and warns of the first one.

    Kernels such as a ReLU or an argmax make numbers of it, so that results do not show it.

    Parameters
    ----------
    side : str
        What is looked at, for the message.

    Attributes
    ----------
    frames : int
    """

    def __init__(self, side: str) -> None:
        self._side, self.frames = side, 0

    def note(self, frame: str, arrays: Any) -> None:
        """Look at the arrays of a frame, by name, or the only one."""
        named_arrays = arrays if isinstance(arrays, Mapping) else {"": arrays}
        names = [name for name, array in named_arrays.items() if _has_nan(array)]
        if names and not self.frames:
            title = f"{self._side} {names[0]!r}" if names[0] else self._side
            logger.warning("the %s of frame %r has NaN: what is made of it means nothing", title, frame)
        self.frames += bool(names)


def _has_nan(array: Any) -> bool:
    # The least of them is NaN if any is: one pass, and no array of flags.
    return isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.size > 0 and bool(np.isnan(array.min()))
