"""Epilogue: reset and bias before a tile's sum, shift and clip after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.compiler.builder import ProgramBuilder, span
from boards.vta.compiler.layers import Requantization
from boards.vta.compiler.packing import pack_constants
from boards.vta.compiler.tiles import SLOTS, OutputTile, ReservedElements
from boards.vta.isa.config import Config, MemoryType
from boards.vta.isa.encoding import pack_uops
from boards.vta.isa.instructions import Alu, AluOpcode, Gemm
from boards.vta.simulator.accesses import Access

# VTA_SHR_ARG_BIT_WIDTH of hw_spec.h: a board heeds five bits of a shift, -16 to 15, and the sign is bit 31.
_LONGEST_SHIFT = 15
_LONGEST_LEFT = 16
_SIGN = 31
# A bias is a sum of 127 times whole numbers and a rest, each of which int8 holds.
_LARGEST_WEIGHT = 127


class Epilogue:
    """Constants of a layer in the scratchpads, and their instructions.

    Attributes
    ----------
    reservation : ReservedElements
        Elements that the constants take.
    """

    def __init__(self, builder: ProgramBuilder, requantization: Requantization) -> None:
        self._builder, self._requantization = builder, requantization
        config = builder.config
        self._own_shifts = bool(np.ptp(requantization.shift))
        # As a product if weights can express it: GEMM adds in one cycle, ALU in two.
        weights = bias_weights(config, requantization.bias) if requantization.bias.any() else None
        self._adds = weights is None and bool(requantization.bias.any())
        constants = self._alu_constants()
        acc = sum(len(array_rows) for array_rows in constants)
        products = 0 if weights is None else len(weights)
        # Room for the parities of a tile, beside the tiles of both slots.
        parities = -(-(config.depth(MemoryType.ACC) - acc) // (SLOTS + 1)) if requantization.even else 0
        # A single input element serves all weights of the bias; see `bias_inputs`.
        self.reservation = ReservedElements(acc + parities, int(products > 0), products)
        # Constants lie at the far ends, so that tiles begin at 0 as if there were none.
        self._acc = config.depth(MemoryType.ACC) - acc
        self._parities = self._acc - parities
        self._inp = config.depth(MemoryType.INP) - self.reservation.inp
        self._wgt = config.depth(MemoryType.WGT) - products
        array_rows = acc // len(constants) if constants else 0
        self._shifts = self._acc + array_rows * self._adds
        self._lefts = self._shifts + array_rows
        if constants:
            self._load(MemoryType.ACC, self._acc, np.concatenate(constants))
        if weights is not None:
            self._load(MemoryType.INP, self._inp, bias_inputs(config).reshape(1, -1))
            self._load(MemoryType.WGT, self._wgt, weights)

    def _alu_constants(self) -> list[npt.NDArray[np.int32]]:
        """Return the ACC operands: bias, shifts, and parity constants where needed."""
        config, requantization = self._builder.config, self._requantization
        constants = [pack_constants(config, requantization.bias)] if self._adds else []
        shifts = requantization.shift.astype(np.int32)
        constants += [pack_constants(config, shifts)] if self._own_shifts else []
        constants += [pack_constants(config, _lefts(shifts))] if self._own_shifts and requantization.even else []
        return constants

    def _load(self, memory: MemoryType, sram: int, values: np.ndarray[tuple[int, ...], Any]) -> None:
        dram = self._builder.element(memory, self._builder.constant(values))
        self._builder.load(memory, sram, dram, (1, len(values)))

    def begin(self, tile: OutputTile, start: int) -> None:
        """Append a tile's reset at `start`, with the bias as product."""
        begin = self._uop(start)
        reset = Gemm(reset_reg=True, uop_bgn=begin, uop_end=begin + 1, iter_in=tile.count, dst_factor_in=1)
        self._compute(tile, start, reset)
        if not self.reservation.inp:
            return
        begin = self._uop(start, self._inp, self._wgt + tile.outputs.start)
        reads = (
            Access("INP", span(self._inp, 1), writes=False),
            Access("WGT", span(self._wgt, self.reservation.wgt), writes=False),
        )
        self._compute(tile, start, Gemm(wgt_factor_out=1, **self._by_block(tile, begin)), *reads)

    def finish(self, tile: OutputTile, start: int) -> None:
        """Append bias, shift and clipping of a tile at `start`."""
        if self._adds:
            self._with_constants(tile, start, AluOpcode.ADD, self._acc)
        if self._requantization.even:
            self._to_even(tile, start)
        if self._own_shifts:
            self._with_constants(tile, start, AluOpcode.SHR, self._shifts)
        else:
            # Rounding down twice is rounding down once, so that a long shift may be several.
            shift = int(self._requantization.shift[0])
            for shifted_bits in range(0, shift, _LONGEST_SHIFT):
                self._with_number(tile, start, AluOpcode.SHR, min(shift - shifted_bits, _LONGEST_SHIFT))
        self._with_number(tile, start, AluOpcode.MAX, self._requantization.low)
        self._with_number(tile, start, AluOpcode.MIN, self._requantization.high)

    def _to_even(self, tile: OutputTile, start: int) -> None:
        """Subtract 1 from sums with odd results.

        Half a result is in the sums already.  So what lay halfway is a multiple of a result now, and becomes the even
        one below; all others remain within theirs.
        """
        parities = self._parities
        begin = self._uop(parities)
        reset = Gemm(reset_reg=True, uop_bgn=begin, uop_end=begin + 1, iter_in=tile.count, dst_factor_in=1)
        self._compute(tile, parities, reset)
        # A copy: 0 plus the tile.
        self._with_tile(tile, parities, start)
        # The lowest bit of the result becomes the sign, and that becomes 0 or -1.
        left_shift = _LONGEST_LEFT if self._own_shifts else _SIGN - int(self._requantization.shift[0])
        for shifted_bits in range(0, left_shift, _LONGEST_LEFT):
            self._with_number(tile, parities, AluOpcode.SHR, -min(left_shift - shifted_bits, _LONGEST_LEFT))
        if self._own_shifts:
            self._with_constants(tile, parities, AluOpcode.SHR, self._lefts)
        self._with_number(tile, parities, AluOpcode.MAX, -1)
        self._with_number(tile, parities, AluOpcode.MIN, 0)
        self._with_tile(tile, start, parities)

    def _with_tile(self, tile: OutputTile, start: int, addend: int) -> None:
        """Append the addition of a tile to another one."""
        begin = self._uop(start, addend)
        loops: dict[str, Any] = {"uop_bgn": begin, "uop_end": begin + 1, "iter_in": tile.count}
        self._compute(tile, start, Alu(alu_opcode=AluOpcode.ADD, dst_factor_in=1, src_factor_in=1, **loops))

    def _with_number(self, tile: OutputTile, start: int, opcode: AluOpcode, number: int) -> None:
        begin = self._uop(start)
        loops = self._by_block(tile, begin)
        self._compute(tile, start, Alu(alu_opcode=opcode, use_imm=True, imm=number, **loops))

    def _with_constants(self, tile: OutputTile, start: int, opcode: AluOpcode, constants: int) -> None:
        """Append an operation with one constant per channel block."""
        begin = self._uop(start, constants + tile.outputs.start)
        self._compute(tile, start, Alu(alu_opcode=opcode, src_factor_out=1, **self._by_block(tile, begin)))

    def _by_block(self, tile: OutputTile, begin: int) -> dict[str, Any]:
        loops = {"uop_bgn": begin, "uop_end": begin + 1, "iter_out": len(tile.outputs), "iter_in": tile.points}
        return {**loops, "dst_factor_out": tile.points, "dst_factor_in": 1}

    def _uop(self, dst: int, src: int = 0, wgt: int = 0) -> int:
        return self._builder.uops(pack_uops(self._builder.config, [dst], src, wgt))

    def _compute(self, tile: OutputTile, start: int, instruction: Gemm | Alu, *reads: Access) -> None:
        self._builder.compute(instruction, *reads, Access("ACC", span(start, tile.count), writes=True))


