"""VectorClocks: accesses ordered by tokens, and conflicting ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from boards.vta.isa.instructions import HardwareModule

Where: TypeAlias = "slice | npt.NDArray[np.int64]"

Clock: TypeAlias = tuple[int, ...]
"""Clock: finished instructions known of every module."""


@dataclass(frozen=True)
class Conflict:
    """Two accesses in no token order.

    Attributes
    ----------
    instruction : int
        Instruction of the earlier access, as it happened this time.
    memory_name : str
        The memory.
    element : int
        Element that both touch.
    wrote : bool
        True if the earlier one wrote.
    """

    instruction: int
    memory_name: str
    element: int
    wrote: bool


class VectorClocks:
    """Accesses so far, ordered by vector clocks (Fidge 1988, Mattern 1989).

    A token tells what its giver knows.  Each queue has one giver and one taker, both in order, so that the n-th
    token taken is always the n-th one given: what is known when does not depend on how the modules happen to
    interleave, and neither do the conflicts.  For each element the last access of a module stands for all
    earlier ones, because a module is in order.

    Parameters
    ----------
    sizes : dict of str to int
        The memories that modules share, and their elements.
    """

    def __init__(self, sizes: dict[str, int]) -> None:
        self._stamps = AccessStamps(sizes)
        self._clocks = {module: [0] * len(HardwareModule) for module in HardwareModule}
        self._history: dict[HardwareModule, list[int]] = {module: [] for module in HardwareModule}

    def begin(self, module: HardwareModule, index: int, tokens: Sequence[Clock]) -> None:
        """Begin a module's next instruction with its tokens' clocks."""
        self._history[module].append(index)
        clock = [max(counts) for counts in zip(self._clocks[module], *tokens, strict=True)]
        clock[module] += 1
        self._clocks[module] = clock

    def clock(self, module: HardwareModule) -> Clock:
        """Return a module's clock, for its current instruction's token."""
        return tuple(self._clocks[module])

    def read(self, module: HardwareModule, memory_name: str, elements: Where) -> Conflict | None:
        """Record a read and return its conflict."""
        return self._access(module, memory_name, elements, writes=False)

    def write(self, module: HardwareModule, memory_name: str, elements: Where) -> Conflict | None:
        """Record a write and return its conflict."""
        return self._access(module, memory_name, elements, writes=True)

    def unconfirmed_instructions(self, module: HardwareModule) -> list[int]:
        """Return other modules' last instructions that `module` cannot know finished."""
        clock = self._clocks[module]
        return [
            self._history[other_module][-1]
            for other_module in HardwareModule
            if len(self._history[other_module]) > clock[other_module]
        ]

    def _access(self, module: HardwareModule, memory_name: str, elements: Where, *, writes: bool) -> Conflict | None:
        conflicts = [
            self._conflict(module, memory_name, elements, other_module, wrote=wrote)
            for other_module, wrote in conflicting_accesses(module, writes=writes)
        ]
        self._stamps.mark(memory_name, elements, module, self._clocks[module][module], writes=writes)
        return next((conflict for conflict in conflicts if conflict), None)

    def _conflict(
        self, module: HardwareModule, memory_name: str, elements: Where, other_module: HardwareModule, *, wrote: bool
    ) -> Conflict | None:
        # A look at the elements can be saved where all that the other module has done is known to be over.
        progress = self._clocks[module][other_module]
        if progress == len(self._history[other_module]):
            return None
        number, element = self._stamps.latest(memory_name, elements, other_module, writes=wrote)
        return (
            # Instructions of a module count from 1, so that a stamp of 0 is older than any.
            Conflict(self._history[other_module][number - 1], memory_name, element, wrote)
            if number > progress
            else None
        )


class AccessStamps:
    """Last reading and writing instruction per element and module, 0 for none."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self._sizes = sizes
        self._last: dict[tuple[str, HardwareModule, bool], npt.NDArray[np.int32]] = {}

    def mark(self, memory_name: str, elements: Where, module: HardwareModule, number: int, *, writes: bool) -> None:
        """Record an access by a module's instruction `number`."""
        key = (memory_name, module, writes)
        # Only when needed: most modules never touch most memories.
        if key not in self._last:
            self._last[key] = np.zeros(self._sizes[memory_name], np.int32)
        self._last[key][elements] = number

    def latest(self, memory_name: str, elements: Where, module: HardwareModule, *, writes: bool) -> tuple[int, int]:
        """Return the highest number among elements, and its element."""
        if (memory_name, module, writes) not in self._last:
            return 0, 0
        stamps = self._last[memory_name, module, writes][elements]
        # As of a transfer of no rows.
        if not stamps.size:
            return 0, 0
        position = int(stamps.argmax())
        element = elements.start + position if isinstance(elements, slice) else int(elements.flat[position])
        return int(stamps.flat[position]), element


def conflicting_accesses(module: HardwareModule, *, writes: bool) -> list[tuple[HardwareModule, bool]]:
    """Modules and kinds of access in conflict: other modules, one writing."""
    kinds = (True, False) if writes else (True,)
    return [(neighbour, kind) for neighbour in HardwareModule if neighbour != module for kind in kinds]
