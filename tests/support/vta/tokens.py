"""The dependence tokens of a program: how many there are, and the program without one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from boards.vta import VtaProgram
from boards.vta.isa.instructions import HardwareModule, Instruction

# Whether it pops or pushes, and on which side: for each of the four queues, who gives and who takes.
QUEUES = [
    (HardwareModule.LOAD, "push_next", HardwareModule.COMPUTE, "pop_prev"),
    (HardwareModule.COMPUTE, "push_prev", HardwareModule.LOAD, "pop_next"),
    (HardwareModule.COMPUTE, "push_next", HardwareModule.STORE, "pop_prev"),
    (HardwareModule.STORE, "push_prev", HardwareModule.COMPUTE, "pop_next"),
]


def remove_token(program: VtaProgram, queue: int, number: int) -> VtaProgram:
    """Return the program without the n-th token of a queue."""
    giver, push, taker, pop = QUEUES[queue]
    instructions = list(program.instructions)
    for module, flag in ((giver, push), (taker, pop)):
        index = flagged_indices(instructions, module, flag)[number]
        instructions[index] = replace(instructions[index], **{flag: False})
    return replace(program, instructions=tuple(instructions))


def flagged_indices(instructions: Sequence[Instruction], module: HardwareModule, flag: str) -> list[int]:
    return [index for index, each in enumerate(instructions) if each.module is module and getattr(each, flag)]


def count_tokens(program: VtaProgram, queue: int) -> int:
    """Return how many tokens pass a queue."""
    return len(flagged_indices(program.instructions, *QUEUES[queue][:2]))
