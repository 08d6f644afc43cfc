"""Picture kernel: pictures resized, converted, normalised and laid out in one pass.

A tile of results is as many rows as a vector has lanes, and `TILE` columns.  Its source rows are mixed first, along
vectors of neighbours.  The mixed block is transposed, so that each lane is a row, and a column of results is a sum of
whole vectors: nothing is gathered from single bytes.  Colours are converted in these vectors, and the way back to rows
is another transposition.  Sizes, positions and weights are tables, see `pipeline.executor.picture_tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.tirx import compilation_pipeline

from pipeline.executor import picture_tables as tables
from pipeline.executor.kernels import microarchitecture
from pipeline.executor.kernels.tir import shuffling
from pipeline.executor.picture_tables import TILE, PictureForm, PixelPlane, mixes, planes_of
from pipeline.tvm import statements as tir

_PIPELINE = "soc-pipeline-picture"
"""TVM's name of the passes for these kernels, which are written as the code generator takes them: five of forty."""

_UNBOUNDED = 1 << 40
_LIMITS = {"uint8": (0, 255), "int8": (-128, 127)}


def build_executable(form: PictureForm, formats: Iterable[str], target: Any) -> Any:
    """Return TVM's executable with a kernel for each format."""
    lanes = microarchitecture.of_target(target).lanes
    functions = {form.kernel(name): PictureKernel(name, form, lanes).write() for name in formats}
    compilation_pipeline.register_tir_pipeline(_PIPELINE, _passes)
    return tvm.compile(tvm.IRModule(functions), target, tir_pipeline=_PIPELINE)


def _passes() -> tuple[Any, Any, Any]:
    _, *finalization = compilation_pipeline.get_tir_pipeline("default")
    passes = tirx.transform
    lowering = [
        passes.FlattenBuffer(), passes.AnnotateEntryFunc(), passes.SplitHostDevice(), passes.MakePackedAPI(),
    ]  # fmt: skip
    return (tvm.transform.Sequential(lowering), *finalization)


