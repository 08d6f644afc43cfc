"""Convolution by AMX: matrix tiles of bfloat16 pairs, or of bytes in fours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from msgspec import structs
from tvm import tirx

from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import channel_blocks, pair_products, tiling
from pipeline.executor.kernels.tiles.accumulators import LINE
from pipeline.executor.kernels.tiles.amx_layout import ROWS, SPLIT, WAY, WAYS, joins_columns, summed_shape
from pipeline.executor.kernels.tiles.channel_blocks import TileOrigin
from pipeline.executor.kernels.tiles.conv_loops import ConvLoops, TileEpilogue
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.kernels.tiles.padded_copy import copy_run
from pipeline.executor.kernels.tiles.pair_products import PAIR
from pipeline.tvm import statements as tir

_ROW_BYTES, _UNIT_BYTES = 64, 4

# By elements in a unit of 32 bits: the instruction, and the dtype of its sums.  Bytes are unsigned, weights signed.
_PRODUCTS = {2: ("tdpbf16ps", "float32"), 4: ("tdpbusd", "int32")}

# Of data and weights: the larger or the smaller part of each number.  The product of both smaller ones, up to 2**-16
# of all, is left out.
_PASSES = {WAY: ((0, 0),), SPLIT: ((1, 0), (0, 0), (0, 1))}

# Pixels whose sums wait for their epilogue in the first-level cache.
_BAND = 192

# Linux, on x86-64: `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)` lets a process use the registers of tiles.
_PERMISSION = (158, 0x1023, 18)


class AmxLoops:
    """Writes the loops of one convolution, on units of 32 bits as channels.

    A copy of the data, if needed, has rows apart by their remainders of the stride. Steps between the data of results
    are then the same beyond the ends of lines, where nobody stores the few sums. Float32 is split in the copy. The
    packed weights begin at `first` in their buffer.
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
        self._form, self._conv = form, form.conv
        self._summed = structs.replace(form, conv=summed_shape(form.conv)[0])
        self._weights, self._epilogue, self._tasks, self._first = weights, epilogue, tasks, first
        self._multiply, self._dtype = _PRODUCTS[form.element_channels]
        conv = form.conv
        # Units of a pixel, of which a few zeros may be the last.
        self._depth = conv.depth if joins_columns(conv) else self._summed.conv.depth
        self._planes = 2 if form.way == SPLIT else 1
        is_same_size = (conv.height, conv.width) == (conv.out_height, conv.out_width)
        self._copies = self._planes > 1 or not (conv.pointwise and is_same_size and self._depth == conv.depth)
        self._reach = [(conv.kernel[axis] - 1) * conv.dilation[axis] // conv.strides[axis] for axis in range(2)]
        # Results in a line, with those beyond its end.
        self._line = conv.out_width + self._reach[1]
        pixel = self._planes * conv.strides[0] * conv.strides[1] * self._depth if self._copies else conv.channels
        row_bytes = self._line * pixel * _UNIT_BYTES
        fit = max(
            1, min(cpu.l2_bytes // 4 // row_bytes, -(-conv.out_height // -(-tasks // (conv.batch * conv.groups))))
        )
        chunks = -(-conv.out_height // min(fit, conv.out_height))
        self._rows = -(-conv.out_height // chunks)
        self._chunks = -(-conv.out_height // self._rows)
        self._band_rows = min(range(1, self._rows + 1), key=self._row_cost)
        size = conv.batch * conv.height * conv.width * conv.channels
        elements = (size, "int32") if self._planes == 1 else (size * PAIR, "float32")
        self._data, self._declare = tir.flat(data, "data", *elements)
        self._source, self._pixel = self._data, conv.channels
        self._stay = tiling.weights_stay(self._summed.conv, cpu)
        # Units of the larger parts, which the smaller ones follow.
        self._plane = conv.strides[0] * self._copied_rows * self._line * conv.strides[1] * self._depth

    @property
    def exact(self) -> bool:
        """True if each element is stored once only."""
        return self._conv.out_height % self._rows == 0

    def statement(self) -> Any:
        """Return the whole computation."""
        return tir.sequence([permission(), self.loops()])

    def loops(self) -> Any:
        """Return the computation of a process that has permission."""
        tasks = channel_blocks.chunk_tasks(self._conv, self._rows, self._chunks, self._tasks, self._chunk)
        return tir.sequence([self._declare, tasks])

    def _row_cost(self, rows: int) -> tuple[bool, float]:
        tiles = -(-self._pixels(rows) // ROWS)
        # A tile by itself loads as many weights as two.
        return rows > 1 and self._pixels(rows) > _BAND, (tiles + 0.5 * (tiles % 2)) / rows

    def _pixels(self, rows: int) -> int:
        return (rows - 1) * self._line + self._conv.out_width

    def _chunk(self, image: Any, group: Any, row: Any) -> list[Any]:
        conv = self._conv
        statements = self._configure(ROWS)
        base = ((image * conv.height + row) * conv.width) * conv.channels + group * conv.depth
        if self._copies:
            statements += self._copy(image, group, row)
            base = tir.number(0)
        origin = TileOrigin(image, group, row, base, tir.number(0), tir.number(0))

        def blocks(body: Callable[[TileOrigin, int, bool], Any]) -> Any:
            return tir.sequence([
                tir.loop("block", count, lambda index, block=block: body(*block(index)))  # type: ignore[misc]
                for count, block in channel_blocks.divide(self._summed, origin, self._first)
            ])  # fmt: skip

        def bands(body: Callable[[Any, Any, int], Any]) -> Any:
            return tir.sequence(tir.pieces("band", self._rows, self._band_rows, body))

        # What is smaller is read again: weights that stay in the cache, or a chunk's data.
        if self._stay:
            loops = bands(lambda _, first, rows: blocks(lambda *block: self._band(block, first, rows)))
        else:
            loops = blocks(lambda *block: bands(lambda _, first, rows: self._band(block, first, rows)))
        return [*statements, loops, _instruction("tilerelease")]

    def _configure(self, pixels: int) -> list[Any]:
        """Set the rows and bytes per row of all tiles: sums, data, weights."""
        configuration = np.zeros(64, np.uint8)
        configuration[0] = 1
        row_bytes, rows = configuration[16:32].view(np.uint16), configuration[48:56]
        row_bytes[:], rows[:6] = _ROW_BYTES, pixels
        row_bytes[4:6], rows[6:] = self._form.depth * _UNIT_BYTES, self._form.depth
        memory = tir.buffer("tiles", [16], "int32")
        stores = [
            tir.store(memory, tirx.IntImm("int32", int(value)), tir.number(index))
            for index, value in enumerate(configuration.view(np.int32))
        ]
        return [tirx.AllocBuffer(memory), *stores, _instruction("ldtilecfg", _address(memory, tir.number(0)))]

    def _band(self, block: tuple[TileOrigin, int, bool], first: Any, rows: int) -> Any:
        """Return the sums and stores of a band of rows and a block of channels."""
        (origin, vectors, partial), prefetch = block, self._epilogue.prefetch
        conv, width, pixels = self._conv, vectors * self._form.lanes, self._pixels(rows)
        missing = -conv.group_outputs % self._form.lanes if partial else 0
        sums = tir.buffer("sums", [pixels * width], self._dtype)
        start = origin.base + first * (self._line * self._pixel)
        products = self._products(start, origin.weights, pixels, vectors, sums)
        if pixels < ROWS:
            products = [*self._configure(pixels), *products, *self._configure(ROWS)]
        channel = origin.group * conv.group_outputs + origin.channel

        def store(dy: Any, dx: Any) -> Any:
            place = (dy * self._line + dx) * width

            def lane(index: Any) -> Any:
                total = tir.load(sums, place + index)
                return self._epilogue.store(total, origin.image, origin.row + first + dy, dx, channel + index)

            return tir.loop("lane", width - missing, lane, tir.VECTORIZED)

        def fetch(dy: Any, dx: Any) -> Any:
            # What a residual adds arrives while the sums are computed.
            return tir.sequence([
                statement
                for part in range(0, width, self._epilogue.line)
                if prefetch
                for statement in prefetch(origin.image, origin.row + first + dy, dx, channel + part)
            ])  # fmt: skip

        def each(body: Callable[[Any, Any], Any]) -> Any:
            return tir.loop("down", rows, lambda dy: tir.loop("right", conv.out_width, lambda dx: body(dy, dx)))

        fetches = [each(fetch)] if prefetch else []
        return tir.sequence([tirx.AllocBuffer(sums), *fetches, *products, each(store)])

    def _products(self, start: Any, weights: Any, pixels: int, vectors: int, sums: Any) -> list[Any]:
        """Sum adjacent pixels, by pairs of tiles; the last one may overlap."""
        rows = min(ROWS, pixels)
        pairs, single = divmod(-(-pixels // rows), 2)
        turns = pairs + single

        def pair(index: Any) -> Any:
            firsts = [first(index * 2), first(index * 2 + 1)]
            return self._tiles(start, weights, firsts, vectors, sums, (index, turns))

        def first(index: Any) -> Any:
            return tir.piece_start(index, rows, pixels)

        loops = [tir.loop("pair", pairs, pair)] if pairs else []
        last = [tir.number(pixels - rows)]
        turn = (tir.number(pairs), turns)
        return [*loops, *([self._tiles(start, weights, last, vectors, sums, turn)] if single else [])]

    def _tiles(  # noqa: PLR0913, PLR0917
        self, start: Any, weights: Any, firsts: Sequence[Any], vectors: int, sums: Any, turn: tuple[Any, int]
    ) -> Any:
        """Sum one or two tiles of pixels by one or two of channels.

        Each turn fetches a part of the next block's weights, if these do not stay in the cache.
        """
        depth, width = self._form.depth, vectors * self._form.lanes
        height, across = self._summed.conv.kernel
        tiles = list(product(range(len(firsts)), range(vectors)))
        lines = 0 if self._stay else -(-depth * width // (LINE * turn[1]))
        ahead = self._summed.conv.terms * width + turn[0] * (lines * LINE)

        def terms(step: Any, dy: Any, dx: Any) -> Any:
            data = start + self._tap(dy, dx) + step * depth
            block = weights + ((step * height + dy) * across + dx) * (depth * width)
            statements = [tir.fetch(self._weights, block + ahead + line * LINE, to_l1=False) for line in range(lines)]
            planes: dict[int, int] = {}
            # Loads between products: one arrives while the processor multiplies another.
            for (data_plane, weights_plane), (index, part) in product(_PASSES[self._form.way], tiles):
                weights_start = block + (weights_plane * self._summed.size + part * self._form.lanes)
                data_start = data + (firsts[index] * self._pixel + data_plane * self._plane)
                for tile, plane, source, place, line in (
                    (6 + part, weights_plane, self._weights, weights_start, width),
                    (4 + index, data_plane, self._source, data_start, self._pixel),
                ):
                    if planes.get(tile) != plane:
                        statements.append(_load(tile, source, place, line * _UNIT_BYTES))
                        planes[tile] = plane
                statements.append(_instruction(self._multiply, *map(_tile, (2 * index + part, 4 + index, 6 + part))))
            return tir.sequence(statements)

        def step(index: Any) -> Any:
            return tir.loop("dy", height, lambda dy: tir.loop("dx", across, lambda dx: terms(index, dy, dx)))

        return tir.sequence([
            *(_instruction("tilezero", _tile(2 * index + part)) for index, part in tiles),
            tir.loop("step", self._summed.conv.depth // depth, step),
            *(_instruction(
                "tilestored64", _tile(2 * index + part),
                _address(sums, firsts[index] * width + part * self._form.lanes), tir.number(width * _UNIT_BYTES),
            ) for index, part in tiles),
        ])  # fmt: skip

    def _tap(self, dy: Any, dx: Any) -> Any:
        """Return the offset of a tap's data from those of the first one."""
        conv = self._conv
        if not self._copies:
            return tir.number(0)
        down = dy * conv.dilation[0]
        line = down // conv.strides[0] + down % conv.strides[0] * self._copied_rows
        return (line * (self._line * conv.strides[1]) + dx * conv.dilation[1]) * self._depth

    @property
    def _copied_rows(self) -> int:
        return self._rows + self._reach[0]

    def _copy(self, image: Any, group: Any, row: Any) -> list[Any]:
        """Copy a chunk's data, one part for each remainder of the rows by their stride."""
        conv, line = self._conv, self._line * self._conv.strides[1]
        scratch = tir.buffer("padded", [self._planes * self._plane], "int32")
        self._source, self._pixel = scratch, conv.strides[1] * self._depth
        phases = sorted({tap * conv.dilation[0] % conv.strides[0] for tap in range(conv.kernel[0])})
        return [
            tirx.AllocBuffer(scratch),
            *(tir.loop("row", self._copied_rows, lambda index, phase=phase: self._copy_row(  # type: ignore[misc]
                scratch, image, group, (row + index) * conv.strides[0] + (phase - conv.pads[0]),
                (index + phase * self._copied_rows) * (line * self._depth), line,
            )) for phase in phases),
        ]  # fmt: skip

    def _copy_row(self, scratch: Any, image: Any, group: Any, source: Any, target: Any, line: int) -> Any:  # noqa: PLR0913, PLR0917
        """Copy a row of data between its margins, or zeros outside of all rows."""
        conv, depth = self._conv, self._depth
        left = min(line, max(0, conv.pads[1]))
        end = max(left, min(line, conv.width + conv.pads[1]))
        first = ((image * conv.height + source) * conv.width - conv.pads[1]) * conv.channels + group * conv.depth

        def pixels(count: int, run: int) -> Any:
            def pixel(number: Any) -> Any:
                place = target + (number + left) * depth
                copy = self._copy_units(first + (number + left) * conv.channels, scratch, place, run)
                return tir.sequence([copy, *self._fill(scratch, place + run, depth - run)] if depth > run else [copy])

            return tir.loop("pixel", count, pixel)

        # All channels are wanted, so that neighbouring pixels are one run.
        is_run = conv.groups == 1 and depth == conv.depth
        copy = pixels(1, (end - left) * depth) if is_run else pixels(end - left, conv.depth)
        margins = [
            *self._fill(scratch, target, left * depth),
            *self._fill(scratch, target + end * depth, (line - end) * depth),
        ]
        is_outside = tirx.Or(source < tir.number(0), source >= tir.number(conv.height))
        zeros = tir.sequence(self._fill(scratch, target, line * depth))
        return tirx.IfThenElse(is_outside, zeros, tir.sequence([copy, *margins] if end > left else margins))

    def _fill(self, scratch: Any, start: Any, count: int) -> list[Any]:
        """Store what is outside of the data."""
        starts = (start + plane * self._plane for plane in range(self._planes))
        return [part for first in starts for part in fill(scratch, first, count, self._form.filler)]

    def _copy_units(self, source: Any, scratch: Any, target: Any, count: int) -> Any:
        """Copy adjacent units, or split float32 into them."""
        if self._planes == 1:
            return copy_run(self._data, source, scratch, target, count, ROWS)

        def step(offset: Any, size: int) -> Any:
            lanes = size * PAIR
            numbers = tir.load(self._data, tir.ramp((source + offset) * PAIR, lanes))
            (number,), statements = tir.bind_values("numbers", [numbers], f"float32x{lanes}")
            parts = (number, number - pair_products.round_number(number, lanes))
            places = (tir.span(target + offset + plane * self._plane, size) for plane in range(2))
            stores = (tir.store(scratch, pair_products.round_pairs(*pair), place) for pair, place in
                      zip(((part, lanes) for part in parts), places, strict=True))  # fmt: skip
            return tir.sequence([*statements, *stores])

        return tir.run(count, ROWS, step)


def loops_of(form: PackedLayout) -> type[AmxLoops | ConvLoops]:
    """Return the writer of a layout's loops."""
    return AmxLoops if form.way in WAYS else ConvLoops


def fill(target: Any, start: Any, count: int, unit: int) -> list[Any]:
    """Store a unit `count` times, if there are any."""
    value = tirx.IntImm("int32", unit)

    def step(offset: Any, size: int) -> Any:
        return tir.store(target, tir.wide(value, size), tir.span(start + offset, size))

    return [tir.run(count, ROWS, step)] if count else []


def permission() -> Any:
    """Return the statement that asks Linux for the registers, once for the process."""
    numbers = (tirx.IntImm("int64", number) for number in _PERMISSION)
    return tirx.Evaluate(tirx.call_extern("int64", "syscall", *numbers))


def _tile(number: int) -> Any:
    return tirx.IntImm("int8", number)


def _address(buffer: Any, index: Any) -> Any:
    return tirx.address_of(tir.load(buffer, index))


def _load(tile: int, source: Any, index: Any, stride: int) -> Any:
    return _instruction("tileloadd64", _tile(tile), _address(source, index), tir.number(stride))


def _instruction(name: str, *arguments: Any) -> Any:
    return tirx.Evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.{name}", *arguments))
