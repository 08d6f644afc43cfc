"""Scratchpads: the accelerator's memories, and what loads, stores and arithmetic do to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.config import Config, Memory
from boards.vta.instructions import Alu, AluOpcode, Load, Store
from boards.vta.patterns import Piece, Product

Bytes = npt.NDArray[np.uint8]


class Scratchpads:
    """The contents, and which elements this program has defined.

    OUT needs no bytes of its own: a board writes the low bytes of each result of GEMM and ALU there too, so that
    whatever may be stored is the low byte of ACC; `stored` has the elements for which that holds.

    Parameters
    ----------
    config : Config
        The sizes.
    seed : int or None
        Of the random contents after power-up; zeros without one.
    """

    def __init__(self, config: Config, seed: int | None) -> None:
        self.config = config
        depth = {memory: config.depth(memory) for memory in Memory}
        row = (config.batch, config.block)
        random = np.random.default_rng(seed)

        def filled(memory: Memory, shape: tuple[int, ...], low: int, high: int) -> npt.NDArray[np.int64]:
            whole = (depth[memory], *shape)
            return np.zeros(whole, np.int64) if seed is None else random.integers(low, high, whole)

        # Products of int8 are exact in float32, and its matrix product is the fast one.
        self.inp = filled(Memory.INP, row, -128, 128).astype(np.float32)
        # Transposed: [input][output].
        self.wgt = filled(Memory.WGT, (config.block, config.block), -128, 128).astype(np.float32)
        self.acc = filled(Memory.ACC, row, -(2**31), 2**31).astype(np.int32)
        self.uop = filled(Memory.UOP, (), 0, 2**32).astype(np.uint32)
        places = (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC, Memory.OUT)
        self.defined = {memory: np.zeros(depth[memory], np.bool) for memory in places}

    def load(self, each: Load, memory: Bytes, start: int) -> None:
        """Copy rows, the first at `start` in `memory`, with zeros around them."""
        place = slice(each.sram_base, each.sram_base + each.height * each.width)
        target = self._target(each.memory_type)[place]
        rows = target.reshape(each.height, each.width, *target.shape[1:])
        if each.padded:
            rows[:] = 0
        if each.y_size:
            inside = rows[each.y_pad_0 : each.y_pad_0 + each.y_size, each.x_pad_0 : each.x_pad_0 + each.x_size]
            inside[:] = self._values(each, memory, start)
        holder = Memory.ACC if each.memory_type is Memory.ACC_8BIT else each.memory_type
        self.defined[holder][place] = True
        if holder is Memory.ACC:
            self.defined[Memory.OUT][place] = False

    def _target(self, memory: Memory) -> npt.NDArray[Any]:
        arrays: dict[Memory, npt.NDArray[Any]] = {Memory.UOP: self.uop, Memory.WGT: self.wgt, Memory.INP: self.inp}
        return arrays.get(memory, self.acc)

    def _values(self, each: Load, memory: Bytes, start: int) -> npt.NDArray[Any]:
        unit = self.config.element_bytes(each.memory_type)
        data = np.ascontiguousarray(region(memory, start, each, unit))
        kinds: dict[Memory, type[np.generic]] = {Memory.UOP: np.uint32, Memory.ACC: np.int32}
        values: npt.NDArray[Any] = data.view(kinds.get(each.memory_type, np.int8))
        shaped = values.reshape(each.y_size, each.x_size, *self._target(each.memory_type).shape[1:])
        return shaped.swapaxes(2, 3) if each.memory_type is Memory.WGT else shaped

    def store(self, each: Store, memory: Bytes, start: int) -> None:
        """Write the low bytes of ACC as rows, the first at `start` in `memory`."""
        unit = self.config.element_bytes(Memory.OUT)
        count = each.y_size * each.x_size
        data = self.acc[each.sram_base : each.sram_base + count].astype(np.uint8).reshape(each.y_size, -1)
        if each.x_stride >= each.x_size:
            region(memory, start, each, unit)[:] = data
            return
        for row, values in enumerate(data):  # they overlap: the last one counts
            place = start + row * each.x_stride * unit
            memory[place : place + len(values)] = values

    def reset(self, piece: Piece) -> None:
        """Set elements of ACC to 0; OUT then has something else."""
        self.acc[piece.dsts] = 0
        self._written(piece, stored=False)

    def accumulate(self, piece: Piece) -> None:
        """Add matrix products to ACC, modulo 2^32."""
        for product in piece.products:
            sums = self._sums(product)
            if product.repeats:
                np.add.at(self.acc, product.dst, sums)
            else:
                self.acc[product.dst] += sums
        self._written(piece, stored=True)

    def _sums(self, product: Product) -> npt.NDArray[np.int32]:
        batch, block = self.config.batch, self.config.block
        points, terms = product.src.shape
        inputs = self.inp[product.src].swapaxes(1, 2).reshape(points * batch, terms * block)
        sums: npt.NDArray[np.float32] = inputs @ self.wgt[product.wgt].reshape(terms * block, block)
        return sums.astype(np.int32).reshape(-1, batch, block)

    def combine(self, each: Alu, piece: Piece) -> tuple[int, int]:
        """Compute ACC from ACC, and return the least and the largest second operand."""
        least, largest = [], []
        for run in piece.runs:
            target = piece.dst[run]
            right = np.array(each.imm, np.int32) if each.use_imm else self.acc[piece.src[run]]
            least.append(int(right.min()))
            largest.append(int(right.max()))
            self.acc[target] = combined(each.alu_opcode, self.acc[target], right)
        self._written(piece, stored=True)
        return min(least), max(largest)

    def _written(self, piece: Piece, *, stored: bool) -> None:
        self.defined[Memory.ACC][piece.dsts] = True
        self.defined[Memory.OUT][piece.dsts] = stored


def combined(opcode: AluOpcode, left: npt.NDArray[np.int32], right: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return what the ALU makes of two operands, modulo 2^32; a negative shift is one to the left."""
    if opcode is AluOpcode.MIN:
        return np.minimum(left, right)
    if opcode is AluOpcode.MAX:
        return np.maximum(left, right)
    if opcode is AluOpcode.ADD:
        return left + right
    if opcode is AluOpcode.MUL:
        return left * right
    shift = np.clip(right, -32, 32)
    return np.where(shift >= 0, left >> np.maximum(shift, 0), left << np.maximum(-shift, 0))


def region(memory: npt.NDArray[np.uint8], start: int, each: Load | Store, unit: int) -> Bytes:
    """Return the rows of a transfer as a view ``uint8[y, x * unit]``; they must lie inside `memory`."""
    shape = (each.y_size, each.x_size * unit)
    strides = (each.x_stride * unit, 1)
    return np.lib.stride_tricks.as_strided(memory[start:], shape, strides, writeable=memory.flags.writeable)


def nbytes(each: Load | Store, unit: int) -> int:
    """Return the bytes from the first to the last of a transfer in DRAM."""
    return ((each.y_size - 1) * each.x_stride + each.x_size) * unit if each.y_size and each.x_size else 0
