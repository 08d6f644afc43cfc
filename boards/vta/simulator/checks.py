"""Checks: rules for instructions and programs, independent of data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from boards.vta.isa.config import Config, MemoryType
from boards.vta.isa.instructions import (
    Alu,
    AluOpcode,
    Finish,
    Gemm,
    HardwareModule,
    Instruction,
    LoadInstruction,
    StoreInstruction,
)
from boards.vta.simulator.scratchpads import nbytes
from boards.vta.simulator.token_queues import TokenQueues, pops
from boards.vta.simulator.vector_clocks import Clock, VectorClocks

BrokenRule = tuple[str, str]
"""A kind of violation, and a message."""

SHIFTS = (-16, 15)
"""Shift amounts on a board: VTA_SHR_ARG_BIT_WIDTH is 5 bits with sign."""


def instruction_violations(
    config: Config, instruction: Instruction, start: int, size: int, *, hardware: bool
) -> Iterator[BrokenRule]:
    """Yield the rules broken by an instruction.

    Parameters
    ----------
    config : Config
        The accelerator.
    instruction : Instruction
        Instruction to check.
    start : int
        Start of a transfer in memory, in bytes from its beginning.
    size : int
        Bytes of the memory.
    hardware : bool
        True also applies the rules of boards.
    """
    yield from _flags(instruction)
    if isinstance(instruction, LoadInstruction | StoreInstruction):
        yield from _bounds(config, instruction, start, size)
        yield from _functional_transfer(instruction)
        if hardware:
            yield from _board_load(instruction) if isinstance(instruction, LoadInstruction) else ()
    elif isinstance(instruction, Gemm | Alu):
        yield from _uops(config, instruction)
        if hardware and isinstance(instruction, Alu):
            yield from _board_alu(instruction)


def _flags(instruction: Instruction) -> Iterator[BrokenRule]:
    # vta.cc's load has a queue from and to compute only, and its store as well.
    if instruction.module is HardwareModule.LOAD and (instruction.pop_prev or instruction.push_prev):
        yield "flag", "load has no module before it"
    if instruction.module is HardwareModule.STORE and (instruction.pop_next or instruction.push_next):
        yield "flag", "store has no module behind it"


def _bounds(
    config: Config, transfer: LoadInstruction | StoreInstruction, start: int, size: int
) -> Iterator[BrokenRule]:
    if not transfer.x_size:
        return
    memory = MemoryType.OUT if isinstance(transfer, StoreInstruction) else transfer.memory_type
    end = transfer.sram_base + transfer.height * transfer.width
    if end > config.depth(memory):
        yield "bounds", f"elements up to {end} of {memory.name}, which has {config.depth(memory)}"
    stop = start + nbytes(transfer, config.element_bytes(memory))
    # Padding alone reads no memory.
    if transfer.y_size and not 0 <= start <= stop <= size:
        yield "bounds", f"bytes {start} to {stop} of the memory, which has {size}"


def _functional_transfer(transfer: LoadInstruction | StoreInstruction) -> Iterator[BrokenRule]:
    if isinstance(transfer, LoadInstruction) and transfer.memory_type is MemoryType.OUT:
        yield "unsupported", "nothing can be loaded to OUT"
    # sim_driver.cc checks that all four are 0, and `store` of vta.cc does not look at them.
    if isinstance(transfer, StoreInstruction) and transfer.padded:
        yield "unsupported", "a STORE has no padding"
    if isinstance(transfer, StoreInstruction) and transfer.x_size and transfer.memory_type is not MemoryType.OUT:
        yield "unsupported", f"a STORE is from OUT, never from {transfer.memory_type.name}"


def _board_load(load: LoadInstruction) -> Iterator[BrokenRule]:
    if load.padded and (load.memory_type is not MemoryType.INP or not load.x_size):
        operand = load.memory_type.name if load.x_size else "no elements"
        yield "unsupported", f"a board pads {operand} otherwise than the functional simulator; only INP may be padded"
    # `compute` of vta.cc has branches for UOP and ACC, and passes over any other kind.
    if load.memory_type is MemoryType.ACC_8BIT:
        yield "unsupported", "a board has no ACC_8BIT and would load nothing; use GEMM with an identity matrix"
    # There, vta.cc copies `x_size` micro-ops once, whatever `y_size` says.
    if load.memory_type is MemoryType.UOP and load.x_size and load.y_size != 1:
        yield "unsupported", f"a board loads one row of micro-ops, not {load.y_size}"


def _uops(config: Config, instruction: Gemm | Alu) -> Iterator[BrokenRule]:
    if instruction.count and instruction.uop_end > config.depth(MemoryType.UOP):
        yield "bounds", f"micro-ops up to {instruction.uop_end} of UOP, which has {config.depth(MemoryType.UOP)}"


def _board_alu(instruction: Alu) -> Iterator[BrokenRule]:
    # `alu` of vta.cc has no branch for it.
    if instruction.alu_opcode is AluOpcode.MUL:
        yield "unsupported", "a board has no MUL"


def shift_violations(smallest: int, largest: int) -> Iterator[BrokenRule]:
    """Yield the rules broken by a SHR's extreme amounts."""
    if smallest < SHIFTS[0] or largest > SHIFTS[1]:
        amount = smallest if smallest < SHIFTS[0] else largest
        yield "unsupported", f"a board shifts by {SHIFTS[0]} to {SHIFTS[1]}, not by {amount}"


