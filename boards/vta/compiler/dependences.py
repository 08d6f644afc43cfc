"""Dependence tokens for ordered instructions, derived from their memory accesses."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace

from boards.vta.isa.config import MemoryType
from boards.vta.isa.instructions import Finish, HardwareModule, Instruction, LoadInstruction
from boards.vta.simulator.accesses import Access
from boards.vta.simulator.vector_clocks import AccessStamps, conflicting_accesses

NOTHING = LoadInstruction(memory_type=MemoryType.UOP)
"""Passes tokens through compute."""


@dataclass(frozen=True)
class UnlinkedInstruction:
    """Instruction without tokens, and its accesses to shared memories."""

    instruction: Instruction
    accesses: tuple[Access, ...] = ()


def link_dependences(works: Iterable[UnlinkedInstruction], sizes: dict[str, int]) -> tuple[Instruction, ...]:
    """Return the linked instruction stream, ended by FINISH.

    Of two conflicting accesses the later one's instruction waits for the earlier one's, unless other tokens already
    tell that it is over.  The instruction that one module waits for in another only ever becomes later, so that each
    queue's tokens are taken in the order in which they are given, and no instruction needs two of them.

    Parameters
    ----------
    works : iterable of UnlinkedInstruction
        Instructions in an order that would be right if one followed the other.
    sizes : dict of str to int
        The elements of each memory.
    """
    links = _TokenLinker(sizes)
    links.add(UnlinkedInstruction(NOTHING))  # waits for nothing, so that the done flag drops at once
    for work in works:
        links.add(work)
    links.finish()
    return tuple(links.instructions)


class _TokenLinker:
    def __init__(self, sizes: dict[str, int]) -> None:
        self.instructions: list[Instruction] = []
        self._stamps = AccessStamps(sizes)
        self._clocks = {module: [0, 0, 0] for module in HardwareModule}
        # Of each instruction of a module, in its order: its place in the stream, and what it knows.
        self._positions: dict[HardwareModule, list[int]] = {module: [] for module in HardwareModule}
        self._clocks_after: dict[HardwareModule, list[tuple[int, ...]]] = {module: [] for module in HardwareModule}

    def add(self, work: UnlinkedInstruction) -> None:
        """Append an instruction behind all accesses it conflicts with."""
        module = work.instruction.module
        minimum_clock = [0, 0, 0]
        for access in work.accesses:
            for other_module, wrote in conflicting_accesses(module, writes=access.writes):
                number, _ = self._stamps.latest(access.memory_name, access.elements, other_module, writes=wrote)
                minimum_clock[other_module] = max(minimum_clock[other_module], number)
        # Marked afterwards: an instruction does not conflict with itself.
        self._append(work.instruction, minimum_clock)
        for access in work.accesses:
            number = len(self._positions[module])
            self._stamps.mark(access.memory_name, access.elements, module, number, writes=access.writes)

    def finish(self) -> None:
        """Wait for all modules, and finish."""
        self._append(NOTHING, [len(self._positions[module]) for module in HardwareModule])
        self._append(Finish(), [0, 0, 0])

    def _append(self, instruction: Instruction, minimum_clock: list[int]) -> None:
        module = instruction.module
        if module is not HardwareModule.COMPUTE:
            # Load and store have no queue between them: what one must know of the other goes through compute.
            far_module = HardwareModule.STORE - module
            self._pass_on(module, HardwareModule(far_module), minimum_clock)
        # A token is asked for only if none taken before has told the same.
        flags = {}
        for neighbour in (module - 1, module + 1):
            if neighbour in list(HardwareModule) and minimum_clock[neighbour] > self._clocks[module][neighbour]:
                self._push(HardwareModule(neighbour), minimum_clock[neighbour], module)
                flags["pop_prev" if neighbour < module else "pop_next"] = True
        self._clocks[module][module] += 1
        self._positions[module].append(len(self.instructions))
        self._clocks_after[module].append(tuple(self._clocks[module]))
        self.instructions.append(replace(instruction, **flags))

    def _pass_on(self, module: HardwareModule, far_module: HardwareModule, minimum_clock: list[int]) -> None:
        """Make compute relay a token between unconnected modules."""
        if minimum_clock[far_module] <= self._clocks[module][far_module]:
            return
        # Compute may not know it either yet: an instruction of no work waits for it.
        if self._clocks[HardwareModule.COMPUTE][far_module] < minimum_clock[far_module]:
            clock = [0, 0, 0]
            clock[far_module] = minimum_clock[far_module]
            self._append(NOTHING, clock)
        # The earliest instruction of compute that knows it, so that no more is waited for than is needed.
        first = (
            bisect_left(
                self._clocks_after[HardwareModule.COMPUTE],
                minimum_clock[far_module],
                key=lambda clock: clock[far_module],
            )
            + 1
        )
        minimum_clock[HardwareModule.COMPUTE] = max(minimum_clock[HardwareModule.COMPUTE], first)

    def _push(self, giver: HardwareModule, number: int, taker: HardwareModule) -> None:
        # Tokens are pushed at the end of an instruction that may be far back in the stream by now.
        position = self._positions[giver][number - 1]
        flag = {"push_next": True} if taker > giver else {"push_prev": True}
        self.instructions[position] = replace(self.instructions[position], **flag)
        # Who takes a token learns all that its giver knew.
        clock = self._clocks_after[giver][number - 1]
        self._clocks[taker] = [max(pair) for pair in zip(self._clocks[taker], clock, strict=True)]
