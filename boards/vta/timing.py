"""How long a program takes: an estimate in cycles.

The model, whose constants are assumptions, for no board has been measured:

* Instructions are fetched one after the other, at the pace of the bus; that takes nothing from the other transfers.
* A module begins an instruction when it has ended the one before, the instruction is fetched, and its tokens are
  there; it ends `STARTING` cycles (decoding, filling and draining the pipeline) plus the work later, and then pushes.
* GEMM works one micro-op per cycle, ALU one in two cycles.
* Each row of a transfer is a burst of its own: `BURST` cycles until its first byte.  All modules share one bus of
  `bus_bytes` per cycle; data waits until the bus is free.  Each element of padding takes a cycle.
"""

from __future__ import annotations

from boards.vta.config import INSTRUCTION_BYTES, Config, Memory
from boards.vta.instructions import Alu, Gemm, Instruction, Load, Stage, Store
from boards.vta.machine import Machine, Token
from boards.vta.program import Program
from boards.vta.result import Cycles

STARTING = 12
BURST = 24
_ALU_CYCLES = 2


def estimate(program: Program) -> Cycles | None:
    """Return the estimated time of a program; None if it never ends."""
    instructions = program.instructions
    machine = Machine[int](instructions, bounded=True)
    clock = _Clock(program.config)
    over = 0
    while ready := machine.ready():
        # The earliest first, so that the bus serves whoever asks first.
        starts = {index: clock.start(index, instructions[index], machine.offered(index)) for index in ready}
        index = min(starts, key=starts.__getitem__)
        machine.take(index)
        machine.give(index, clock.execute(instructions[index], starts[index]))
        over += 1
    return clock.cycles() if over == len(instructions) else None


class _Clock:
    """When each module, and the bus, will be free."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._free = dict.fromkeys(Stage, 0)
        self._busy = dict.fromkeys(Stage, 0)
        self._bus = 0
        self._gemm = 0

    def start(self, index: int, each: Instruction, tokens: list[Token[int]]) -> int:
        """Return when an instruction can begin."""
        fetched = -(-(index + 1) * INSTRUCTION_BYTES // self._config.board.bus_bytes)
        return max(fetched, self._free[each.stage], *(token.payload for token in tokens), 0)

    def execute(self, each: Instruction, start: int) -> int:
        """Return when an instruction that begins at `start` ends."""
        end = start + STARTING
        if isinstance(each, Gemm | Alu):
            end += each.count * (_ALU_CYCLES if isinstance(each, Alu) else 1)
            self._gemm += each.count if isinstance(each, Gemm) and not each.reset_reg else 0
        elif isinstance(each, Load | Store):
            end = self._transferred(each, end)
        self._free[each.stage] = end
        self._busy[each.stage] += end - start
        return end

    def _transferred(self, each: Load | Store, asked: int) -> int:
        if not each.x_size:
            return asked
        memory = Memory.OUT if isinstance(each, Store) else each.memory_type
        count = each.y_size * each.x_size
        padding = each.height * each.width - count
        first = max(asked + each.y_size * BURST, self._bus)
        data = -(-count * self._config.element_bytes(memory) // self._config.board.bus_bytes)
        self._bus = first + data
        return self._bus + padding

    def cycles(self) -> Cycles:
        """Return what has been counted."""
        load, compute, store = (self._busy[stage] for stage in Stage)
        return Cycles(load, compute, store, max(self._free.values()), self._gemm, self._config.board.clock_hz)
