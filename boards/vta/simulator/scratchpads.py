"""Scratchpads: the accelerator's memories, with loads, stores and arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.isa.config import Config, MemoryType
from boards.vta.isa.instructions import Alu, AluOpcode, LoadInstruction, StoreInstruction
from boards.vta.simulator.access_patterns import MatrixProduct, MicroOpPiece

Bytes = npt.NDArray[np.uint8]


class Scratchpads:
    """Contents, and elements defined by this program.

    OUT needs no bytes of its own: a board writes the low bytes of each result of GEMM and ALU there too, so that
    whatever may be stored is the low byte of ACC; `stored` has the elements for which that holds.

    Parameters
    ----------
    config : Config
        The sizes.
    seed : int or None
        Seed of the random contents after power-up; zeros without one.
    """

    def __init__(self, config: Config, seed: int | None) -> None:
        self.config = config
        depth = {memory: config.depth(memory) for memory in MemoryType}
        row = (config.batch, config.block)
        # As a board's memories after power-up: results that depend on them differ between seeds.
        random = np.random.default_rng(seed)

        def fill(memory: MemoryType, shape: tuple[int, ...], low: int, high: int) -> npt.NDArray[np.int64]:
            extents = (depth[memory], *shape)
            return np.zeros(extents, np.int64) if seed is None else random.integers(low, high, extents)

        # Products of int8 are exact in float32, and its matrix product is the fast one.
        self.inp = fill(MemoryType.INP, row, -128, 128).astype(np.float32)
        # Transposed: [input][output].
        self.wgt = fill(MemoryType.WGT, (config.block, config.block), -128, 128).astype(np.float32)
        self.acc = fill(MemoryType.ACC, row, -(2**31), 2**31).astype(np.int32)
        self.uop = fill(MemoryType.UOP, (), 0, 2**32).astype(np.uint32)
        memories = (MemoryType.UOP, MemoryType.WGT, MemoryType.INP, MemoryType.ACC, MemoryType.OUT)
        self.is_defined = {memory: np.zeros(depth[memory], np.bool) for memory in memories}

    def load(self, instruction: LoadInstruction, memory: Bytes, start: int) -> None:
        """Copy rows from `start` in `memory`, padded with zeros."""
        elements = slice(instruction.sram_base, instruction.sram_base + instruction.height * instruction.width)
        target = self._target(instruction.memory_type)[elements]
        rows = target.reshape(instruction.height, instruction.width, *target.shape[1:])
        # All of it, and the interior again below: simpler than four borders.
        if instruction.padded:
            rows[:] = 0
        if instruction.y_size:
            interior = rows[
                instruction.y_pad_0 : instruction.y_pad_0 + instruction.y_size,
                instruction.x_pad_0 : instruction.x_pad_0 + instruction.x_size,
            ]
            interior[:] = self._values(instruction, memory, start)
        holder = MemoryType.ACC if instruction.memory_type is MemoryType.ACC_8BIT else instruction.memory_type
        self.is_defined[holder][elements] = True
        # vta.cc loads acc_mem alone, and out_mem keeps what was there.
        if holder is MemoryType.ACC:
            self.is_defined[MemoryType.OUT][elements] = False

    def _target(self, memory: MemoryType) -> npt.NDArray[Any]:
        arrays: dict[MemoryType, npt.NDArray[Any]] = {
            MemoryType.UOP: self.uop,
            MemoryType.WGT: self.wgt,
            MemoryType.INP: self.inp,
        }
        return arrays.get(memory, self.acc)

    def _values(self, load: LoadInstruction, memory: Bytes, start: int) -> npt.NDArray[Any]:
        unit = self.config.element_bytes(load.memory_type)
        # Rows with a stride between them cannot be seen as wider numbers.
        data = np.ascontiguousarray(region(memory, start, load, unit))
        kinds: dict[MemoryType, type[np.generic]] = {MemoryType.UOP: np.uint32, MemoryType.ACC: np.int32}
        values: npt.NDArray[Any] = data.view(kinds.get(load.memory_type, np.int8))
        blocks: npt.NDArray[Any] = values.reshape(load.y_size, load.x_size, *self._target(load.memory_type).shape[1:])
        # Memory has [output][input], as vta.cc reads w_tensor.
        return blocks.swapaxes(2, 3) if load.memory_type is MemoryType.WGT else blocks

    def store(self, instruction: StoreInstruction, memory: Bytes, start: int) -> None:
        """Write ACC's low bytes as rows from `start` in `memory`."""
        unit = self.config.element_bytes(MemoryType.OUT)
        count = instruction.y_size * instruction.x_size
        # NumPy's cast keeps the low byte, as `range(VTA_OUT_WIDTH - 1, 0)` does in vta.cc.
        low = self.acc[instruction.sram_base : instruction.sram_base + count].astype(np.uint8)
        data = low.reshape(instruction.y_size, instruction.x_size * unit)  # also of no rows
        if instruction.x_stride >= instruction.x_size:
            region(memory, start, instruction, unit)[:] = data
            return
        for row, values in enumerate(data):  # they overlap: the last one counts
            position = start + row * instruction.x_stride * unit
            memory[position : position + len(values)] = values

    def reset(self, piece: MicroOpPiece) -> None:
        """Zero elements of ACC; OUT is undefined afterwards."""
        self.acc[piece.dsts] = 0
        # vta.cc writes the sum before the reset to out_mem, so that OUT has something else than ACC.
        self._mark_defined(piece, in_out=False)

    def accumulate(self, piece: MicroOpPiece) -> None:
        """Add matrix products to ACC, modulo 2^32."""
        for product in piece.products:
            sums = self._sums(product)
            # Indexed addition adds only once to an element that occurs twice.
            if product.repeats:
                np.add.at(self.acc, product.dst, sums)
            else:
                self.acc[product.dst] += sums
        self._mark_defined(piece, in_out=True)

    def _sums(self, product: MatrixProduct) -> npt.NDArray[np.int32]:
        batch, block = self.config.batch, self.config.block
        points, terms = product.src.shape
        inputs = self.inp[product.src].swapaxes(1, 2).reshape(points * batch, terms * block)
        sums: npt.NDArray[np.float32] = inputs @ self.wgt[product.wgt].reshape(terms * block, block)
        return sums.astype(np.int32).reshape(-1, batch, block)

    def combine(self, instruction: Alu, piece: MicroOpPiece) -> tuple[int, int]:
        """Compute ACC from ACC; return the extreme second operands."""
        smallest, largest = [], []
        for run in piece.runs:
            target = piece.dst[run]
            operand = np.array(instruction.imm, np.int32) if instruction.use_imm else self.acc[piece.src[run]]
            # Before the result is written, which may be the operand of the next run.
            smallest.append(int(operand.min()))
            largest.append(int(operand.max()))
            self.acc[target] = combine_operands(instruction.alu_opcode, self.acc[target], operand)
        self._mark_defined(piece, in_out=True)
        return min(smallest), max(largest)

    def _mark_defined(self, piece: MicroOpPiece, *, in_out: bool) -> None:
        self.is_defined[MemoryType.ACC][piece.dsts] = True
        self.is_defined[MemoryType.OUT][piece.dsts] = in_out


