"""Dependence tokens for instructions in a valid order: exactly those that their accesses to memory need."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace

from boards.vta.accesses import Access
from boards.vta.config import Memory
from boards.vta.instructions import Finish, Instruction, Load, Stage
from boards.vta.stamps import Stamps, opposed

NOTHING = Load(memory_type=Memory.UOP)
"""Passes tokens through compute."""


@dataclass(frozen=True)
class Work:
    """An instruction without tokens, and what it touches of the memories that modules share."""

    instruction: Instruction
    accesses: tuple[Access, ...] = ()


def linked(works: Iterable[Work], sizes: dict[str, int]) -> tuple[Instruction, ...]:
    """Return a whole stream: the works with tokens, ended by FINISH.

    Of two conflicting accesses the later one's instruction waits for the earlier one's, unless other tokens already
    tell that it is over.  What one module waits for in another only ever becomes later, so that each queue's tokens
    are taken in the order in which they are given, and no instruction needs two of them.

    Parameters
    ----------
    works : iterable of Work
        In an order that would be right if one followed the other.
    sizes : dict of str to int
        The elements of each place.
    """
    links = _Links(sizes)
    links.add(Work(NOTHING))  # waits for nothing, so that the done flag drops at once
    for work in works:
        links.add(work)
    links.finish()
    return tuple(links.instructions)


class _Links:
    def __init__(self, sizes: dict[str, int]) -> None:
        self.instructions: list[Instruction] = []
        self._stamps = Stamps(sizes)
        self._clocks = {stage: [0, 0, 0] for stage in Stage}
        # Of each instruction of a module, in its order: its place in the stream, and what it knows.
        self._places: dict[Stage, list[int]] = {stage: [] for stage in Stage}
        self._known: dict[Stage, list[tuple[int, ...]]] = {stage: [] for stage in Stage}

    def add(self, work: Work) -> None:
        """Append an instruction that waits for whatever its accesses conflict with."""
        stage = work.instruction.stage
        needed = [0, 0, 0]
        for access in work.accesses:
            for other, wrote in opposed(stage, writes=access.writes):
                number, _ = self._stamps.latest(access.place, access.where, other, writes=wrote)
                needed[other] = max(needed[other], number)
        self._append(work.instruction, needed)
        for access in work.accesses:
            number = len(self._places[stage])
            self._stamps.mark(access.place, access.where, stage, number, writes=access.writes)

    def finish(self) -> None:
        """Wait for all modules, and finish."""
        self._append(NOTHING, [len(self._places[stage]) for stage in Stage])
        self._append(Finish(), [0, 0, 0])

    def _append(self, instruction: Instruction, needed: list[int]) -> None:
        stage = instruction.stage
        if stage is not Stage.COMPUTE:
            far = Stage.STORE - stage
            self._pass_on(stage, Stage(far), needed)
        flags = {}
        for other in (stage - 1, stage + 1):
            if other in list(Stage) and needed[other] > self._clocks[stage][other]:
                self._push(Stage(other), needed[other], stage)
                flags["pop_prev" if other < stage else "pop_next"] = True
        self._clocks[stage][stage] += 1
        self._places[stage].append(len(self.instructions))
        self._known[stage].append(tuple(self._clocks[stage]))
        self.instructions.append(replace(instruction, **flags))

    def _pass_on(self, stage: Stage, far: Stage, needed: list[int]) -> None:
        """Let compute tell what a module that has no queue to this one has done."""
        if needed[far] <= self._clocks[stage][far]:
            return
        if self._clocks[Stage.COMPUTE][far] < needed[far]:
            through = [0, 0, 0]
            through[far] = needed[far]
            self._append(NOTHING, through)
        first = bisect_left(self._known[Stage.COMPUTE], needed[far], key=lambda known: known[far]) + 1
        needed[Stage.COMPUTE] = max(needed[Stage.COMPUTE], first)

    def _push(self, giver: Stage, number: int, taker: Stage) -> None:
        place = self._places[giver][number - 1]
        flag = {"push_next": True} if taker > giver else {"push_prev": True}
        self.instructions[place] = replace(self.instructions[place], **flag)
        known = self._known[giver][number - 1]
        self._clocks[taker] = [max(pair) for pair in zip(self._clocks[taker], known, strict=True)]
