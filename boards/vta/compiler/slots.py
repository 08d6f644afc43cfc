"""Slots: the parts of a scratchpad that take turns."""

from __future__ import annotations

from collections.abc import Hashable


class Slots:
    """Equal parts of a scratchpad, each of which remembers what it holds.

    Parameters
    ----------
    depth : int
        Elements to divide.
    count : int
        How many parts.
    """

    def __init__(self, depth: int, count: int) -> None:
        # From the one that was not used for the longest time to the latest.
        self._held: dict[int, Hashable] = dict.fromkeys(range(0, depth // count * count, depth // count))

    def find(self, content: Hashable) -> tuple[int, bool]:
        """Return the first element of the slot for `content`, and whether it is there already."""
        start = next((start for start, held in self._held.items() if held == content), None)
        there = start is not None
        chosen = next(iter(self._held)) if start is None else start
        del self._held[chosen]
        self._held[chosen] = content
        return chosen, there
