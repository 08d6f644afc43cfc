"""Schedule of a max pool: identity product into ACC, then MAX per tap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from boards.vta.compiler.builder import ProgramBuilder, span
from boards.vta.compiler.convolution import cut_extent
from boards.vta.compiler.layers import MaxPool
from boards.vta.compiler.packing import blocks
from boards.vta.compiler.tiles import SLOTS, ScratchpadSlots
from boards.vta.isa.config import MemoryType
from boards.vta.isa.encoding import pack_uops
from boards.vta.isa.instructions import Alu, AluOpcode, Gemm
from boards.vta.simulator.accesses import Access
from pipeline.errors import BuildError

# The least int8: padding that never wins.
_LEAST = -128


@dataclass(frozen=True)
class _WindowAxis:
    """Results and inputs of a tile along one axis, without padding."""

    results: range
    inputs: range
    stride: int
    pad: int

    def of_tap(self, tap: int) -> tuple[int, int, int]:
        """Return first result, first input and count of a tap inside the tensor."""
        positions = [position for position in self.results if position * self.stride - self.pad + tap in self.inputs]
        if not positions:
            return 0, 0, 0
        first = positions[0] * self.stride - self.pad + tap - self.inputs.start
        return positions[0] - self.results.start, first, len(positions)


def append_max_pool(builder: ProgramBuilder, layer: MaxPool, source: int, target: int) -> None:
    """Append a layer; addresses of packed tensors are in bytes.

    Raises
    ------
    BuildError
        If a single window does not fit the scratchpads.
    """
    config = builder.config
    # A board has no other way to widen int8: LOAD takes ACC from int32 only.
    identity = builder.constant(np.eye(config.block, dtype=np.int8))
    builder.load(MemoryType.WGT, 0, builder.element(MemoryType.WGT, identity), (1, 1))
    acc, inp = (
        ScratchpadSlots(config.depth(MemoryType.ACC), SLOTS),
        ScratchpadSlots(config.depth(MemoryType.INP), SLOTS),
    )
    _, height, width = layer.inputs
    for number, (block, rows, columns) in enumerate(_tiles(builder, layer)):
        inp_start, _ = inp.find(number)
        start, _ = acc.find(number)
        first = (
            builder.element(MemoryType.INP, source)
            + (block * height + rows.inputs.start) * width
            + columns.inputs.start
        )
        builder.load(MemoryType.INP, inp_start, first, (len(rows.inputs), len(columns.inputs)), width)
        _compute(builder, layer, (rows, columns), (start, inp_start))
        result_height, result_width = layer.outputs[1:]
        result = builder.element(MemoryType.OUT, target) + (block * result_height + rows.results.start) * result_width
        builder.store(start, result + columns.results.start, (len(rows.results), len(columns.results)), result_width)


def _tiles(builder: ProgramBuilder, layer: MaxPool) -> Iterator[tuple[int, _WindowAxis, _WindowAxis]]:
    height, width = _size(builder, layer)
    rows = [_window(layer, 0, part) for part in cut_extent(layer.outputs[1], height)]
    columns = [_window(layer, 1, part) for part in cut_extent(layer.outputs[2], width)]
    yield from product(range(blocks(builder.config, layer.inputs[0])), rows, columns)


def _size(builder: ProgramBuilder, layer: MaxPool) -> tuple[int, int]:
    """Return the extents of the largest tile, in whole rows if possible."""
    # A slot of ACC has the widened inputs beside the results; INP, with the inputs alone, needs less.
    limit = min(builder.config.depth(MemoryType.ACC), builder.config.depth(MemoryType.INP)) // SLOTS
    # Whole rows first, since each row of a transfer is a burst of its own.
    for width in range(layer.outputs[2], 0, -1):
        columns = (width - 1) * layer.strides[1] + layer.kernel[1]
        for height in range(layer.outputs[1], 0, -1):
            rows = (height - 1) * layer.strides[0] + layer.kernel[0]
            if rows * columns + height * width <= limit:
                return height, width
    raise BuildError(f"a window of {layer.kernel} is too large for the scratchpads of {builder.config.name}")


def _window(layer: MaxPool, axis: int, part: range) -> _WindowAxis:
    stride, pad, extent = layer.strides[axis], layer.padding[axis], layer.inputs[1 + axis]
    first, last = part.start * stride - pad, (part.stop - 1) * stride - pad + layer.kernel[axis]
    return _WindowAxis(part, range(max(0, first), min(extent, last)), stride, pad)


def _compute(
    builder: ProgramBuilder, layer: MaxPool, windows: tuple[_WindowAxis, _WindowAxis], starts: tuple[int, int]
) -> None:
    """Append a tile's computation: results at `starts[0]` of ACC, inputs behind."""
    rows, columns = windows
    start, inp_start = starts
    results, inputs = len(rows.results) * len(columns.results), len(rows.inputs) * len(columns.inputs)
    acc_write = Access("ACC", span(start, results + inputs), writes=True)
    operand_reads = Access("INP", span(inp_start, inputs), writes=False), Access("WGT", span(0, 1), writes=False)
    # Results begin at the least value, and inputs at 0, to which their product with the identity is added.
    begin = builder.uops(pack_uops(builder.config, [start], 0, 0))
    reset = Gemm(reset_reg=True, uop_bgn=begin, uop_end=begin + 1, iter_in=results + inputs, dst_factor_in=1)
    builder.compute(reset, acc_write)
    minimum = Alu(
        alu_opcode=AluOpcode.ADD,
        use_imm=True,
        imm=_LEAST,
        uop_bgn=begin,
        uop_end=begin + 1,
        iter_in=results,
        dst_factor_in=1,
    )
    builder.compute(minimum, acc_write)
    begin = builder.uops(pack_uops(builder.config, [start + results], inp_start, 0))
    copy = Gemm(uop_bgn=begin, uop_end=begin + 1, iter_in=inputs, dst_factor_in=1, src_factor_in=1)
    builder.compute(copy, *operand_reads, acc_write)
    for y, x in product(range(layer.kernel[0]), range(layer.kernel[1])):
        _tap(builder, windows, (y, x), start, acc_write)


def _tap(
    builder: ProgramBuilder,
    windows: tuple[_WindowAxis, _WindowAxis],
    tap: tuple[int, int],
    start: int,
    acc_write: Access,
) -> None:
    rows, columns = windows
    (row, y, row_count), (column, x, column_count) = rows.of_tap(tap[0]), columns.of_tap(tap[1])
    # At a border, a tap may lie in the padding for all results of a tile.
    if not row_count or not column_count:
        return
    results = len(rows.results) * len(columns.results)
    dst = start + row * len(columns.results) + column
    src = start + results + y * len(columns.inputs) + x
    begin = builder.uops(pack_uops(builder.config, [dst], src, 0))
    largest = Alu(
        alu_opcode=AluOpcode.MAX,
        uop_bgn=begin,
        uop_end=begin + 1,
        iter_out=row_count,
        iter_in=column_count,
        dst_factor_out=len(columns.results),
        dst_factor_in=1,
        src_factor_out=rows.stride * len(columns.inputs),
        src_factor_in=columns.stride,
    )
    builder.compute(largest, acc_write)