class PictureKernel:
    """Writes the kernel of a format, with vectors of `lanes` float32 values."""

    def __init__(self, pixel_format: str, form: PictureForm, lanes: int) -> None:
        self._form, self._lanes, self._name = form, lanes, form.kernel(pixel_format)
        self._planes = planes_of(pixel_format, form.channels)
        self._mixes = mixes(pixel_format, form.channels)
        kinds = {"source": "uint8", "target": form.dtype, "numbers": "int64", "weights": "float32"}
        # Memory that no two calls at a time share: columns of windows, mixed rows, results, and results as lines.
        kinds |= {"columns": "float32", "mixed": "float32", "results": "float32", "lines": form.dtype}
        self._pointers = [tirx.Var(name, PointerType(PrimType(kind))) for name, kind in kinds.items()]
        # Addresses as they come, such as of a part of a picture: nothing is aligned.
        self._buffers = [
            tirx.decl_buffer([_UNBOUNDED], kind, name=name, data=pointer, data_alignment=1, layout=None)
            for (name, kind), pointer in zip(kinds.items(), self._pointers, strict=True)
        ]
        self._source, self._target, self._numbers, self._weights, *memories = self._buffers
        self._columns, self._mixed, self._results, self._lines = memories

    def write(self) -> Any:
        """Return the function."""
        lanes, rows, columns = self._lanes, self._number(tables.ROWS), self._number(tables.COLUMNS)

        def tile(row: Any, column: Any) -> Any:
            kept_rows = tirx.Min(tir.number(lanes), rows - row * lanes)
            kept_columns = tirx.Min(tir.number(TILE), columns - column * TILE)
            return tir.sequence(
                [
                    *self._windows(row, column),
                    _loop("x", kept_columns, lambda x: self._column(column, x)),
                    self._turn(),
                    _loop("line", kept_rows, lambda line: self._copy(line, row * lanes + line, column, kept_columns)),
                ]
            )

        def line_of_tiles(row: Any) -> Any:
            return _loop("column", _blocks(columns, TILE), lambda column: tile(row, column))

        pairs = zip(self._buffers, self._pointers, strict=True)
        declarations = [tirx.DeclBuffer(buffer, data=pointer) for buffer, pointer in pairs]
        tiles = _loop("row", _blocks(rows, lanes), line_of_tiles)
        function = tirx.PrimFunc(self._pointers, tir.sequence([*declarations, *self._margins(), tiles]))
        return function.with_attr({"global_symbol": self._name, "tirx.noalias": True})

    def _number(self, position: Any) -> Any:
        return tir.load(self._numbers, tir.number(position) if isinstance(position, int) else position)

    def _weight(self, position: Any) -> Any:
        position = tir.number(position) if isinstance(position, int) else position
        return tir.vector(tir.load(self._weights, position), self._lanes)

    def _plane_numbers(self, plane: Any, *positions: int) -> list[Any]:
        return [self._number(plane * tables.PLANE_NUMBERS + tables.FIRST_PLANE + position) for position in positions]

    def _windows(self, row: Any, column: Any) -> list[Any]:
        """Return loops over planes of the same form."""

        def windows(plane: PixelPlane, first: int) -> Any:
            count = self._planes.count(plane)
            return tir.loop("plane", count, lambda number: self._window(plane, number + first, row, column))

        return [windows(plane, self._planes.index(plane)) for plane in dict.fromkeys(self._planes)]

    def _window(self, plane: PixelPlane, number: Any, row: Any, column: Any) -> Any:
        """Mix a plane's rows for a tile, and store their columns as vectors."""
        lanes, length = self._lanes, self._lanes * plane.step
        taps, table, weights, windows = self._plane_numbers(
            number, tables.ROW_TAPS, tables.ROW_TABLE, tables.ROW_WEIGHTS, tables.WINDOWS
        )
        begin, count, place = (self._number(windows + column * 3 + position) for position in range(3))

        def block(index: Any) -> Any:
            offset = tirx.Min(index * length, count - length)

            def mix(line: Any) -> Any:
                entry = tirx.Min(row * lanes + line, self._number(tables.ROWS) - 1) * taps

                def products(tap: Any) -> list[Any]:
                    start = begin + offset + self._number(table + entry + tap)
                    weight = self._weight(weights + entry + tap)
                    pixels = [tir.load(self._source, tir.ramp(start + part, lanes)) for part in range(0, length, lanes)]
                    return [tir.convert(part, "float32", lanes) * weight for part in pixels]

                sums, statements = self._sum(products, plane.step, taps)
                places = (tir.ramp(line * length + part, lanes) for part in range(0, length, lanes))
                stores = (tir.store(self._mixed, value, ramp) for value, ramp in zip(sums, places, strict=True))
                return tir.sequence([*statements, *stores])

            def turn(part: Any) -> Any:
                first = place + offset + part * lanes
                return shuffling.block(
                    self._mixed, part * lanes, length, lanes,
                    lambda lane, vector: tir.store(self._columns, vector, tir.ramp((first + lane) * lanes, lanes)),
                )  # fmt: skip

            return tir.sequence([tir.loop("line", lanes, mix), tir.loop("part", plane.step, turn)])

        return _loop("block", _blocks(count, length), block)

    def _sum(self, products: Callable[[Any], list[Any]], count: int, taps: Any) -> tuple[list[Any], list[Any]]:
        """Return sums of vectors over taps, whose number is known at run time, and the statements before."""
        lanes = tir.ramp(tir.number(0), self._lanes)
        registers = [tir.buffer("sum", [self._lanes]) for _ in range(count)]
        sums = [tir.load(register, lanes) for register in registers]

        def stores(values: Iterable[Any]) -> list[Any]:
            return [tir.store(register, value, lanes) for register, value in zip(registers, values, strict=True)]

        def add(tap: Any) -> Any:
            return tir.sequence(stores(total + value for total, value in zip(sums, products(tap + 1), strict=True)))

        first = stores(products(tir.number(0)))
        return sums, [*map(tirx.AllocBuffer, registers), *first, _loop("tap", taps - 1, add)]

    def _column(self, column: Any, x: Any) -> Any:
        """Compute one column of a tile, a vector for each channel."""
        form, lanes = self._form, self._lanes
        values, statements = list[Any](), list[Any]()
        for number, plane in enumerate(self._planes):
            sums, before = self._plane_column(plane, number, column * TILE + x)
            values, statements = [*values, *sums], [*statements, *before]
        for channel in range(form.channels):
            position = self._number(tables.POSITIONS + channel)
            index = x * form.channels + position if form.last else x + channel * TILE
            statements.append(tir.store(self._results, self._finish(values, channel), tir.ramp(index * lanes, lanes)))
        return tir.sequence(statements)

    def _plane_column(self, plane: PixelPlane, number: int, column: Any) -> tuple[list[Any], list[Any]]:
        lanes = self._lanes
        taps, table, weights = self._plane_numbers(
            number, tables.COLUMN_TAPS, tables.COLUMN_TABLE, tables.COLUMN_WEIGHTS
        )

        def products(tap: Any) -> list[Any]:
            start, weight = self._number(table + column) + tap * plane.step, self._weight(weights + column * taps + tap)
            places = [tir.ramp((start + channel) * lanes, lanes) for channel in plane.channels]
            return [tir.load(self._columns, place) * weight for place in places]

        return self._sum(products, len(plane.channels), taps)

    def _finish(self, values: Sequence[Any], channel: int) -> Any:
        """Return a channel's value for the picture's: a byte, on the input's scale."""
        value = values[min(channel, len(values) - 1)]
        if self._mixes:
            value = self._weight(tables.OFFSET + channel)
            for number, term in enumerate(values):
                value = value + term * self._weight(tables.MATRIX + 3 * channel + number)
        value = self._limit(tirx.nearbyint(value + self._weight(tables.BIAS)), 0, 255)
        value = value * self._weight(tables.SCALE + channel) + self._weight(tables.SHIFT + channel)
        limits = _LIMITS.get(self._form.dtype)
        return self._limit(tirx.nearbyint(value), *limits) if limits else value

    def _limit(self, value: Any, low: int, high: int) -> Any:
        return tirx.Max(tirx.Min(value, tir.constant(high, self._lanes)), tir.constant(low, self._lanes))

    def _turn(self) -> Any:
        """Store the columns of results as lines."""
        lanes, line = self._lanes, self._form.channels * TILE

        def block(number: Any) -> Any:
            return shuffling.block(
                self._results, number * (lanes * lanes), lanes, lanes,
                lambda row, vector: tir.store(
                    self._lines, self._convert(vector, lanes), tir.ramp(number * lanes + row * line, lanes)
                ),
            )  # fmt: skip

        return tir.loop("number", line // lanes, block)

    def _convert(self, value: Any, lanes: int) -> Any:
        # Bytes by way of 32 bits, as processors convert.
        value = tir.convert(value, "int32", lanes) if self._form.dtype in _LIMITS else value
        return tir.convert(value, self._form.dtype, lanes)

    def _copy(self, line: Any, row: Any, column: Any, count: Any) -> Any:
        """Copy a line of a tile to its place."""
        form, lanes = self._form, self._lanes
        step, runs = (form.channels, 1) if form.last else (1, form.channels)
        start = self._number(tables.ORIGIN) + row * self._number(tables.STRIDE) + column * (TILE * step)
        extent = count * step
        vectors = tirx.truncdiv(extent, tir.number(lanes))

        def copy(index: Any, size: int, channel: int) -> Any:
            source = (line * runs + channel) * (TILE * step)
            target = start if form.last else start + self._number(tables.POSITIONS + channel)
            return tir.store(
                self._target, tir.load(self._lines, tir.span(source + index, size)), tir.span(target + index, size)
            )

        def run(channel: int) -> Any:
            return tir.sequence(
                [
                    _loop("vector", vectors, lambda index: copy(index * lanes, lanes, channel)),
                    _loop("element", extent - vectors * lanes, lambda index: copy(vectors * lanes + index, 1, channel)),
                ]
            )

        return tir.sequence([run(channel) for channel in range(runs)])

    def _margins(self) -> list[Any]:
        """Fill what the picture leaves free."""
        form = self._form
        step, runs = (form.channels, 1) if form.last else (1, form.channels)
        rows, columns, height, width, top, left = map(
            self._number, (tables.ROWS, tables.COLUMNS, tables.HEIGHT, tables.WIDTH, tables.TOP, tables.LEFT)
        )

        def fill(first_row: Any, end_row: Any, first: Any, end: Any) -> Any:
            def pixel(row: Any, column: Any, channel: int) -> Any:
                place = (first_row + row) * self._number(tables.STRIDE) + (first + column) * step
                place = place + self._number(tables.POSITIONS + channel)
                value = self._convert(tir.load(self._weights, tir.number(tables.FILL + channel)), 1)
                return tir.store(self._target, value, place)

            def pixels(row: Any, column: Any, run: int) -> Any:
                return tir.sequence([pixel(row, column, run + channel) for channel in range(step)])

            def line(row: Any, run: int) -> Any:
                return _loop("x", end - first, lambda column: pixels(row, column, run))

            return _loop("y", end_row - first_row, lambda row: tir.sequence([line(row, run) for run in range(runs)]))

        zero = tir.number(0)
        return [
            fill(zero, top, zero, width), fill(top + rows, height, zero, width),
            fill(top, top + rows, zero, left), fill(top, top + rows, left + columns, width),
        ]  # fmt: skip


def _loop(name: str, extent: Any, body: Callable[[Any], Any]) -> Any:
    """Return a loop whose extent is known at run time."""
    index = tir.variable(name)
    return tirx.For(index, tir.number(0), extent, tir.SERIAL, body(index))


def _blocks(count: Any, size: int) -> Any:
    return tirx.truncdiv(count + (size - 1), tir.number(size))
