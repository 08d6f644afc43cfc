"""Which elements of the memories that modules share an instruction reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from boards.vta.config import Config, Memory
from boards.vta.instructions import Alu, Gemm, Load, Store
from boards.vta.patterns import Piece
from boards.vta.stamps import Where

DRAM = "DRAM"


@dataclass(frozen=True, eq=False)
class Access:
    """Some elements that one instruction touches.

    Attributes
    ----------
    place : str
        The name of a scratchpad, or `DRAM`.  OUT and ACC count as one: what is computed next to an element
        that still has to be stored destroys it in either.
    where : slice or int64[...]
        The elements; in DRAM, pieces of `grain` bytes.
    writes : bool
        Whether they are written.
    """

    place: str
    where: Where
    writes: bool


def grain(config: Config) -> int:
    """Return the bytes that the elements of all memories are multiples of."""
    return min(4, config.element_bytes(Memory.OUT))


def of_transfer(config: Config, each: Load | Store, start: int) -> Iterator[Access]:
    """Yield what a transfer touches whose DRAM side begins at byte `start` of the memory."""
    if not each.x_size:
        return
    loads = isinstance(each, Load)
    memory = each.memory_type if loads else Memory.OUT
    yield Access(_place(memory), slice(each.sram_base, each.sram_base + each.height * each.width), writes=loads)
    if each.y_size:
        yield Access(
            DRAM, _dram(each, start // grain(config), config.element_bytes(memory) // grain(config)), not loads
        )


def of_piece(each: Gemm | Alu, piece: Piece) -> Iterator[Access]:
    """Yield what some micro-ops of an instruction touch; ACC is written only, since no other module writes it."""
    if isinstance(each, Gemm) and not each.reset_reg:
        yield Access("INP", piece.srcs, writes=False)
        yield Access("WGT", piece.wgts, writes=False)
    yield Access("ACC", piece.dsts, writes=True)


def _place(memory: Memory) -> str:
    return "ACC" if memory in (Memory.OUT, Memory.ACC_8BIT) else memory.name


def _dram(each: Load | Store, start: int, unit: int) -> Where:
    row, stride = each.x_size * unit, each.x_stride * unit
    if each.y_size == 1 or row == stride:
        return slice(start, start + each.y_size * row)
    return start + np.arange(each.y_size)[:, None] * stride + np.arange(row)


def sizes(config: Config, nbytes: int) -> dict[str, int]:
    """Return the elements of each place, for a memory of so many bytes."""
    places = {memory.name: config.depth(memory) for memory in (Memory.UOP, Memory.INP, Memory.WGT, Memory.ACC)}
    return {**places, DRAM: -(-nbytes // grain(config))}
