"""Batched products of data by data: blocks of the right matrix are packed where the left one's rows meet them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from tvm import tirx

from pipeline.executor.schedules.language import shuffling, tir
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.products.products import Product
from pipeline.executor.schedules.tiled import arithmetic, tiles
from pipeline.executor.schedules.tiled.sums import Source, Sums
from pipeline.executor.schedules.tiled.tiles import Tile


class _Block(NamedTuple):
    """Neighbouring columns of the right matrix: the first, where they are packed, how many vectors."""

    column: Any
    packed: Any
    size: int
    last: int


class BatchedKernel:
    """Writes the loops of a product.

    Parameters
    ----------
    form : Product
    machine : Machine
    left, right : buffer
    store : callable
        From a sum and its indices to the statement that stores it.
    tasks : int
        Pieces of work wanted for the cores.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a kernel consists of
        self, form: Product, machine: Machine, left: Any, right: Any, store: Callable[..., Any], tasks: int = 1
    ) -> None:
        self._form, self._layout, self._store, self._tasks = form, form.form, store, tasks
        self._lanes, self._arithmetic = form.form.lanes, arithmetic.of("float32", machine)
        self._left, declare_left = tir.flat(left, "left", form.left.size)
        self._right, declare_right = tir.flat(right, "right", form.right.size)
        self._declared = [declare_left, declare_right]
        window = form.form.window
        self._many = math.prod(form.batch)
        chunks = min(-(-tasks // self._many), -(-window.height // form.form.tile.rows))
        self._rows = -(-window.height // chunks)
        self._chunks = -(-window.height // self._rows)
        # Packed as a whole where it stays in the cache: then the result is written row by row.
        self._whole = tiles.weights_stay(window, machine)
        vectors = form.form.vectors if self._whole else form.form.tile.vectors
        self._packed = tir.buffer("packed", [window.depth * vectors * self._lanes])

    def statement(self) -> Any:
        """Return the whole computation."""
        height = self._layout.window.height

        def task(index: Any) -> Any:
            first = (index % self._chunks) * self._rows
            if height % self._rows:
                first = tirx.Min(first, tir.number(height - self._rows))
            places = tir.places(index // self._chunks, self._form.batch)
            return tir.sequence(tir.bound("row", first, lambda row: self._chunk(places, row)))

        return tir.sequence(
            [*self._declared, tir.loop("task", self._many * self._chunks, task, tir.parallel(self._tasks))]
        )

    @staticmethod
    def _start(places: list[Any], strides: tuple[int, ...]) -> Any:
        start = tir.number(0)
        for place, stride in zip(places, strides, strict=True):
            start += place * stride
        return start

    def _chunk(self, places: list[Any], row: Any) -> list[Any]:
        left = self._start(places, self._form.left.batch) + row * self._form.left.row
        right = self._start(places, self._form.right.batch)

        def blocks(left: Any, right: Any) -> list[Any]:
            return self._blocks(places, row, left, right)

        return tir.bound("left", left, lambda left: tir.bound("right", right, lambda right: blocks(left, right)))

    def _blocks(self, places: list[Any], row: Any, left: Any, right: Any) -> list[Any]:
        def pack(block: _Block) -> list[Any]:
            return self._pack(right + block.column * self._form.right.column, block)

        def tile(block: _Block, start: Any, rows: int) -> Any:
            return self._tile([*places, row + start], left + start * self._form.left.row, rows, block)

        def bands(body: Callable[[Any, int], Any]) -> list[Any]:
            return tir.pieces("band", self._rows, self._layout.tile.rows, lambda _, start, rows: body(start, rows))

        allocated = tirx.AllocBuffer(self._packed)
        if self._whole:
            across = bands(lambda start, rows: tir.sequence(self._each_block(lambda block: tile(block, start, rows))))
            return [allocated, *self._each_block(lambda block: tir.sequence(pack(block))), *across]
        return [
            allocated,
            *self._each_block(
                lambda block: tir.sequence([*pack(block), *bands(lambda start, rows: tile(block, start, rows))])
            ),
        ]

    def _each_block(self, body: Callable[[_Block], Any]) -> list[Any]:
        layout, lanes = self._layout, self._lanes
        rest = layout.window.makes % lanes
        statements = []
        for first, many, size in tiles.blocks(layout.vectors, layout.tile.vectors, alone=bool(rest)):
            last = rest if rest and first + many * size == layout.vectors else lanes

            def block(index: Any, first: int = first, size: int = size, last: int = last) -> Any:
                column = (index * size + first) * lanes
                packed = column * layout.window.depth if self._whole else tir.number(0)
                return body(_Block(column, packed, size, last))

            statements.append(tir.loop("block", many, block))
        return statements

    def _tile(self, places: list[Any], begin: Any, rows: int, block: _Block) -> Any:
        line = self._form.left.row
        sums = Sums(
            self._layout, Tile(rows, 1, block.size), Source(self._left, line, 0), self._packed, self._arithmetic
        )
        loops = tir.bound("from", begin, lambda begin: [sums.loops(begin, block.packed, None)])
        stores = [
            self._stored(
                total,
                [*places[:-1], places[-1] + down, block.column + part * self._lanes],
                block.last if part == block.size - 1 else self._lanes,
            )
            for (down, _right, part), total in sums.registers.items()
        ]
        return tir.sequence([*sums.cleared(), *loops, *stores])

    def _stored(self, total: Any, indices: list[Any], count: int) -> Any:
        def lane(index: Any) -> Any:
            return self._store(tir.load(total, index), *indices[:-1], indices[-1] + index)

        return tir.loop("lane", count, lane, tir.VECTORIZED)

    def _pack(self, first: Any, block: _Block) -> list[Any]:
        """Return statements that bring a block's columns, which start at `first`, side by side for each row."""
        pack = self._by_rows if self._form.right.column == 1 else self._by_columns
        lanes, size = self._lanes, block.size
        step = lanes * self._form.right.column
        return [
            pack(first + part * step, block.packed + part * lanes, size * lanes,
                 block.last if part == size - 1 else lanes)
            for part in range(size)
        ]  # fmt: skip

    def _by_rows(self, first: Any, offset: Any, step: int, count: int) -> Any:
        """Copy a vector of each row."""
        form, lanes = self._form, self._lanes

        def row(index: Any) -> Any:
            target = index * step + offset
            value = tir.load(self._right, tir.span(first + index * form.right.row, count))
            copy = tir.store(self._packed, value, tir.span(target, count))
            if count == lanes:
                return copy
            return tir.sequence([tir.store(self._packed, tir.zeros(lanes), tir.ramp(target, lanes)), copy])

        return tir.loop("row", self._layout.window.depth, row)

    def _by_columns(self, first: Any, offset: Any, step: int, count: int) -> Any:
        """Copy columns that are rows in memory, a square block at a time."""
        depth, lanes, line = self._layout.window.depth, self._lanes, self._form.right.column
        if depth < lanes:
            return self._one_by_one(first, offset, step, count)

        def square(index: Any) -> Any:
            # The last block begins earlier rather than ending late.
            start = index * lanes if depth % lanes == 0 else tirx.Min(index * lanes, tir.number(depth - lanes))

            def store(number: int, column: Any) -> Any:
                return tir.store(self._packed, column, tir.ramp((start + number) * step + offset, lanes))

            return shuffling.block(self._right, first + start, line, lanes, store, count)

        return tir.loop("square", -(-depth // lanes), square)

    def _one_by_one(self, first: Any, offset: Any, step: int, count: int) -> Any:
        line, lanes = self._form.right.column, self._lanes

        def row(index: Any) -> Any:
            clear = tir.store(self._packed, tir.zeros(lanes), tir.ramp(index * step + offset, lanes))

            def column(number: Any) -> Any:
                value = tir.load(self._right, first + number * line + index)
                return tir.store(self._packed, value, index * step + offset + number)

            return tir.sequence([clear, tir.loop("column", count, column)])

        return tir.loop("row", self._layout.window.depth, row)
