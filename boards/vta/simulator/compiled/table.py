"""Instruction table: a program as numbers, if statically sound."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from operator import attrgetter
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

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
from boards.vta.isa.program import VtaProgram

Numbers: TypeAlias = npt.NDArray[np.int64]


class Action(IntEnum):
    """Actions of instructions; loads by memory, ALU kinds by `alu_action`."""

    NOTHING = -1
    LOAD_UOP = MemoryType.UOP
    LOAD_WGT = MemoryType.WGT
    LOAD_INP = MemoryType.INP
    LOAD_ACC = MemoryType.ACC
    LOAD_ACC_8BIT = MemoryType.ACC_8BIT
    STORE = 6
    GEMM = 7
    RESET = 8
    ALU = 9


ORDER = ("action", "number", "known_load", "known_compute", "known_store")
"""Columns of every row: action, number in its module, and instructions of every module known to be over."""

_SRAM = ("sram_base", "y_size", "x_size", "x_stride", "y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
TRANSFER = (*_SRAM, "start")
"""Further columns of a transfer, whose first byte in memory is `start`."""

_FACTORS = tuple(f"{index}_factor_{loop}" for index in ("dst", "src", "wgt") for loop in ("out", "in"))
LOOPS = ("uop_bgn", "uop_end", "iter_out", "iter_in", *_FACTORS, "imm")
"""Further columns of a GEMM or ALU; what one of them lacks is 0."""

WIDTH = len(ORDER) + max(len(TRANSFER), len(LOOPS))

_LARGEST = 1 << 24
"""More than any size, index or factor; products of two such numbers are exact in 64 bits."""

_LARGEST_BASE = 1 << 40

_Tokens: TypeAlias = "deque[tuple[int, ...]]"
"""Tokens of a queue, with their payloads."""

_dependences = attrgetter("module", "pop_prev", "pop_next", "push_prev", "push_next")


def alu_action(opcode: AluOpcode, *, use_imm: bool) -> int:
    """Return the action of an ALU instruction."""
    return Action.ALU + opcode + (len(AluOpcode) if use_imm else 0)


def instruction_table(program: VtaProgram) -> Numbers | None:
    """Return one row per instruction, in an executable order.

    Returns
    -------
    int64[n, WIDTH] or None
        Rows of the instructions; None where something is wrong, or so odd that only the careful simulation can tell
        what it is.
    """
    clocks = serial_clocks(program.instructions)
    if clocks is None:
        return None
    table = np.zeros((len(clocks), WIDTH), np.int64)
    table[:, 0] = Action.NOTHING
    table[:, 1 : len(ORDER)] = clocks
    try:
        sound = _fill_transfers(program, table) and _fill_loops(program, table)
    except OverflowError:  # a number that no field holds
        return None
    return table if sound else None


def serial_clocks(instructions: Sequence[Instruction]) -> list[tuple[int, ...]] | None:
    """Return the clocks of `ORDER` for instructions executed serially.

    The result is None if that is impossible for want of a token, if a token is left over, or if FINISH is not the last
    one, the only one, and told that all others are over.  A module's knowledge is that of
    `simulator.vector_clocks.VectorClocks`.
    """
    clocks = [[0] * len(HardwareModule) for _ in HardwareModule]
    # By taker: the tokens of the module before it and of the one behind it; None where there is none.
    ahead: tuple[_Tokens | None, ...] = (None, deque(), deque())
    following: tuple[_Tokens | None, ...] = (deque(), deque(), None)
    rows = []
    for module, pop_prev, pop_next, push_prev, push_next in map(_dependences, instructions):
        clock = clocks[module]
        for queue in (*((ahead[module],) if pop_prev else ()), *((following[module],) if pop_next else ())):
            if not queue:
                return None
            clock[:] = map(max, clock, queue.popleft())
        clock[module] += 1
        snapshot = tuple(clock)
        rows.append((snapshot[module], *snapshot))
        for pushes, step, queues in ((push_prev, -1, following), (push_next, 1, ahead)):
            if pushes:
                taker = queues[module + step] if 0 <= module + step < len(HardwareModule) else None
                if taker is None:
                    return None
                taker.append(snapshot)
    return rows if _finishes(instructions, clocks) and not any(ahead) and not any(following) else None


def _finishes(instructions: Sequence[Instruction], clocks: Sequence[Sequence[int]]) -> bool:
    """Check for one FINISH, last, and after all others."""
    ends = [isinstance(instruction, Finish) for instruction in instructions]
    # FINISH is compute's last: that must know of every instruction of the other modules.
    counts = [clocks[module][module] for module in HardwareModule]
    return sum(ends) == 1 and ends[-1] and clocks[HardwareModule.COMPUTE] == counts


def _fill_transfers(program: VtaProgram, table: Numbers) -> bool:
    """Fill the rows of LOAD and STORE; return if they obey `boards.vta.simulator.checks`."""
    positions = [
        index
        for index, instruction in enumerate(program.instructions)
        if isinstance(instruction, LoadInstruction | StoreInstruction)
    ]
    transfers = [program.instructions[index] for index in positions]
    fields = _columns(transfers, (*_SRAM, "dram_base", "memory_type"))
    if not fields.size:
        return True
    sram, dram, memory = fields[:, : len(_SRAM)], fields[:, -2], fields[:, -1]
    if sram.min() < 0 or sram.max() >= _LARGEST or dram.min() < 0 or dram.max() >= _LARGEST_BASE:
        return False
    base, y_size, x_size, x_stride, *pads = sram.T
    stores = np.array([isinstance(instruction, StoreInstruction) for instruction in transfers])
    moves, reaches = x_size > 0, (x_size > 0) & (y_size > 0)
    unit, depth = _sizes(program.config)
    # Any STORE is from OUT; `dram_base` counts elements of the scratchpad.
    scratchpad = np.where(stores, MemoryType.OUT, memory)
    start = dram * unit[scratchpad] - program.base
    stop = start + ((y_size - 1) * x_stride + x_size) * unit[scratchpad]
    elements = (pads[0] + y_size + pads[1]) * (pads[2] + x_size + pads[3])
    # The same rules as `checks` has, for all transfers at once; which one is broken does not matter here.
    violations = moves & (base + elements > depth[scratchpad])
    violations |= reaches & ((start < 0) | (stop > program.memory.size))
    violations |= np.where(stores, sum(pads) > 0, memory == MemoryType.OUT)
    violations |= stores & moves & (memory != MemoryType.OUT)
    rows = table[positions]
    rows[:, 0] = np.where(moves, np.where(stores, Action.STORE, memory), Action.NOTHING)
    rows[:, len(ORDER) : len(ORDER) + len(TRANSFER)] = np.column_stack((sram, start))
    table[positions] = rows
    return not violations.any()


def _sizes(config: Config) -> tuple[Numbers, Numbers]:
    """Return element bytes and element counts per scratchpad."""
    return (
        np.array([config.element_bytes(memory) for memory in MemoryType]),
        np.array([config.depth(memory) for memory in MemoryType]),
    )


def _fill_loops(program: VtaProgram, table: Numbers) -> bool:
    """Fill the rows of GEMM and ALU; return if micro-ops lie inside."""
    positions = [index for index, instruction in enumerate(program.instructions) if isinstance(instruction, Gemm | Alu)]
    loops = [program.instructions[index] for index in positions]
    if not loops:
        return True
    fields = np.zeros((len(loops), len(LOOPS)), np.int64)
    # A GEMM has no immediate, an ALU instruction no factors of weights.
    for kind, names in ((Gemm, LOOPS[:-1]), (Alu, (*LOOPS[:-3], LOOPS[-1]))):
        rows = [index for index, instruction in enumerate(loops) if isinstance(instruction, kind)]
        columns = [LOOPS.index(name) for name in names]
        if rows:
            fields[np.ix_(rows, columns)] = _columns([loops[index] for index in rows], names)
    counts = fields[:, :-1]
    # An immediate may be negative, and fits 32 bits; all other numbers are indices, counts and factors.
    if counts.min() < 0 or counts.max() >= _LARGEST or np.abs(fields[:, -1]).max() >= 1 << 31:
        return False
    begin, end, outer_turns, inner_turns = counts[:, :4].T
    works = (outer_turns > 0) & (inner_turns > 0) & (end > begin)
    table[positions, 0] = np.where(works, [_loop_action(instruction) for instruction in loops], Action.NOTHING)
    table[positions, len(ORDER) : len(ORDER) + len(LOOPS)] = fields
    return not (works & (end > program.config.depth(MemoryType.UOP))).any()


def _loop_action(instruction: Instruction) -> int:
    if isinstance(instruction, Alu):
        return alu_action(instruction.alu_opcode, use_imm=instruction.use_imm)
    return Action.RESET if isinstance(instruction, Gemm) and instruction.reset_reg else Action.GEMM


def _columns(instructions: Sequence[Instruction], names: Sequence[str]) -> Numbers:
    """Return some fields of each instruction, ``int64[n, fields]``."""
    # With a row as its type, `fromiter` needs no list of tuples in between.
    row = np.dtype((np.int64, len(names)))
    return np.fromiter(map(attrgetter(*names), instructions), row, len(instructions))
