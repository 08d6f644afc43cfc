"""ProgramBuilder: assembles instructions, micro-ops and memory into a program."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.compiler.dependences import UnlinkedInstruction, link_dependences
from boards.vta.isa.config import Config, MemoryType
from boards.vta.isa.encoding import Uops
from boards.vta.isa.instructions import Alu, Gemm, LoadInstruction, StoreInstruction
from boards.vta.isa.program import PAGE, VtaProgram
from boards.vta.simulator import accesses
from boards.vta.simulator.accesses import Access


class ProgramBuilder:
    """Appends instructions in serial order; `program` adds the tokens.

    Memory begins at byte address `PAGE`, because the functional simulator refuses the address 0.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self._size = 0
        self._contents: list[tuple[int, npt.NDArray[np.uint8]]] = []
        self._works: list[UnlinkedInstruction] = []
        # The micro-ops that UOP holds from the work number `_section` on.
        self._section = 0
        self._begins: dict[bytes, int] = {}
        self._words: list[Uops] = []

    def room(self, nbytes: int) -> int:
        """Reserve whole pages of memory and return their address."""
        address = PAGE + self._size
        self._size += -(-nbytes // PAGE) * PAGE
        return address

    def constant(self, values: npt.NDArray[Any]) -> int:
        """Put values into memory, and return their address."""
        address = self.room(values.nbytes)
        self._contents.append((address - PAGE, np.ascontiguousarray(values).reshape(-1).view(np.uint8)))
        return address

    def element(self, memory: MemoryType, address: int) -> int:
        """Return the `dram_base` of an address."""
        return address // self.config.element_bytes(memory)

    def load(
        self, memory: MemoryType, sram: int, dram: int, shape: tuple[int, int], stride: int = 0, **pads: int
    ) -> None:
        """Append a LOAD of ``shape`` rows and elements."""
        values: dict[str, Any] = {"y_size": shape[0], "x_size": shape[1], "x_stride": stride or shape[1], **pads}
        self._works.append(
            self._unlinked_transfer(LoadInstruction(memory_type=memory, sram_base=sram, dram_base=dram, **values))
        )

    def store(self, sram: int, dram: int, shape: tuple[int, int], stride: int = 0) -> None:
        """Append a STORE of ``shape`` rows and elements."""
        values: dict[str, Any] = {"y_size": shape[0], "x_size": shape[1], "x_stride": stride or shape[1]}
        self._works.append(self._unlinked_transfer(StoreInstruction(sram_base=sram, dram_base=dram, **values)))

    def _unlinked_transfer(self, transfer: LoadInstruction | StoreInstruction) -> UnlinkedInstruction:
        memory = MemoryType.OUT if isinstance(transfer, StoreInstruction) else transfer.memory_type
        start = transfer.dram_base * self.config.element_bytes(memory) - PAGE
        return UnlinkedInstruction(transfer, tuple(accesses.transfer_accesses(self.config, transfer, start)))

    def compute(self, instruction: Gemm | Alu, *touches: Access) -> None:
        """Append a GEMM or ALU instruction with its accesses."""
        self._works.append(UnlinkedInstruction(instruction, touches))

    def uops(self, words: Uops) -> int:
        """Place micro-ops in UOP and return the first index.

        As many as UOP holds are loaded at once, before the first of them is used: that waits for the bus only once.
        """
        # Tiles of one shape share their micro-ops, so that most are in UOP already.
        key = words.tobytes()
        if key not in self._begins:
            begin = sum(map(len, self._words))
            if begin + len(words) > self.config.depth(MemoryType.UOP):
                self._load_uops()
                begin = 0
            self._begins[key] = begin
            self._words.append(words)
        return self._begins[key]

    def _load_uops(self) -> None:
        """Load the collected micro-ops and start a new collection."""
        if self._words:
            words = np.concatenate(self._words)
            dram = self.element(MemoryType.UOP, self.constant(words))
            load = LoadInstruction(
                memory_type=MemoryType.UOP, dram_base=dram, y_size=1, x_size=len(words), x_stride=len(words)
            )
            # In front of the first work that uses them.  Compute loads and uses UOP alone and in order, so that the
            # next list needs no token to wait for this one.
            self._works.insert(self._section, self._unlinked_transfer(load))
        self._section, self._begins, self._words = len(self._works), {}, []

    def program(self) -> VtaProgram:
        """Return the program; unassigned memory is 0."""
        self._load_uops()
        # Inputs and results are zeros, and so are the channels that fill up a last block.
        memory = np.zeros(self._size, np.uint8)
        for start, values in self._contents:
            memory[start : start + values.size] = values
        instructions = link_dependences(self._works, accesses.memory_sizes(self.config, self._size))
        return VtaProgram(self.config, instructions, memory, PAGE)


def span(start: int, count: int) -> slice:
    """Return a range of elements."""
    return slice(start, start + count)
