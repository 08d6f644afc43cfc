"""Stamps: who touched which element last."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from boards.vta.instructions import Stage

Where: TypeAlias = "slice | npt.NDArray[np.int64]"


class Stamps:
    """The number of the last instruction of each module that read, and that wrote, each element; 0 for none.

    Parameters
    ----------
    sizes : dict of str to int
        The places that modules share, and their elements.
    """

    def __init__(self, sizes: dict[str, int]) -> None:
        self._sizes = sizes
        self._last: dict[tuple[str, Stage, bool], npt.NDArray[np.int32]] = {}

    def mark(self, place: str, where: Where, stage: Stage, number: int, *, writes: bool) -> None:
        """Note an access by the instruction `number` of a module."""
        key = (place, stage, writes)
        if key not in self._last:
            self._last[key] = np.zeros(self._sizes[place], np.int32)
        self._last[key][where] = number

    def latest(self, place: str, where: Where, stage: Stage, *, writes: bool) -> tuple[int, int]:
        """Return the highest number among some elements, and an element that has it."""
        if (place, stage, writes) not in self._last:
            return 0, 0
        stamps = self._last[place, stage, writes][where]
        if not stamps.size:
            return 0, 0
        at = int(stamps.argmax())
        return int(stamps.flat[at]), where.start + at if isinstance(where, slice) else int(where.flat[at])


def opposed(stage: Stage, *, writes: bool) -> list[tuple[Stage, bool]]:
    """Return whose accesses an access conflicts with: those of other modules, if either writes."""
    kinds = (True, False) if writes else (True,)
    return [(other, kind) for other in Stage if other != stage for kind in kinds]
