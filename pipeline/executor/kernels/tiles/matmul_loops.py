"""Loops of batched matmuls: row tiles by column blocks, packed meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import amx_layout, arithmetic, half_products, padded_copy, tiling
from pipeline.executor.kernels.tiles.accumulators import PixelSource, TileAccumulators
from pipeline.executor.kernels.tiles.column_packing import ColumnBlock, ColumnPacking
from pipeline.executor.kernels.tiles.half_accumulators import HalfAccumulators
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.kernels.tiles.tiling import RegisterTile
from pipeline.tvm import statements as tir


@dataclass(frozen=True)
class MatrixOperand:
    """Strides of one batched matrix in its buffer, in elements."""

    size: int
    """Elements of the buffer."""
    batch: tuple[int, ...]
    """Strides between products along each axis of the batch; 0 where all of them share the matrix."""
    row: int
    column: int
    """Strides between rows and between columns."""


@dataclass(frozen=True)
class BatchedMatmulForm:
    """Matrices of rows x depth times depth x columns."""

    batch: tuple[int, ...]
    layout: PackedLayout
    lhs: MatrixOperand
    rhs: MatrixOperand
    depth: int
    """Terms of a sum, which the layout may count in units."""


class BatchedMatmulLoops:
    """Writes the loops of a product of two buffers, in `tasks` pieces of work for the cores.

    `store` makes the statement that stores a sum at its indices.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a kernel consists of
        self,
        form: BatchedMatmulForm,
        cpu: Microarchitecture,
        lhs: Any,
        rhs: Any,
        store: Callable[..., Any],
        tasks: int = 1,
    ) -> None:
        self._form, self._layout, self._store, self._tasks = form, form.layout, store, tasks
        way = half_products.WAY if form.layout.way == half_products.WAY else ""
        self._cpu = cpu = half_products.for_tiles(cpu) if way else cpu
        self._lanes, self._arithmetic = form.layout.lanes, arithmetic.of("float32", cpu, way)
        self._lhs, declare_lhs = tir.flat(lhs, "left", form.lhs.size)
        self._right, declare_rhs = tir.flat(rhs, "right", form.rhs.size)
        self._declarations = [declare_lhs, declare_rhs]
        conv = form.layout.conv
        self._batch_size = math.prod(form.batch)
        # Fewer products than cores: the rows of each are shared out too, by whole tiles.
        chunks = min(-(-tasks // self._batch_size), -(-conv.height // form.layout.tile.rows))
        self._rows = -(-conv.height // chunks)
        self._chunks = -(-conv.height // self._rows)
        # Packed as a whole where it stays in the cache: then the result is written row by row.
        self._packs_all = form.layout.way == amx_layout.WAY or tiling.weights_stay(conv, cpu)
        vectors = form.layout.vectors if self._packs_all else form.layout.tile.vectors
        factor = "int32" if form.layout.way == amx_layout.WAY else self._arithmetic.factor
        self._packed_buffer = tir.buffer("packed", [conv.depth * vectors * self._lanes], factor)
        strides = form.rhs.row, form.rhs.column
        self._packing = ColumnPacking(self._right, strides, self._packed_buffer, conv.depth, self._lanes)
        self._source = PixelSource(self._lhs, form.lhs.row, 0)

    def statement(self) -> Any:
        """Return the whole computation."""
        height = self._layout.conv.height

        def task(index: Any) -> Any:
            first = tir.piece_start(index % self._chunks, self._rows, height)
            batch_indices = tir.unravel(index // self._chunks, self._form.batch)
            return tir.sequence(tir.bound("row", first, lambda row: self._chunk(batch_indices, row)))

        return tir.sequence(
            [*self._declarations, tir.loop("task", self._batch_size * self._chunks, task, tir.parallel(self._tasks))]
        )

    @staticmethod
    def _start(batch_indices: list[Any], strides: tuple[int, ...]) -> Any:
        start = tir.number(0)
        for position, stride in zip(batch_indices, strides, strict=True):
            start += position * stride
        return start

    def _chunk(self, batch_indices: list[Any], row: Any) -> list[Any]:
        lhs = self._start(batch_indices, self._form.lhs.batch) + row * self._form.lhs.row
        rhs = self._start(batch_indices, self._form.rhs.batch)
        if self._arithmetic.memory != self._arithmetic.factor:
            copies = self._convert_rows(lhs)
            return [*copies, *tir.bound("right", rhs, lambda rhs: self._blocks(batch_indices, row, tir.number(0), rhs))]

        def blocks(lhs: Any, rhs: Any) -> list[Any]:
            return self._blocks(batch_indices, row, lhs, rhs)

        return tir.bound("left", lhs, lambda lhs: tir.bound("right", rhs, lambda rhs: blocks(lhs, rhs)))

    def _convert_rows(self, start: Any) -> list[Any]:
        """Copy a chunk's left rows in the products' dtype."""
        depth = self._layout.conv.depth
        scratch = tir.buffer("rows", [self._rows * depth], self._arithmetic.factor)

        def row(index: Any) -> Any:
            source = start + index * self._form.lhs.row
            return padded_copy.copy_run(self._lhs, source, scratch, index * depth, depth, self._lanes)

        self._source = PixelSource(scratch, depth, 0)
        return [tirx.AllocBuffer(scratch), tir.loop("row", self._rows, row)]

    def _blocks(self, batch_indices: list[Any], row: Any, lhs: Any, rhs: Any) -> list[Any]:
        def pack(block: ColumnBlock) -> list[Any]:
            return self._packing.statements(rhs + block.column * self._form.rhs.column, block)

        def tile(block: ColumnBlock, start: Any, rows: int) -> Any:
            return self._tile([*batch_indices, row + start], lhs + start * self._source.line, rows, block)

        def bands(body: Callable[[Any, int], Any]) -> list[Any]:
            return tir.pieces("band", self._rows, self._layout.tile.rows, lambda _, start, rows: body(start, rows))

        # In the task, so that each core packs into memory of its own.
        allocation = tirx.AllocBuffer(self._packed_buffer)
        if self._packs_all:
            tile_rows = bands(
                lambda start, rows: tir.sequence(self._each_block(lambda block: tile(block, start, rows)))
            )
            return [allocation, *self._each_block(lambda block: tir.sequence(pack(block))), *tile_rows]
        return [
            allocation,
            *self._each_block(
                lambda block: tir.sequence([*pack(block), *bands(lambda start, rows: tile(block, start, rows))])
            ),
        ]

    def _each_block(self, body: Callable[[ColumnBlock], Any]) -> list[Any]:
        layout, lanes = self._layout, self._lanes
        partial_lanes = layout.conv.group_outputs % lanes
        statements = []
        for first, block_count, size in tiling.blocks(
            layout.vectors, layout.tile.vectors, separate_last=bool(partial_lanes)
        ):
            last = partial_lanes if partial_lanes and first + block_count * size == layout.vectors else lanes

            def block(index: Any, first: int = first, size: int = size, last: int = last) -> Any:
                column = (index * size + first) * lanes
                packed_offset = column * layout.conv.depth if self._packs_all else tir.number(0)
                return body(ColumnBlock(column, packed_offset, size, last))

            statements.append(tir.loop("block", block_count, block))
        return statements

    def _tile(self, batch_indices: list[Any], begin: Any, rows: int, block: ColumnBlock) -> Any:
        # Rows of the left matrix are pixels in one column, and their elements the terms.
        accumulators = HalfAccumulators if self._layout.way == half_products.WAY else TileAccumulators
        tile = RegisterTile(rows, 1, block.size)
        sums = accumulators(self._layout, tile, self._source, self._packed_buffer, self._arithmetic)
        # Nothing is fetched ahead: the block was packed just now, and is in the cache.
        loops = tir.bound("from", begin, lambda begin: [sums.loops(begin, block.packed_offset, None)])
        stores = [
            self._store_lanes(
                total,
                [*batch_indices[:-1], batch_indices[-1] + dy, block.column + part * self._lanes],
                block.last if part == block.size - 1 else self._lanes,
            )
            for (dy, _dx, part), total in sums.results.items()
        ]
        return tir.sequence([*sums.reset(), *loops, *stores])

    def _store_lanes(self, total: Any, indices: list[Any], count: int) -> Any:
        def lane(index: Any) -> Any:
            return self._store(tir.load(total, index), *indices[:-1], indices[-1] + index)

        return tir.loop("lane", count, lane, tir.VECTORIZED)
