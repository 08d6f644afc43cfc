"""VtaProgram: an instruction stream and its memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from boards.vta.isa.config import Config, MemoryType
from boards.vta.isa.encoding import Words, decode, encode
from boards.vta.isa.instructions import Instruction, LoadInstruction, StoreInstruction
from pipeline.errors import InstructionError

# VTA_PAGE_BYTES of driver.h: boards' allocators give whole pages.
PAGE = 4096


@dataclass(frozen=True, eq=False)
class VtaProgram:
    """Instructions for the accelerator, and the memory before them.

    Attributes
    ----------
    config : Config
        The accelerator it is made for.
    instructions : tuple of Instruction
        Instructions in the order of fetching; the last one is FINISH.
    memory : uint8[n]
        The bytes that it may reach: micro-ops, weights, inputs, room for results.  Never written to.
    base : int
        Byte address of the first of them.
    """

    config: Config
    instructions: tuple[Instruction, ...]
    memory: npt.NDArray[np.uint8]
    base: int = 0

    @classmethod
    def of_stream(cls, config: Config, stream: Words, memory: npt.NDArray[np.uint8], base: int = 0) -> VtaProgram:
        """Return the program of an encoded stream ``uint64[n, 2]``."""
        return cls(config, decode(config, stream), memory, base)

    def stream(self) -> Words:
        """Return the encoded instructions, ``uint64[n, 2]``, or raise `InstructionError`."""
        return encode(self.config, self.instructions)

    def start_of(self, instruction: Instruction) -> int:
        """First byte of a transfer in memory, else 0."""
        if not isinstance(instruction, LoadInstruction | StoreInstruction):
            return 0
        memory = MemoryType.OUT if isinstance(instruction, StoreInstruction) else instruction.memory_type
        return instruction.dram_base * self.config.element_bytes(memory) - self.base

    def relocate(self, base: int) -> VtaProgram:
        """Return the program for memory at another byte address.

        Raises
        ------
        InstructionError
            If the two addresses are not whole pages apart.
        """
        distance = base - self.base
        # A page is a multiple of every element, so that each `dram_base` remains a whole number.
        if distance % PAGE:
            raise InstructionError(
                f"memory cannot move from {self.base:#x} to {base:#x}; only by pages of {PAGE} bytes"
            )
        return replace(
            self,
            base=base,
            instructions=tuple(self._relocate(instruction, distance) for instruction in self.instructions),
        )

    def _relocate(self, instruction: Instruction, distance: int) -> Instruction:
        # Without elements nothing is addressed: such a `dram_base` of 0 could become negative.
        if not isinstance(instruction, LoadInstruction | StoreInstruction) or not (
            instruction.x_size and instruction.y_size
        ):
            return instruction
        memory = MemoryType.OUT if isinstance(instruction, StoreInstruction) else instruction.memory_type
        return replace(instruction, dram_base=instruction.dram_base + distance // self.config.element_bytes(memory))
