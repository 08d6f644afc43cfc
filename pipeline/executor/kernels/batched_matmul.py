"""Batched products of data by data: blocks of the right matrix are packed where the left one's rows meet them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tvm import tirx

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import Kernel, epilogue_store
from pipeline.executor.kernels.layout.expressions import TO_LAST, extents
from pipeline.executor.kernels.layout.rewriter import ModelLayout, Rewriter
from pipeline.executor.kernels.matmul import is_float_matmul, matmul_shape
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import arithmetic, packing, tiling
from pipeline.executor.kernels.tiles.accumulators import PixelSource, TileAccumulators
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.kernels.tiles.tiling import RegisterTile
from pipeline.executor.kernels.tir import shuffling
from pipeline.executor.kernels.tir import statements as tir


@dataclass(frozen=True)
class MatrixOperand:
    """Strides of one matrix of each product in its buffer, in elements.

    Attributes
    ----------
    size : int
        Of the buffer.
    batch : tuple of int
        From one product to the next, along each axis of the batch; 0 where all of them share the matrix.
    row, column : int
        From one to the next.
    """

    size: int
    batch: tuple[int, ...]
    row: int
    column: int


@dataclass(frozen=True)
class BatchedMatmulForm:
    """Matrices of rows x depth times depth x columns."""

    batch: tuple[int, ...]
    layout: PackedLayout
    lhs: MatrixOperand
    rhs: MatrixOperand


class BatchedMatmul(Kernel[BatchedMatmulForm]):
    """Products of two tensors of matrices."""

    name = "batched_matmul"
    operators = frozenset({"matmul"})
    form = BatchedMatmulForm

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Return the placeholder of products of float32 matrices."""
        if not is_float_matmul(call):
            return None
        lhs, lhs_strides = _find_strides(rewriter, call.args[0])
        rhs, rhs_strides = _find_strides(rewriter, call.args[1])
        if lhs_strides[-1] != 1:
            lhs, lhs_strides = _contiguous(rewriter, call.args[0])
        if 1 not in rhs_strides[-2:]:
            rhs, rhs_strides = _contiguous(rewriter, call.args[1])
        shapes = [extents(operand.ty) for operand in call.args]
        *batch, rows, columns = extents(call.ty)
        form = BatchedMatmulForm(
            tuple(batch),
            packing.estimate_layout(matmul_shape(rows, shapes[0][-1], columns), rewriter.cpu),
            _operand(lhs, shapes[0], lhs_strides, batch),
            _operand(rhs, shapes[1], rhs_strides, batch),
        )
        return ModelLayout(self.placeholder(rewriter.builder, form, [lhs, rhs], extents(call.ty)))

    def write(self, group: FusedGroup, form: BatchedMatmulForm, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over products and their tiles."""
        lhs, rhs = group.operands
        return BatchedMatmulLoops(form, cpu, lhs, rhs, epilogue_store(group), tasks).statement()

    def operations(self, form: BatchedMatmulForm) -> int:
        """Count multiplications and additions."""
        return math.prod(form.batch) * form.layout.conv.operations


def _operand(base: Any, shape: Sequence[int], strides: Sequence[int], batch: Sequence[int]) -> MatrixOperand:
    batch_strides = [0 if extent == 1 else stride for extent, stride in zip(shape[:-2], strides[:-2], strict=True)]
    broadcast = [0] * (len(batch) - len(batch_strides))
    return MatrixOperand(math.prod(extents(base.ty)), (*broadcast, *batch_strides), strides[-2], strides[-1])


def _find_strides(rewriter: Rewriter, value: Any) -> tuple[Any, tuple[int, ...]]:
    """Return a tensor that is in memory, and the strides by which it is `value`: transposing need not move it."""
    order = tuple(range(value.ty.ndim))
    while (transpose := rewriter.producer(value, "permute_dims")) is not None:
        axes = transpose.attrs.axes
        turn = [int(axis) % len(order) for axis in axes] if axes is not None else list(range(len(order)))[::-1]
        order, value = tuple(turn[axis] for axis in order), transpose.args[0]
    if rewriter.is_last(value):
        base = rewriter.last(value)
        order = tuple(TO_LAST.index(axis) for axis in order)
    else:
        base = rewriter.plain(value)
    strides = _strides(extents(base.ty))
    return base, tuple(strides[axis] for axis in order)


def _contiguous(rewriter: Rewriter, value: Any) -> tuple[Any, tuple[int, ...]]:
    return rewriter.plain(value), _strides(extents(value.ty))


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


class _ColumnBlock(NamedTuple):
    """Neighbouring columns of the right matrix: the first, where they are packed, how many vectors."""

    column: Any
    packed_offset: Any
    size: int
    last: int


class BatchedMatmulLoops:
    """Writes the loops of a product.

    Parameters
    ----------
    form : BatchedMatmulForm
    cpu : Microarchitecture
    lhs, rhs : buffer
    store : callable
        From a sum and its indices to the statement that stores it.
    tasks : int
        Pieces of work wanted for the cores.
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
        self._lanes, self._arithmetic = form.layout.lanes, arithmetic.of("float32", cpu)
        self._lhs, declare_lhs = tir.flat(lhs, "left", form.lhs.size)
        self._rhs, declare_rhs = tir.flat(rhs, "right", form.rhs.size)
        self._declarations = [declare_lhs, declare_rhs]
        conv = form.layout.conv
        self._batch_size = math.prod(form.batch)
        chunks = min(-(-tasks // self._batch_size), -(-conv.height // form.layout.tile.rows))
        self._rows = -(-conv.height // chunks)
        self._chunks = -(-conv.height // self._rows)
        # Packed as a whole where it stays in the cache: then the result is written row by row.
        self._packs_all = tiling.weights_stay(conv, cpu)
        vectors = form.layout.vectors if self._packs_all else form.layout.tile.vectors
        self._packed_buffer = tir.buffer("packed", [conv.depth * vectors * self._lanes])

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

        def blocks(lhs: Any, rhs: Any) -> list[Any]:
            return self._blocks(batch_indices, row, lhs, rhs)

        return tir.bound("left", lhs, lambda lhs: tir.bound("right", rhs, lambda rhs: blocks(lhs, rhs)))

    def _blocks(self, batch_indices: list[Any], row: Any, lhs: Any, rhs: Any) -> list[Any]:
        def pack(block: _ColumnBlock) -> list[Any]:
            return self._pack(rhs + block.column * self._form.rhs.column, block)

        def tile(block: _ColumnBlock, start: Any, rows: int) -> Any:
            return self._tile([*batch_indices, row + start], lhs + start * self._form.lhs.row, rows, block)

        def bands(body: Callable[[Any, int], Any]) -> list[Any]:
            return tir.pieces("band", self._rows, self._layout.tile.rows, lambda _, start, rows: body(start, rows))

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

    def _each_block(self, body: Callable[[_ColumnBlock], Any]) -> list[Any]:
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
                return body(_ColumnBlock(column, packed_offset, size, last))

            statements.append(tir.loop("block", block_count, block))
        return statements

    def _tile(self, batch_indices: list[Any], begin: Any, rows: int, block: _ColumnBlock) -> Any:
        line = self._form.lhs.row
        sums = TileAccumulators(
            self._layout,
            RegisterTile(rows, 1, block.size),
            PixelSource(self._lhs, line, 0),
            self._packed_buffer,
            self._arithmetic,
        )
        loops = tir.bound("from", begin, lambda begin: [sums.loops(begin, block.packed_offset, None)])
        stores = [
            self._store_lanes(
                total,
                [*batch_indices[:-1], batch_indices[-1] + dy, block.column + part * self._lanes],
                block.last if part == block.size - 1 else self._lanes,
            )
            for (dy, _dx, part), total in sums.registers.items()
        ]
        return tir.sequence([*sums.reset(), *loops, *stores])

    def _store_lanes(self, total: Any, indices: list[Any], count: int) -> Any:
        def lane(index: Any) -> Any:
            return self._store(tir.load(total, index), *indices[:-1], indices[-1] + index)

        return tir.loop("lane", count, lane, tir.VECTORIZED)

    def _pack(self, first: Any, block: _ColumnBlock) -> list[Any]:
        """Return statements that bring a block's columns, which start at `first`, side by side for each row."""
        pack = self._by_rows if self._form.rhs.column == 1 else self._by_columns
        lanes, size = self._lanes, block.size
        step = lanes * self._form.rhs.column
        return [
            pack(first + part * step, block.packed_offset + part * lanes, size * lanes,
                 block.last if part == size - 1 else lanes)
            for part in range(size)
        ]  # fmt: skip

    def _by_rows(self, first: Any, offset: Any, step: int, count: int) -> Any:
        """Copy a vector of each row."""
        form, lanes = self._form, self._lanes

        def row(index: Any) -> Any:
            target = index * step + offset
            value = tir.load(self._rhs, tir.span(first + index * form.rhs.row, count))
            copy = tir.store(self._packed_buffer, value, tir.span(target, count))
            if count == lanes:
                return copy
            return tir.sequence([tir.store(self._packed_buffer, tir.zeros(lanes), tir.ramp(target, lanes)), copy])

        return tir.loop("row", self._layout.conv.depth, row)

    def _by_columns(self, first: Any, offset: Any, step: int, count: int) -> Any:
        """Copy columns that are rows in memory, a square block at a time."""
        depth, lanes, line = self._layout.conv.depth, self._lanes, self._form.rhs.column
        if depth < lanes:
            return self._one_by_one(first, offset, step, count)

        def square(index: Any) -> Any:
            start = tir.piece_start(index, lanes, depth)

            def store(number: int, column: Any) -> Any:
                return tir.store(self._packed_buffer, column, tir.ramp((start + number) * step + offset, lanes))

            return shuffling.block(self._rhs, first + start, line, lanes, store, count)

        return tir.loop("square", -(-depth // lanes), square)

    def _one_by_one(self, first: Any, offset: Any, step: int, count: int) -> Any:
        line, lanes = self._form.rhs.column, self._lanes

        def row(index: Any) -> Any:
            clear = tir.store(self._packed_buffer, tir.zeros(lanes), tir.ramp(index * step + offset, lanes))

            def column(number: Any) -> Any:
                value = tir.load(self._rhs, first + number * line + index)
                return tir.store(self._packed_buffer, value, index * step + offset + number)

            return tir.sequence([clear, tir.loop("column", count, column)])

        return tir.loop("row", self._layout.conv.depth, row)
