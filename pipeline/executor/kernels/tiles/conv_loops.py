"""Convolution: pixel by channel register tiles over packed weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from tvm import tirx

from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import (
    arithmetic,
    channel_blocks,
    half_products,
    padded_copy,
    pair_products,
    tiling,
)
from pipeline.executor.kernels.tiles.accumulators import LINE, PixelSource, TileAccumulators
from pipeline.executor.kernels.tiles.channel_blocks import ChannelBlock, TileOrigin
from pipeline.executor.kernels.tiles.half_accumulators import HalfAccumulators
from pipeline.executor.kernels.tiles.matrix_accumulators import MatrixAccumulators
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.kernels.tiles.tiling import RegisterTile
from pipeline.tvm import statements as tir

_ACCUMULATORS: dict[str, type[TileAccumulators]] = {
    "mmla": MatrixAccumulators, "bfmmla": MatrixAccumulators, half_products.WAY: HalfAccumulators,
}  # fmt: skip

JOINED_TERMS = 32
"""Most terms for joining channel blocks into one loop."""


class TileEpilogue(NamedTuple):
    """Epilogue of the sums of a tile."""

    store: Callable[[Any, Any, Any, Any, Any], Any]
    """Function from a sum and its indices n, h, w, c to the statement that stores it."""
    prefetch: Callable[[Any, Any, Any, Any], list[Any]] | None = None
    """Function from the indices of a sum to statements that prefetch the operands of its store."""
    line: int = LINE
    """Results in a cache line."""
    is_long: bool = False
    """True writes it once per tile, in a loop over pixels, instead of once per register."""


class ConvLoops:
    """Writes the loops of one convolution, in `tasks` pieces of work for the cores.

    The packed weights begin at `first` in their buffer.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a kernel consists of
        self,
        form: PackedLayout,
        cpu: Microarchitecture,
        data: Any,
        weights: Any,
        epilogue: TileEpilogue,
        tasks: int = 1,
        first: Any = 0,
    ) -> None:
        self._form, self._conv, self._tile, self._lanes = form, form.conv, form.tile, form.lanes
        self._weights, self._first, self._epilogue = weights, first, epilogue
        cpu = half_products.for_tiles(cpu) if form.way == half_products.WAY else cpu
        # Decides which loop is inside: over blocks of channels if all their weights stay, else over pixels.
        self._stay = tiling.weights_stay(form.conv, cpu)
        conv = self._conv
        # So few terms are written out as a whole, without a loop around what they read.
        self._joins = self._stay and cpu.lane_products and conv.terms <= JOINED_TERMS
        # Bytes are stored a vector at a time, not each in the wake of its own sums.
        self._stored_vectors = max(1, epilogue.line // LINE) if cpu.lane_products else 1
        self._tasks = tasks
        # Images and groups are shared out to the cores first, rows only as far as these are too few.
        self._rows = tiling.chunk_rows(conv, form.tile, cpu, -(-tasks // (conv.batch * conv.groups)))
        self._chunks = -(-conv.out_height // self._rows)
        # Tiles that read one block of weights; each of them fetches a part of the next block.
        self._count = -(-self._rows // form.tile.rows) * -(-conv.out_width // form.tile.columns)
        size = conv.batch * conv.height * conv.width * conv.channels
        self._arithmetic = arithmetic.of(str(data.dtype), cpu, form.way)
        self._data, self._declare = tir.flat(data, "data", size, self._arithmetic.memory)
        self._source = PixelSource(self._data, conv.width * conv.channels, conv.channels)

    @property
    def exact(self) -> bool:
        """True if each element is computed once only."""
        return self._conv.out_height % self._rows == 0

    def statement(self) -> Any:
        """Return the whole computation."""
        tasks = channel_blocks.chunk_tasks(self._conv, self._rows, self._chunks, self._tasks, self._chunk)
        statement = tir.sequence([self._declare, tasks])
        return pair_products.define(self._form.way, statement) if self._form.way in pair_products.WAYS else statement

    def _chunk(self, image: Any, group: Any, row: Any) -> list[Any]:
        conv = self._conv
        top = row * conv.strides[0]
        copies = self._arithmetic.memory != self._arithmetic.factor
        if not (conv.padded or copies):
            base = ((image * conv.height + top) * conv.width) * conv.channels + group * conv.depth
            return tir.bound("base", base, lambda start: self._blocks(image, group, row, start))
        # Padded data are copied: the innermost loop has no borders then, and what it reads is close in the cache.
        rows, filler, dtype = conv.reach(0, self._rows), self._form.filler, self._arithmetic.factor
        if conv.padded or conv.groups > 1:
            copy = padded_copy.copy_padded(self._data, conv, rows, image, group, top, self._lanes, filler, dtype=dtype)
        else:
            copy = padded_copy.copy_rows(self._data, conv, rows, image, top, self._lanes, dtype)
        self._source = PixelSource(copy.buffer, copy.line, conv.depth)
        return [*copy.statements, *self._blocks(image, group, row, tir.number(0))]

    def _blocks(self, image: Any, group: Any, row: Any, base: Any) -> list[Any]:
        """Loop over channel blocks and pixels, smaller data inside."""
        origin = TileOrigin(image, group, row, base, tir.number(0), tir.number(0))
        if self._joins:
            return self._joined_tiles(origin)
        if self._stay:
            return self._pixels(
                lambda corner, number, rows, columns: tir.sequence(
                    self._channels(origin, lambda block, size, part: self._tile_statement(
                        block, corner, number, RegisterTile(rows, columns, size), part
                    ))
                )
            )  # fmt: skip
        return self._channels(
            origin,
            lambda block, size, part: tir.sequence(
                self._pixels(lambda corner, number, rows, columns: self._tile_statement(
                    block, corner, number, RegisterTile(rows, columns, size), part
                ))
            ),
        )  # fmt: skip

    def _channels(self, origin: TileOrigin, body: Callable[[TileOrigin, int, bool], Any]) -> list[Any]:
        return [
            tir.loop("block", count, lambda index, block=block: body(*block(index)))  # type: ignore[misc]
            for count, block in channel_blocks.divide(self._form, origin, self._first)
        ]

    def _joined_tiles(self, origin: TileOrigin) -> list[Any]:
        """Loop over tiles with channel blocks inside, two joined.

        From a loop over blocks alone, LLVM would take out all that they read in common, which is more than there are
        registers for.
        """
        width, tile = self._conv.out_width, self._tile

        def band(_: Any, row: Any, rows: int) -> Any:
            statements = list[Any]()
            for first, count, columns in tiling.blocks(width, tile.columns):
                corner = partial(
                    lambda index, first, columns: (row, index * columns + first), first=first, columns=columns
                )
                statements += self._joined_loops(origin, count, corner, RegisterTile(rows, columns, 0))
            return tir.sequence(statements)

        if width > tile.columns:
            return tir.pieces("band", self._rows, tile.rows, band)
        statements = list[Any]()
        for top, count, rows in tiling.blocks(self._rows, tile.rows):
            corner = partial(lambda index, top, rows: (index * rows + top, tir.number(0)), top=top, rows=rows)
            statements += self._joined_loops(origin, count, corner, RegisterTile(rows, width, 0))
        return statements

    def _joined_loops(
        self, origin: TileOrigin, count: int, corner_of: Callable[[Any], tuple[Any, Any]], pixels: RegisterTile
    ) -> list[Any]:
        """Loop per block size over pixel tiles and blocks."""

        def body(index: Any, block_count: int, block: ChannelBlock) -> Any:
            block_origin, size, is_partial = block(index % block_count)
            tile = replace(pixels, vectors=size)
            return self._tile_statement(block_origin, corner_of(index // block_count), 0, tile, is_partial)

        return [
            tir.loop("tile", count * block_count, partial(body, block_count=block_count, block=block))
            for block_count, block in channel_blocks.divide(self._form, origin, self._first)
        ]

    def _pixels(self, body: Callable[[tuple[Any, Any], Any, int, int], Any]) -> list[Any]:
        """Loop over tiles; `body` gets corner, number, rows and columns."""
        tiles_across = -(-self._conv.out_width // self._tile.columns)

        def across(band: Any, row: Any, rows: int) -> Any:
            def piece(index: Any, column: Any, columns: int) -> Any:
                return body((row, column), band * tiles_across + index, rows, columns)

            return tir.sequence(tir.pieces("piece", self._conv.out_width, self._tile.columns, piece))

        return tir.pieces("band", self._rows, self._tile.rows, across)

    def _tile_statement(
        self, origin: TileOrigin, corner: tuple[Any, Any], number: Any, tile: RegisterTile, partial: bool
    ) -> Any:
        """Sum and store one tile, the `number`th of its block."""
        row, column = corner
        conv, source = self._conv, self._source
        accumulators = _ACCUMULATORS.get(self._form.way, TileAccumulators)
        sums = accumulators(self._form, tile, source, self._weights, self._arithmetic)
        base = origin.base + row * (conv.strides[0] * source.line) + column * (conv.strides[1] * source.step)
        # With one tile, a block is read once, one after the other, as the processor expects of itself.
        turn = None if self._stay or self._count == 1 else (number, self._count)
        loops = tir.bound("from", base, lambda start: [sums.loops(start, origin.weights, turn)])
        # Asked for before the sums: what a residual adds arrives while they are computed.
        fetches = self._fetches(origin, row, column, tile)
        # One pixel after the other, from its products to its bytes, would need all weights in registers.
        boundary = [sums.boundary()] if self._joins and self._form.element_channels > 1 else []
        stores = self._stores(sums, origin, row, column, partial)
        return tir.sequence([*sums.reset(), *fetches, *loops, *boundary, *sums.finish(), *stores])

    def _fetches(self, origin: TileOrigin, row: Any, column: Any, tile: RegisterTile) -> list[Any]:
        """Prefetch the stores' operands during the sums."""
        prefetch = self._epilogue.prefetch
        if prefetch is None:
            return []
        statements = []
        for dy in range(tile.rows):
            for dx in range(tile.columns):
                # Once for each cache line, not for each element.
                for first in range(0, tile.vectors * self._lanes, self._epilogue.line):
                    h, w = origin.row + row + dy, column + dx
                    c = origin.group * self._conv.group_outputs + origin.channel + first
                    statements += prefetch(origin.image, h, w, c)
        return statements

    def _stores(self, sums: TileAccumulators, origin: TileOrigin, row: Any, column: Any, partial: bool) -> list[Any]:
        """Store a tile register by register, or pixel by pixel in a loop that holds a long epilogue once."""
        tile, lanes, results = sums.tile, self._lanes, sums.results
        channel = origin.group * self._conv.group_outputs + origin.channel
        missing = -self._conv.group_outputs % lanes if partial else 0

        def store(total: Any, start: Any, pixel: tuple[Any, Any], parts: range) -> Any:
            dy, dx = pixel
            count = len(parts) * lanes - (missing if parts.stop == tile.vectors else 0)
            indices = (origin.image, origin.row + row + dy, column + dx, channel + parts.start * lanes)
            return self._store(total, start, indices, count)

        if self._epilogue.is_long and tile.rows * tile.columns > 1:
            # By way of memory, as a loop's index is no register's.
            total, joining = self._join([results[key] for key in sorted(results)])
            pieces = (
                [range(tile.vectors - 1), range(tile.vectors - 1, tile.vectors)] if missing else [range(tile.vectors)]
            )

            def pixel(dy: Any, dx: Any) -> Any:
                start = (dy * tile.columns + dx) * (tile.vectors * lanes)
                return tir.sequence(
                    [store(total, start + piece.start * lanes, (dy, dx), piece) for piece in pieces if piece]
                )

            def line(dy: Any) -> Any:
                return tir.loop("x", tile.columns, lambda dx: pixel(dy, dx))

            return [*joining, tir.loop("y", tile.rows, line)]
        statements = list[Any]()
        for dy, dx, part in results:
            if part % self._stored_vectors == 0:
                parts = range(part, min(part + self._stored_vectors, tile.vectors))
                total, joining = self._join([results[dy, dx, index] for index in parts])
                statements += [*joining, store(total, tir.number(0), (dy, dx), parts)]
        return statements

    def _join(self, registers: list[Any]) -> tuple[Any, list[Any]]:
        """Join the sums of several registers in a buffer."""
        if len(registers) == 1:
            return registers[0], []
        lanes = self._lanes
        joined = tir.buffer("joined", [len(registers) * lanes], str(registers[0].dtype))
        loads = [tir.load(register, tir.ramp(tir.number(0), lanes)) for register in registers]
        starts = [tir.number(index * lanes) for index in range(len(registers))]
        stores = [tir.store(joined, load, tir.ramp(start, lanes)) for load, start in zip(loads, starts, strict=True)]
        return joined, [tirx.AllocBuffer(joined), *stores]

    def _store(self, total: Any, start: Any, indices: tuple[Any, Any, Any, Any], count: int) -> Any:
        image, h, w, c = indices

        def lane(index: Any) -> Any:
            return self._epilogue.store(tir.load(total, start + index), image, h, w, c + index)

        return tir.loop("lane", count, lane, tir.VECTORIZED)
