"""Windows per channel: pooling and depthwise convolution, vectors along channels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from tvm import tirx

from pipeline.executor.kernels.microarchitecture import LOAD_LATENCY, Microarchitecture
from pipeline.executor.kernels.tiles import padded_copy, tiling
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.tvm import statements as tir

UNROLLED_WIDTH = 5
"""Windows up to this width are written out."""

Combine = Callable[[Any, Any], Any]
"""Next value from the value so far and an element, times its weight if there are weights."""

Weight = Callable[[Any, Any, Any, int], Any]
"""Weights by kernel row and column, first channel and lanes."""

Range = tuple[Any, Any]
"""First and end of taps."""

Values = dict[tuple[int, int], Any]
"""Buffers of a tile's values by row and column, which the compiler keeps in registers."""


class WindowElements(NamedTuple):
    """Window elements, and their combined values."""

    dtype: str
    """Dtype in which data are read."""
    filler: float
    """Value outside of the data."""
    sums: str
    """Dtype of the values."""
    first: float
    """Initial value."""
    prepare: Callable[[Any], Any] = lambda elements: elements
    """Function from elements in memory, one or a vector, to operands."""
    copied: str = ""
    """Dtype of a copy of the data that is always made; if empty, one is made where they are padded, as they are."""


class WindowLoops(ABC):
    """Loops over windows, with innermost loops in subclasses.

    The window has one group and as many channels of the result as of the data; a vector has as many channels as it has
    lanes. `write` makes the statement that stores a value at its indices n, h, w, c.
    """

    tile: tuple[int, int] = (1, 8)
    """Rows and columns of adjacent results computed at once, so that several sums are under way."""

    skips_padding = False
    """True if windows leave out taps outside of the data; else rows are copied with a margin."""

    is_written = False
    """True if rows of elements are combined with all rows of values, which need no first one."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a kernel consists of
        self, conv: ConvShape, cpu: Microarchitecture, data: Any, elements: WindowElements, write: Any, tasks: int
    ) -> None:
        self._conv, self._lanes, self._elements, self._write = conv, cpu.lanes, elements, write
        size = conv.batch * conv.height * conv.width * conv.channels
        self._taps: tuple[Range, Range | None] = (tir.number(0), tir.number(conv.kernel[0])), None
        self._data, self._declare = tir.flat(data, "data", size, elements.dtype)
        self._source, self._line, self._prepare = self._data, conv.width * conv.channels, elements.prepare
        # No tile of channels: rows are divided by the size of the cache alone.
        pixel_tile = tiling.RegisterTile(min(self.tile[0], conv.out_height), 1, 1)
        self._tasks = tasks
        self._rows = tiling.chunk_rows(conv, pixel_tile, cpu, -(-tasks // conv.batch))
        self._chunks = -(-conv.out_height // self._rows)

    def statement(self) -> Any:
        """Return the whole computation."""
        conv = self._conv

        def task(index: Any) -> Any:
            start = tir.piece_start(index % self._chunks, self._rows, conv.out_height)
            return tir.sequence(tir.bound("row", start, lambda row: self._chunk(index // self._chunks, row)))

        return tir.sequence(
            [self._declare, tir.loop("task", conv.batch * self._chunks, task, tir.parallel(self._tasks))]
        )

    def _chunk(self, image: Any, row: Any) -> list[Any]:
        conv = self._conv
        if self.skips_padding and conv.padded:
            return [tir.loop("line", self._rows, lambda line: self._inner_line(image, row + line))]
        top = row * conv.strides[0]
        copy_statements: list[Any] = []
        base = ((image * conv.height + top) * conv.width) * conv.channels
        if conv.padded or self._elements.copied:
            copy = padded_copy.copy_padded(
                self._data, conv, conv.reach(0, self._rows), image, tir.number(0), top, self._lanes,
                self._elements.filler, self._elements.prepare, self._elements.copied,
            )  # fmt: skip
            self._source, self._line, copy_statements, base = copy.buffer, copy.line, copy.statements, tir.number(0)
            # Once for all windows that see them.
            self._prepare = lambda elements: elements

        def band(_: Any, line: Any, rows: int) -> Any:
            start = base + line * (conv.strides[0] * self._line)

            def piece(_: Any, column: Any, columns: int) -> Any:
                return self._pixels((image, row + line, column), start, (rows, columns))

            return tir.sequence(tir.pieces("piece", conv.out_width, self.tile[1], piece))

        return [*copy_statements, *tir.pieces("line", self._rows, self.tile[0], band)]

    def _inner_line(self, image: Any, row: Any) -> Any:
        """Combine a row's windows without the taps outside of the data, in place."""
        conv, pad_left = self._conv, self._conv.pads[1]
        top = row * conv.strides[0] - conv.pads[0]
        start = ((image * conv.height + top) * conv.width - pad_left) * conv.channels
        rows = _inside(top, conv.kernel[0], conv.height)
        # Columns whose windows are inside of the data.
        first = min(-(-max(pad_left, 0) // conv.strides[1]), conv.out_width)
        end = min(max((conv.width + pad_left - conv.kernel[1]) // conv.strides[1] + 1, first), conv.out_width)

        def piece(_: Any, column: Any, columns: int) -> Any:
            self._taps = rows, None
            return self._pixels((image, row, column + first), start, (1, columns))

        def border(column: Any) -> Any:
            self._taps = rows, _inside(column * conv.strides[1] - pad_left, conv.kernel[1], conv.width)
            return self._pixels((image, row, column), start, (1, 1))

        statements = tir.pieces("piece", end - first, self.tile[1], piece)
        if first:
            statements.append(tir.loop("left", first, border))
        if end < conv.out_width:
            statements.append(tir.loop("right", conv.out_width - end, lambda column: border(column + end)))
        return tir.sequence(statements)

    def _pixels(self, corner: tuple[Any, Any, Any], start: Any, tile: tuple[int, int]) -> Any:
        conv = self._conv
        base = start + corner[-1] * (conv.strides[1] * conv.channels)
        return tir.run(conv.channels, self._lanes, lambda c, lanes: self._vector((*corner, c), base + c, tile, lanes))

    def _vector(self, indices: tuple[Any, Any, Any, Any], base: Any, tile: tuple[int, int], lanes: int) -> Any:
        image, h, w, c = indices
        pixels = [(dy, dx) for dy in range(tile[0]) for dx in range(tile[1])]
        values = {pixel: tir.buffer("value", [lanes], self._elements.sums) for pixel in pixels}
        at_zero = tir.span(tir.number(0), lanes)
        statements = [tirx.AllocBuffer(value) for value in values.values()]
        if not self.is_written:
            first = self._first(c, lanes)
            statements += [tir.store(value, first, at_zero) for value in values.values()]
        stores = {(dy, dx): self._store(value, (image, h + dy, w + dx, c), lanes) for (dy, dx), value in values.items()}
        # What stores results itself takes them out.
        statements += tir.bound("from", base, lambda start: [self._window_loops(values, stores, start, c, lanes)])
        return tir.sequence([*statements, *stores.values()])

    def _first(self, c: Any, lanes: int) -> Any:  # noqa: ARG002
        """Return the initial values from channel `c` on."""
        return tir.wide(tirx.const(self._elements.first, self._elements.sums), lanes)

    def _position(self, pixel: tuple[int, int], tap: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return the row and column of an element under a tap."""
        (row, column), (dy, dx), conv = pixel, tap, self._conv
        return dy * conv.dilation[0] + row * conv.strides[0], dx * conv.dilation[1] + column * conv.strides[1]

    def _store(self, value: Any, indices: tuple[Any, Any, Any, Any], lanes: int) -> Any:
        image, h, w, c = indices
        return tir.loop(
            "lane", lanes, lambda lane: self._write(tir.load(value, lane), image, h, w, c + lane), tir.VECTORIZED
        )

    @abstractmethod
    def _window_loops(self, values: Values, stores: Values, base: Any, c: Any, lanes: int) -> Any:
        """Combine elements from `base` and channel `c` with values."""

    def _element(self, base: Any, row: Any, column: Any, lanes: int) -> Any:
        """Return a vector of window elements at a row and column."""
        index = base + row * self._line + column * self._conv.channels
        return self._prepare(tir.load(self._source, tir.span(index, lanes)))


class SlidingWindowLoops(WindowLoops):
    """Writes the loops of a pooling or depthwise convolution.

    `first` is the initial value, and the filler outside of the data, where it changes no result. Values may have
    another dtype than the data; `prepare` makes operands of elements in memory.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a kernel consists of
        self,
        conv: ConvShape,
        cpu: Microarchitecture,
        data: Any,
        first: float,
        combine: Combine,
        write: Any,
        tasks: int = 1,
        weight: Weight | None = None,
        dtype: str = "",
        prepare: Callable[[Any], Any] = lambda elements: elements,
    ) -> None:
        elements = WindowElements(str(data.dtype), first, dtype or str(data.dtype), first, prepare, dtype)
        # Written out, rows of results share rows of elements, and each tap its weights.
        self.is_written = cpu.lane_products and max(conv.kernel) <= UNROLLED_WIDTH
        if self.is_written:
            self.tile = _shared_tile(conv)
        self.skips_padding = not (self.is_written or dtype) and conv.dilation == (1, 1)
        super().__init__(conv, cpu, data, elements, write, tasks)
        self._combine, self._weight = combine, weight
        self._is_ordered = cpu.in_order and cpu.latency > LOAD_LATENCY

    def _window_loops(self, values: Values, stores: Values, base: Any, c: Any, lanes: int) -> Any:
        width, at_zero = self._conv.kernel[1], tir.span(tir.number(0), lanes)
        if self.is_written:
            return self._shared_rows(values, stores, base, c, lanes)

        def tap(dy: Any, dx: Any) -> Any:
            statements = []
            for pixel, value in values.items():
                element = self._element(base, *self._position(pixel, (dy, dx)), lanes)
                factor = element * self._weight(dy, dx, c, lanes) if self._weight else element
                statements.append(tir.store(value, self._combine(tir.load(value, at_zero), factor), at_zero))
            return tir.sequence(statements)

        rows, columns = self._taps
        # Wider ones, such as global pools, would be too much code.
        if columns is None and width > UNROLLED_WIDTH:
            columns = tir.number(0), tir.number(width)
        if columns is not None:
            return _loop("down", rows, lambda dy: _loop("right", columns, lambda dx: tap(dy, dx)))
        return _loop("down", rows, lambda dy: tir.sequence([tap(dy, tir.number(dx)) for dx in range(width)]))

    def _shared_rows(self, values: Values, stores: Values, base: Any, c: Any, lanes: int) -> Any:
        """Combine rows of elements with all rows of values that see them."""
        at_zero, dtype = tir.span(tir.number(0), lanes), tir.lanewise(self._elements.sums, lanes)
        statements, started = list[Any](), set[Any]()
        weights = dict[tuple[int, int], Any]()
        height, width = self._conv.kernel
        taps = [((dy, dx), pixel) for dx in range(width) for pixel in values for dy in range(height)]
        for row in sorted({self._position(pixel, tap)[0] for tap, pixel in taps}):
            here = {pair: at for pair in taps if (at := self._position(pair[1], pair[0]))[0] == row}
            positions = list(dict.fromkeys(here.values()))
            missing = [tap for tap in dict.fromkeys(tap for tap, _ in here) if self._weight and tap not in weights]
            loads = [self._element(base, tir.number(row), tir.number(column), lanes) for _, column in positions]
            if self._weight:
                loads += [self._weight(tir.number(dy), tir.number(dx), c, lanes) for dy, dx in missing]
            variables, bindings = tir.bind_values("operand", loads, dtype)
            elements = dict(zip(positions, variables, strict=False))
            weights.update(zip(missing, variables[len(positions) :], strict=True))
            products = list[Any]()
            for (tap, pixel), position in here.items():
                factor, value = elements[position], values[pixel]
                factor = factor * weights[tap] if self._weight else factor
                total = self._combine(tir.load(value, at_zero), factor) if pixel in started else factor
                products.append(tir.store(value, total, at_zero))
                started.add(pixel)
            boundaries = [tir.schedule_boundary(variables[-1]), tir.schedule_boundary(tir.load(value, at_zero))]
            edges = [[boundary] if self._is_ordered else [] for boundary in boundaries]
            # Rows of results that are complete leave their registers to those below.
            last = (row - self._position((0, 0), (height - 1, 0))[0]) // self._conv.strides[0]
            complete = [stores.pop(pixel) for pixel in values if pixel[0] <= last and pixel in stores]
            statements += [*bindings, *edges[0], *products, *edges[1], *complete]
        return tir.sequence(statements)


def _shared_tile(conv: ConvShape) -> tuple[int, int]:
    """Return a tile whose sums and elements are in the registers of Arm."""
    if max(*conv.strides, *conv.dilation) > 1:
        return 1, 8
    # Of 2 x 8, one or two vectors of a window of 3x3 went to the stack.
    return 2, 6


def _inside(start: Any, taps: int, extent: int) -> Range:
    """Return the taps of a window from `start` that are inside of an axis."""
    return tirx.Max(-start, tir.number(0)), tirx.Min(extent - start, tir.number(taps))


def _loop(name: str, taps: Range, body: Callable[[Any], Any]) -> Any:
    index = tir.variable(name)
    return tirx.For(index, tir.number(0), taps[1] - taps[0], tir.SERIAL, body(taps[0] + index))
