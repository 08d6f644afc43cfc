"""Bounds of a loaded program: its reach in addresses and instructions."""

from __future__ import annotations

from boards.vta.isa.instructions import Finish
from boards.vta.isa.program import PAGE, VtaProgram
from boards.vta.simulator.checks import instruction_violations

_ADDRESSES = 1 << 32
"""Addressable bytes of a program: address registers have 32 bits."""


def describe_misfit(program: VtaProgram) -> str:
    """Describe a number out of memory or scratchpad bounds, else empty.

    A board checks no address: what a program stores outside of its memory lands in that of another process.
    """
    size = program.memory.nbytes
    if program.base % PAGE or not 0 <= program.base <= _ADDRESSES - size:
        return (
            f"base is {program.base}; it must be a multiple of {PAGE}, and {size} bytes behind it within {_ADDRESSES}"
        )
    # Without FINISH, compute never says that it is over, and the driver waits until its time is up.
    if not program.instructions or not isinstance(program.instructions[-1], Finish):
        return f"the last of its {len(program.instructions)} instructions is not FINISH"
    for index, instruction in enumerate(program.instructions):
        start = program.start_of(instruction)
        for kind, message in instruction_violations(program.config, instruction, start, size, hardware=False):
            # Rules that depend on the order, or on a board's version, are the simulator's business.
            if kind == "bounds":
                return f"with base {program.base}, instruction {index} reaches {message}"
    return ""