def program_violations(
    instructions: Sequence[Instruction], queues: TokenQueues[Clock], order: VectorClocks, *, hardware: bool
) -> Iterator[tuple[int, BrokenRule]]:
    """Yield a program's broken rules with an instruction index, or -1."""
    waiting_indices = queues.next_instructions()
    if waiting_indices:
        waits = (
            f"{index} ({instructions[index].module.name.lower()}) waits for {_describe_waits(queues, index)}"
            for index in waiting_indices
        )
        yield min(waiting_indices), ("deadlock", "; ".join(waits))
    # The queues of a board keep them, so that the next program would start too early.
    for taker, tokens in queues.remaining_tokens():
        remainder = f", nor {len(tokens) - 1} more" if len(tokens) > 1 else ""
        yield tokens[0].index, ("token", f"nobody takes its token for {taker.name.lower()}{remainder}")
    yield from _finish_violations(instructions)
    # After a deadlock, FINISH knows little, and the deadlock is the reason.
    if not waiting_indices and instructions and isinstance(instructions[-1], Finish):
        for index in order.unconfirmed_instructions(HardwareModule.COMPUTE):
            yield index, ("finish", "no token tells FINISH that this is over")
    if hardware:
        yield from _first_compute_violations(instructions)


def _describe_waits(queues: TokenQueues[Clock], index: int) -> str:
    return " and ".join(queues.awaited_tokens(index))


def _finish_violations(instructions: Sequence[Instruction]) -> Iterator[tuple[int, BrokenRule]]:
    last = len(instructions) - 1
    for index, instruction in enumerate(instructions[:-1]):
        if isinstance(instruction, Finish):
            yield index, ("finish", "only the last instruction may be FINISH")
    if not instructions or not isinstance(instructions[-1], Finish):
        yield last, ("finish", "the last instruction must be FINISH")


def _first_compute_violations(instructions: Sequence[Instruction]) -> Iterator[tuple[int, BrokenRule]]:
    """Check for compute first: a board's old done flag stays until it begins."""
    for index, instruction in enumerate(instructions):
        if instruction.module is HardwareModule.COMPUTE:
            # vta.cc waits for the tokens first, and clears the flag then.
            if pops(instruction):
                yield index, ("finish", "the first instruction of compute waits; until then, an old done flag is seen")
            return
