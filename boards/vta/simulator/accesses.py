"""Accesses: an instruction's reads and writes in shared memories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from boards.vta.isa.config import Config, MemoryType
from boards.vta.isa.instructions import Alu, Gemm, LoadInstruction, StoreInstruction
from boards.vta.simulator.access_patterns import MicroOpPiece
from boards.vta.simulator.vector_clocks import Where

DRAM = "DRAM"


@dataclass(frozen=True, eq=False)
class Access:
    """Elements under one access of an instruction.

    Attributes
    ----------
    memory_name : str
        The name of a scratchpad, or `DRAM`.  OUT and ACC count as one: what is computed next to an element
        that still has to be stored destroys it in either.
    elements : slice or int64[...]
        The elements; in DRAM, pieces of `grain` bytes.
    writes : bool
        True if they are written.
    """

    memory_name: str
    elements: Where
    writes: bool


def grain_bytes(config: Config) -> int:
    """Greatest common divisor of element bytes over all memories."""
    # One stamp for each grain instead of for each byte: a quarter of the memory and the time.
    return min(4, config.element_bytes(MemoryType.OUT))


def transfer_accesses(config: Config, transfer: LoadInstruction | StoreInstruction, start: int) -> Iterator[Access]:
    """Yield a transfer's accesses from byte `start` of memory."""
    # Such an instruction only passes tokens on.
    if not transfer.x_size:
        return
    loads = isinstance(transfer, LoadInstruction)
    memory = transfer.memory_type if loads else MemoryType.OUT
    yield Access(
        "ACC" if memory in (MemoryType.OUT, MemoryType.ACC_8BIT) else memory.name,
        slice(transfer.sram_base, transfer.sram_base + transfer.height * transfer.width),
        writes=loads,
    )
    # Without rows there may still be padding, which touches the scratchpad alone.
    if transfer.y_size:
        yield Access(
            DRAM,
            _dram(transfer, start // grain_bytes(config), config.element_bytes(memory) // grain_bytes(config)),
            not loads,
        )


def piece_accesses(instruction: Gemm | Alu, piece: MicroOpPiece) -> Iterator[Access]:
    """Yield the accesses of some micro-ops.

    ACC is noted as written only, even where it is read: no other module writes it, so that a read conflicts with
    nothing.
    """
    if isinstance(instruction, Gemm) and not instruction.reset_reg:
        yield Access("INP", piece.srcs, writes=False)
        yield Access("WGT", piece.wgts, writes=False)
    yield Access("ACC", piece.dsts, writes=True)


def _dram(transfer: LoadInstruction | StoreInstruction, start: int, unit: int) -> Where:
    row, stride = transfer.x_size * unit, transfer.x_stride * unit
    # A slice where it is possible: marking it is much cheaper than marking indices.
    if transfer.y_size == 1 or row == stride:
        return slice(start, start + transfer.y_size * row)
    return start + np.arange(transfer.y_size)[:, None] * stride + np.arange(row)


def memory_sizes(config: Config, nbytes: int) -> dict[str, int]:
    """Elements per memory, for `nbytes` of DRAM."""
    depths = {
        memory.name: config.depth(memory) for memory in (MemoryType.UOP, MemoryType.INP, MemoryType.WGT, MemoryType.ACC)
    }
    return {**depths, DRAM: -(-nbytes // grain_bytes(config))}
