"""Epilogue: what happens to a tile beside the sum: reset and bias before, shift and clipping after."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.accesses import Access
from boards.vta.compiler.bias import as_weights, multipliers
from boards.vta.compiler.builder import Builder, span
from boards.vta.compiler.layers import Ending
from boards.vta.compiler.packing import pack_constants
from boards.vta.compiler.tiles import SLOTS, Reserved, Tile
from boards.vta.config import Memory
from boards.vta.encoding import pack_uops
from boards.vta.instructions import Alu, AluOpcode, Gemm

_LONGEST_SHIFT = 15
_LONGEST_LEFT = 16
_SIGN = 31


class Epilogue:
    """The constants of a layer, at the ends of the scratchpads, and the instructions that use them.

    Parameters
    ----------
    builder : Builder
        Where to append.
    ending : Ending
        What to do.

    Attributes
    ----------
    reserved : Reserved
        How many elements the constants take.
    """

    def __init__(self, builder: Builder, ending: Ending) -> None:
        self._builder, self._ending = builder, ending
        config = builder.config
        self._own_shifts = bool(np.ptp(ending.shift))
        weights = as_weights(config, ending.bias) if ending.bias.any() else None
        self._adds = weights is None and bool(ending.bias.any())
        constants = [pack_constants(config, ending.bias)] if self._adds else []
        shifts = ending.shift.astype(np.int32)
        constants += [pack_constants(config, shifts)] if self._own_shifts else []
        constants += [pack_constants(config, _lefts(shifts))] if self._own_shifts and ending.even else []
        acc = sum(len(each) for each in constants)
        products = 0 if weights is None else len(weights)
        # Room for the parities of a tile, beside the tiles of both slots.
        parities = -(-(config.depth(Memory.ACC) - acc) // (SLOTS + 1)) if ending.even else 0
        self.reserved = Reserved(acc + parities, int(products > 0), products)
        self._acc = config.depth(Memory.ACC) - acc
        self._parities = self._acc - parities
        self._inp = config.depth(Memory.INP) - self.reserved.inp
        self._wgt = config.depth(Memory.WGT) - products
        each = acc // len(constants) if constants else 0
        self._shifts = self._acc + each * self._adds
        self._lefts = self._shifts + each
        if constants:
            self._load(Memory.ACC, self._acc, np.concatenate(constants))
        if weights is not None:
            self._load(Memory.INP, self._inp, multipliers(config).reshape(1, -1))
            self._load(Memory.WGT, self._wgt, weights)

    def _load(self, memory: Memory, sram: int, values: np.ndarray[tuple[int, ...], Any]) -> None:
        dram = self._builder.element(memory, self._builder.constant(values))
        self._builder.load(memory, sram, dram, (1, len(values)))

    def begin(self, tile: Tile, start: int) -> None:
        """Append the reset of a tile at element `start` of ACC, and the bias if it is a product."""
        begin = self._uop(start)
        reset = Gemm(reset_reg=True, uop_bgn=begin, uop_end=begin + 1, iter_in=tile.count, dst_factor_in=1)
        self._compute(tile, start, reset)
        if not self.reserved.inp:
            return
        begin = self._uop(start, self._inp, self._wgt + tile.outputs.start)
        used = (
            Access("INP", span(self._inp, 1), writes=False),
            Access("WGT", span(self._wgt, self.reserved.wgt), writes=False),
        )
        self._compute(tile, start, Gemm(wgt_factor_out=1, **self._by_block(tile, begin)), *used)

    def finish(self, tile: Tile, start: int) -> None:
        """Append bias, shift and clipping of a tile at element `start` of ACC."""
        if self._adds:
            self._with_constants(tile, start, AluOpcode.ADD, self._acc)
        if self._ending.even:
            self._to_even(tile, start)
        if self._own_shifts:
            self._with_constants(tile, start, AluOpcode.SHR, self._shifts)
        else:
            shift = int(self._ending.shift[0])
            for done in range(0, shift, _LONGEST_SHIFT):
                self._with_number(tile, start, AluOpcode.SHR, min(shift - done, _LONGEST_SHIFT))
        self._with_number(tile, start, AluOpcode.MAX, self._ending.low)
        self._with_number(tile, start, AluOpcode.MIN, self._ending.high)

    def _to_even(self, tile: Tile, start: int) -> None:
        """Append what takes 1 from the sums whose results would be odd.

        Half a result is in the sums already.  So what lay halfway is a multiple of a result now, and becomes the even
        one below; all others remain within theirs.
        """
        own = self._parities
        begin = self._uop(own)
        reset = Gemm(reset_reg=True, uop_bgn=begin, uop_end=begin + 1, iter_in=tile.count, dst_factor_in=1)
        self._compute(tile, own, reset)
        self._with_tile(tile, own, start)
        # The lowest bit of the result becomes the sign, and that becomes 0 or -1.
        left = _LONGEST_LEFT if self._own_shifts else _SIGN - int(self._ending.shift[0])
        for done in range(0, left, _LONGEST_LEFT):
            self._with_number(tile, own, AluOpcode.SHR, -min(left - done, _LONGEST_LEFT))
        if self._own_shifts:
            self._with_constants(tile, own, AluOpcode.SHR, self._lefts)
        self._with_number(tile, own, AluOpcode.MAX, -1)
        self._with_number(tile, own, AluOpcode.MIN, 0)
        self._with_tile(tile, start, own)

    def _with_tile(self, tile: Tile, start: int, other: int) -> None:
        """Append the addition of a tile to another one."""
        begin = self._uop(start, other)
        loops: dict[str, Any] = {"uop_bgn": begin, "uop_end": begin + 1, "iter_in": tile.count}
        self._compute(tile, start, Alu(alu_opcode=AluOpcode.ADD, dst_factor_in=1, src_factor_in=1, **loops))

    def _with_number(self, tile: Tile, start: int, opcode: AluOpcode, number: int) -> None:
        begin = self._uop(start)
        loops = self._by_block(tile, begin)
        self._compute(tile, start, Alu(alu_opcode=opcode, use_imm=True, imm=number, **loops))

    def _with_constants(self, tile: Tile, start: int, opcode: AluOpcode, constants: int) -> None:
        """Append an operation with one element for each block of channels."""
        begin = self._uop(start, constants + tile.outputs.start)
        self._compute(tile, start, Alu(alu_opcode=opcode, src_factor_out=1, **self._by_block(tile, begin)))

    def _by_block(self, tile: Tile, begin: int) -> dict[str, Any]:
        loops = {"uop_bgn": begin, "uop_end": begin + 1, "iter_out": len(tile.outputs), "iter_in": tile.points}
        return {**loops, "dst_factor_out": tile.points, "dst_factor_in": 1}

    def _uop(self, dst: int, src: int = 0, wgt: int = 0) -> int:
        return self._builder.uops(pack_uops(self._builder.config, [dst], src, wgt))

    def _compute(self, tile: Tile, start: int, each: Gemm | Alu, *used: Access) -> None:
        self._builder.compute(each, *used, Access("ACC", span(start, tile.count), writes=True))


def _lefts(shifts: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return what to shift right by, after 16 to the left, so that the lowest bit of a result becomes the sign.

    Without a shift there are no halves, and nothing shall remain.
    """
    return np.where(shifts == 0, -_LONGEST_LEFT, shifts - (_SIGN - _LONGEST_LEFT)).astype(np.int32)
