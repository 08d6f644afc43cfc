"""Timing: an estimate of a program's cycles.

The model, whose constants are assumptions, for no board has been measured:

* Instructions are fetched one after the other, at the pace of the bus; that takes nothing from the other transfers.
* A module begins an instruction when it has ended the one before, the instruction is fetched, and its tokens are
  there; it ends `STARTING` cycles (decoding, filling and draining the pipeline) plus the work later, and then pushes.
* GEMM works one micro-op per cycle, ALU one in two cycles.
* Each row of a transfer is a burst of its own: `BURST` cycles until its first byte.  All modules share one bus of
  `bus_bytes` per cycle; data waits until the bus is free.  Each element of padding takes a cycle.
"""

from __future__ import annotations

from boards.vta.isa.config import INSTRUCTION_BYTES, Config, MemoryType
from boards.vta.isa.instructions import Alu, Gemm, HardwareModule, Instruction, LoadInstruction, StoreInstruction
from boards.vta.isa.program import VtaProgram
from boards.vta.simulator.result import Cycles
from boards.vta.simulator.token_queues import DependenceToken, TokenQueues

# The first two are guesses; the third is `HLS PIPELINE II = 2` of the ALU's loop in vta.cc, where GEMM has 1.
STARTING = 12
BURST = 24
_ALU_CYCLES = 2


def estimate(program: VtaProgram) -> Cycles | None:
    """Estimate a program's cycles; None if it never ends."""
    instructions = program.instructions
    queues = TokenQueues[int](instructions, with_limits=True)
    clock = _ModuleClocks(program.config)
    count = 0
    while ready := queues.ready():
        # The earliest first, so that the bus serves whoever asks first.
        starts = {index: clock.start(index, instructions[index], queues.offered_tokens(index)) for index in ready}
        index = min(starts, key=starts.__getitem__)
        queues.take(index)
        queues.give(index, clock.execute(instructions[index], starts[index]))
        count += 1
    return clock.cycles() if count == len(instructions) else None


class _ModuleClocks:
    """Cycles at which modules and bus become free."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._free = dict.fromkeys(HardwareModule, 0)
        self._busy = dict.fromkeys(HardwareModule, 0)
        self._bus = 0
        self._gemm = 0

    def start(self, index: int, instruction: Instruction, tokens: list[DependenceToken[int]]) -> int:
        """Return an instruction's earliest start cycle."""
        # Whole beats of the bus; a beat brings half an instruction on a PYNQ, and one on an Ultra96.
        fetch_end = -(-(index + 1) * INSTRUCTION_BYTES // self._config.board.bus_bytes)
        return max(fetch_end, self._free[instruction.module], *(token.payload for token in tokens), 0)

    def execute(self, instruction: Instruction, start: int) -> int:
        """Return the end cycle of an instruction from `start`."""
        end = start + STARTING
        if isinstance(instruction, Gemm | Alu):
            end += instruction.count * (_ALU_CYCLES if isinstance(instruction, Alu) else 1)
            # A reset takes as long, but multiplies nothing that counts.
            self._gemm += instruction.count if isinstance(instruction, Gemm) and not instruction.reset_reg else 0
        elif isinstance(instruction, LoadInstruction | StoreInstruction):
            end = self._transfer_end(instruction, end)
        self._free[instruction.module] = end
        self._busy[instruction.module] += end - start
        return end

    def _transfer_end(self, transfer: LoadInstruction | StoreInstruction, request: int) -> int:
        if not transfer.x_size:
            return request
        memory = MemoryType.OUT if isinstance(transfer, StoreInstruction) else transfer.memory_type
        count = transfer.y_size * transfer.x_size
        padding = transfer.height * transfer.width - count
        # The rows' latencies add up; meanwhile the bus may serve another module.
        first = max(request + transfer.y_size * BURST, self._bus)
        data = -(-count * self._config.element_bytes(memory) // self._config.board.bus_bytes)
        self._bus = first + data
        # Zeros are written inside of the accelerator, with the bus free again.
        return self._bus + padding

    def cycles(self) -> Cycles:
        """Return the counts."""
        load, compute, store = (self._busy[module] for module in HardwareModule)
        return Cycles(load, compute, store, max(self._free.values()), self._gemm, self._config.board.clock_hz)
