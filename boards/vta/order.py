"""Order: which accesses of different modules the tokens put in order, by vector clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from boards.vta.instructions import Stage
from boards.vta.stamps import Stamps, Where, opposed

Clock: TypeAlias = tuple[int, ...]
"""How many instructions of each module are known to be over."""


@dataclass(frozen=True)
class Conflict:
    """Two accesses that no token orders, so that either may come first.

    Attributes
    ----------
    other : int
        The instruction of the earlier one, as it happened this time.
    place : str
        The memory.
    element : int
        One that both touch.
    wrote : bool
        Whether the earlier one wrote.
    """

    other: int
    place: str
    element: int
    wrote: bool


class Order:
    """The accesses so far.

    A token tells what its giver knows.  Each queue has one giver and one taker, both in order, so that the n-th
    token taken is always the n-th one given: what is known when does not depend on how the modules happen to
    interleave, and neither do the conflicts.  For each element the last access of a module stands for all
    earlier ones, because a module is in order.

    Parameters
    ----------
    sizes : dict of str to int
        The places that modules share, and their elements.
    """

    def __init__(self, sizes: dict[str, int]) -> None:
        self._stamps = Stamps(sizes)
        self._clocks = {stage: [0] * len(Stage) for stage in Stage}
        self._done: dict[Stage, list[int]] = {stage: [] for stage in Stage}

    def begin(self, stage: Stage, index: int, tokens: Sequence[Clock]) -> None:
        """Note that a module executes its next instruction, and what its tokens tell."""
        self._done[stage].append(index)
        clock = [max(known) for known in zip(self._clocks[stage], *tokens, strict=True)]
        clock[stage] += 1
        self._clocks[stage] = clock

    def clock(self, stage: Stage) -> Clock:
        """Return what a module knows, for a token of its current instruction."""
        return tuple(self._clocks[stage])

    def read(self, stage: Stage, place: str, where: Where) -> Conflict | None:
        """Note a reading access, and return what it conflicts with."""
        return self._access(stage, place, where, writes=False)

    def write(self, stage: Stage, place: str, where: Where) -> Conflict | None:
        """Note a writing access, and return what it conflicts with."""
        return self._access(stage, place, where, writes=True)

    def unknown(self, stage: Stage) -> list[int]:
        """Return the last instruction of each other module that `stage` does not know to be over."""
        clock = self._clocks[stage]
        return [self._done[other][-1] for other in Stage if len(self._done[other]) > clock[other]]

    def _access(self, stage: Stage, place: str, where: Where, *, writes: bool) -> Conflict | None:
        found = [
            self._conflict(stage, place, where, other, wrote=wrote) for other, wrote in opposed(stage, writes=writes)
        ]
        self._stamps.mark(place, where, stage, self._clocks[stage][stage], writes=writes)
        return next((each for each in found if each), None)

    def _conflict(self, stage: Stage, place: str, where: Where, other: Stage, *, wrote: bool) -> Conflict | None:
        known = self._clocks[stage][other]
        if known == len(self._done[other]):
            return None
        number, element = self._stamps.latest(place, where, other, writes=wrote)
        return Conflict(self._done[other][number - 1], place, element, wrote) if number > known else None
