"""What an instruction must not ask for, whatever its data: on any accelerator, or on a board."""

from __future__ import annotations

from collections.abc import Iterator

from boards.vta.config import Config, Memory
from boards.vta.instructions import Alu, AluOpcode, Gemm, Instruction, Load, Stage, Store
from boards.vta.scratchpads import nbytes

Broken = tuple[str, str]
"""A kind of violation, and a message."""

SHIFTS = (-16, 15)
"""What a board can shift by; it heeds the low five bits only."""


def broken(config: Config, each: Instruction, start: int, size: int, *, hardware: bool) -> Iterator[Broken]:
    """Yield each rule that an instruction breaks.

    Parameters
    ----------
    config : Config
        The accelerator.
    each : Instruction
        What to look at.
    start : int
        Where a transfer begins in memory, in bytes from its beginning.
    size : int
        Bytes of the memory.
    hardware : bool
        Whether to require what boards require, too.
    """
    yield from _flags(each)
    if isinstance(each, Load | Store):
        yield from _bounds(config, each, start, size)
        yield from _functional_transfer(each)
        if hardware:
            yield from _board_load(each) if isinstance(each, Load) else ()
    elif isinstance(each, Gemm | Alu):
        yield from _uops(config, each)
        if hardware and isinstance(each, Alu):
            yield from _board_alu(each)


def _flags(each: Instruction) -> Iterator[Broken]:
    if each.stage is Stage.LOAD and (each.pop_prev or each.push_prev):
        yield "flag", "load has no module before it"
    if each.stage is Stage.STORE and (each.pop_next or each.push_next):
        yield "flag", "store has no module behind it"


def _bounds(config: Config, each: Load | Store, start: int, size: int) -> Iterator[Broken]:
    if not each.x_size:
        return
    memory = Memory.OUT if isinstance(each, Store) else each.memory_type
    end = each.sram_base + each.height * each.width
    if end > config.depth(memory):
        yield "bounds", f"elements up to {end} of {memory.name}, which has {config.depth(memory)}"
    stop = start + nbytes(each, config.element_bytes(memory))
    if each.y_size and not 0 <= start <= stop <= size:
        yield "bounds", f"bytes {start} to {stop} of the memory, which has {size}"


def _functional_transfer(each: Load | Store) -> Iterator[Broken]:
    if isinstance(each, Load) and each.memory_type is Memory.OUT:
        yield "unsupported", "nothing can be loaded to OUT"
    if isinstance(each, Store) and each.padded:
        yield "unsupported", "a STORE has no padding"
    if isinstance(each, Store) and each.x_size and each.memory_type is not Memory.OUT:
        yield "unsupported", f"a STORE is from OUT, never from {each.memory_type.name}"


def _board_load(each: Load) -> Iterator[Broken]:
    if each.padded and (each.memory_type is not Memory.INP or not each.x_size):
        what = each.memory_type.name if each.x_size else "no elements"
        yield "unsupported", f"a board pads {what} otherwise than the functional simulator; only INP may be padded"
    if each.memory_type is Memory.ACC_8BIT:
        yield "unsupported", "a board has no ACC_8BIT and would load nothing; use GEMM with an identity matrix"
    if each.memory_type is Memory.UOP and each.x_size and each.y_size != 1:
        yield "unsupported", f"a board loads one row of micro-ops, not {each.y_size}"


def _uops(config: Config, each: Gemm | Alu) -> Iterator[Broken]:
    if each.count and each.uop_end > config.depth(Memory.UOP):
        yield "bounds", f"micro-ops up to {each.uop_end} of UOP, which has {config.depth(Memory.UOP)}"


def _board_alu(each: Alu) -> Iterator[Broken]:
    if each.alu_opcode is AluOpcode.MUL:
        yield "unsupported", "a board has no MUL"


def shifts(least: int, largest: int) -> Iterator[Broken]:
    """Yield what is wrong with the amounts of a SHR, of which these are the extremes."""
    if least < SHIFTS[0] or largest > SHIFTS[1]:
        wrong = least if least < SHIFTS[0] else largest
        yield "unsupported", f"a board shifts by {SHIFTS[0]} to {SHIFTS[1]}, not by {wrong}"