def combine_operands(
    opcode: AluOpcode, augend: npt.NDArray[np.int32], operand: npt.NDArray[np.int32]
) -> npt.NDArray[np.int32]:
    """Combine operands as the ALU, modulo 2^32; negative shifts go left."""
    if opcode is AluOpcode.MIN:
        return np.minimum(augend, operand)
    if opcode is AluOpcode.MAX:
        return np.maximum(augend, operand)
    if opcode is AluOpcode.ADD:
        return augend + operand
    if opcode is AluOpcode.MUL:
        return augend * operand
    # At 32 bits nothing but the sign is left; as far, NumPy defines shifts, which C does not.
    shift = np.clip(operand, -32, 32)
    return np.where(shift >= 0, augend >> np.maximum(shift, 0), augend << np.maximum(-shift, 0))


def region(memory: npt.NDArray[np.uint8], start: int, transfer: LoadInstruction | StoreInstruction, unit: int) -> Bytes:
    """Return a transfer's rows inside `memory` as view ``uint8[y, x * unit]``."""
    shape = (transfer.y_size, transfer.x_size * unit)
    # By strides, because rows overlap where a stride is shorter than a row.
    strides = (transfer.x_stride * unit, 1)
    return np.lib.stride_tricks.as_strided(memory[start:], shape, strides, writeable=memory.flags.writeable)


def nbytes(transfer: LoadInstruction | StoreInstruction, unit: int) -> int:
    """Bytes from first to last of a transfer in DRAM."""
    return (
        ((transfer.y_size - 1) * transfer.x_stride + transfer.x_size) * unit
        if transfer.y_size and transfer.x_size
        else 0
    )