def _lefts(shifts: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Right shifts, after 16 to the left, from a result's lowest bit to the sign.

    Without a shift there are no halves, and nothing shall remain.
    """
    return np.where(shifts == 0, -_LONGEST_LEFT, shifts - (_SIGN - _LONGEST_LEFT)).astype(np.int32)


def bias_inputs(config: Config) -> npt.NDArray[np.int8]:
    """Return the input element ``int8[block]`` for the weights of `bias_weights`."""
    values = np.full(config.block, _LARGEST_WEIGHT, np.int8)
    values[-1] = 1
    return values


def bias_weights(config: Config, bias: npt.NDArray[np.int32]) -> npt.NDArray[np.int8] | None:
    """Return the bias as ``int8[blocks, block, block]`` weights, if representable.

    A product takes GEMM one cycle, where adding a constant takes ALU two.
    """
    elements = pack_constants(config, bias).astype(np.int64)
    # From -63 to 63, so that int8 holds them.
    remainders = (elements + _LARGEST_WEIGHT // 2) % _LARGEST_WEIGHT - _LARGEST_WEIGHT // 2
    quotients = (elements - remainders) // _LARGEST_WEIGHT
    weights = np.zeros((*elements.shape, config.block), np.int64)
    weights[..., -1] = remainders
    # Each column takes as much of the quotient as int8 holds: with 15 of them, 241,935 of bias at most.
    for column in range(config.block - 1):
        weights[..., column] = np.clip(quotients, -128, _LARGEST_WEIGHT)
        quotients = quotients - weights[..., column]
    return None if quotients.any() else weights.astype(np.int8)
