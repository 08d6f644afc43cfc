"""Batched matmuls by AMX: both matrices are rounded to bfloat16 on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs
from tvm import tirx

from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import amx_layout, amx_loops, pair_products
from pipeline.executor.kernels.tiles.amx_layout import ROWS
from pipeline.executor.kernels.tiles.amx_loops import AmxLoops
from pipeline.executor.kernels.tiles.column_packing import ColumnBlock
from pipeline.executor.kernels.tiles.conv_loops import TileEpilogue
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.matmul_loops import BatchedMatmulLoops, MatrixOperand
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.kernels.tiles.pair_products import PAIR
from pipeline.executor.kernels.tir import shuffling
from pipeline.tvm import statements as tir


def choose_layout(conv: ConvShape, rhs: MatrixOperand, cpu: Microarchitecture) -> PackedLayout | None:
    """Return the layout of a product as a convolution, or None where tiles would be nearly empty."""
    # Columns are turned by whole squares.
    if min(conv.height, conv.depth, conv.group_outputs) < ROWS or (rhs.column != 1 and conv.depth % (PAIR * ROWS)):
        return None
    summed, _ = amx_layout.summed_shape(replace(conv, channels=-(-conv.depth // PAIR)))
    return amx_layout.layout(summed, cpu, PAIR)


class AmxMatmulLoops(BatchedMatmulLoops):
    """Writes the loops of a product whose right matrix is packed as a whole."""

    def statement(self) -> Any:
        """Return the whole computation."""
        return tir.sequence([amx_loops.permission(), super().statement()])

    @property
    def _units(self) -> int:
        return -(-self._form.depth // PAIR)

    def _chunk(self, batch_indices: list[Any], row: Any) -> list[Any]:
        conv, form = self._layout.conv, self._form
        rows = tir.buffer("rows", [self._rows * conv.depth], "int32")
        lhs = self._start(batch_indices, form.lhs.batch) + row * form.lhs.row
        rhs = self._start(batch_indices, form.rhs.batch)

        def store(total: Any, _image: Any, pixel: Any, _w: Any, column: Any) -> Any:
            return self._store(total, *batch_indices, row + pixel, column)

        layout = structs.replace(self._layout, conv=replace(conv, height=self._rows, out_height=self._rows))
        return [
            *(tirx.AllocBuffer(buffer) for buffer in (rows, self._packed_buffer)),
            tir.loop("row", self._rows, lambda index: self._round_row(lhs + index * form.lhs.row, rows, index)),
            *self._each_block(lambda block: self._pack(rhs + block.column * form.rhs.column, block)),
            AmxLoops(layout, self._cpu, rows, self._packed_buffer, TileEpilogue(store)).loops(),
        ]

    def _round_row(self, source: Any, rows: Any, index: Any) -> Any:
        """Copy a row of the left matrix as units, with zeros behind."""
        target, depth = index * self._layout.conv.depth, self._form.depth

        def pairs(offset: Any, size: int) -> Any:
            numbers = tir.load(self._lhs, tir.ramp(source + offset * PAIR, size * PAIR))
            return tir.store(rows, pair_products.round_pairs(numbers, size * PAIR), tir.span(target + offset, size))

        last = [
            tir.store(
                rows, pair_products.join_rows([tir.load(self._lhs, source + depth - 1)], 1), target + depth // PAIR
            )
        ]
        zeros = amx_loops.fill(rows, target + self._units, self._layout.conv.depth - self._units, 0)
        return tir.sequence([tir.run(depth // PAIR, ROWS, pairs), *(last if depth % PAIR else []), *zeros])

    def _pack(self, source: Any, block: ColumnBlock) -> Any:
        """Pack a block's columns as units of two rows, with zeros behind."""
        lanes, width = self._lanes, block.size * self._lanes
        pack = self._pairs if self._form.rhs.column == 1 else self._squares
        zeros = amx_loops.fill(
            self._packed_buffer, block.packed_offset + self._units * width,
            (self._layout.conv.depth - self._units) * width, 0,
        )  # fmt: skip
        return tir.sequence([
            *(pack(source + part * (lanes * self._form.rhs.column), block.packed_offset + part * lanes, width,
                   block.last if part == block.size - 1 else lanes) for part in range(block.size)),
            *zeros,
        ])  # fmt: skip

    def _pairs(self, source: Any, target: Any, width: int, count: int) -> Any:
        """Join the vectors of two rows each."""
        depth, line = self._form.depth, self._form.rhs.row

        def pair(unit: Any, rows: int = PAIR) -> Any:
            starts = [source + (unit * PAIR + row) * line for row in range(rows)]
            units = pair_products.join_rows([tir.load(self._right, tir.span(start, count)) for start in starts], count)
            return tir.store(self._packed_buffer, units, tir.span(target + unit * width, count))

        last = [pair(tir.number(depth // PAIR), 1)] if depth % PAIR else []
        return tir.sequence([tir.loop("pair", depth // PAIR, pair), *last])

    def _squares(self, source: Any, target: Any, width: int, count: int) -> Any:
        """Turn squares of units, whose rows are columns of the matrix."""
        lanes = PAIR * ROWS

        def square(index: Any) -> Any:
            starts = [source + (column * self._form.rhs.column + index * lanes) for column in range(count)]
            rows = [pair_products.round_pairs(tir.load(self._right, tir.ramp(start, lanes)), lanes) for start in starts]
            zeros = tir.vector(tirx.IntImm("int32", 0), ROWS)
            columns, statements = shuffling.transpose_rows([*rows, *[zeros] * (ROWS - count)], ROWS, "int32")
            places = (tir.ramp(target + (index * ROWS + number) * width, ROWS) for number in range(ROWS))
            stores = (tir.store(self._packed_buffer, *pair) for pair in zip(columns, places, strict=True))
            return tir.sequence([*statements, *stores])

        return tir.loop("square", self._form.depth // lanes, square)
