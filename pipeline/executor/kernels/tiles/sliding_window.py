"""Windows per channel: pooling and depthwise convolution, vectors along channels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from tvm import tirx

from pipeline.executor.kernels.microarchitecture import LOAD_LATENCY, Microarchitecture
from pipeline.executor.kernels.tiles import padded_copy, tiling
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.tvm import statements as tir

UNROLLED_WIDTH = 5
"""Windows up to this width are written out."""

Combine = Callable[[Any, Any, Any, Any, Any, int], Any]
"""Next value from the value so far, an element, its kernel row and column, its channel and the lanes."""


class WindowElements(NamedTuple):
    """Window elements, and their combined values.

    Attributes
    ----------
    dtype : str
        Dtype in which data are read.
    filler : float
        Value outside of the data.
    sums : str
        Dtype of the values.
    first : float
        Initial value.
    prepare : callable
        Function from elements in memory, one or a vector, to operands.
    copied : str
        Dtype of a copy of the data that is always made; if empty, one is made where they are padded, as they are.
    """

    dtype: str
    filler: float
    sums: str
    first: float
    prepare: Callable[[Any], Any] = lambda elements: elements
    copied: str = ""


class WindowLoops(ABC):
    """Loops over windows, with innermost loops in subclasses.

    Parameters
    ----------
    conv : ConvShape
        Shape of the window, with one group and as many channels of the result as of the data.
    cpu : Microarchitecture
        Processor; a vector has as many channels as it has lanes.
    data : buffer
    elements : WindowElements
    write : callable
        Function from a value and its indices n, h, w, c to the statement that stores it.
    tasks : int
    """

    pixels: ClassVar[int] = 8
    """Adjacent results computed at once, so that several sums are under way."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a kernel consists of
        self, conv: ConvShape, cpu: Microarchitecture, data: Any, elements: WindowElements, write: Any, tasks: int
    ) -> None:
        self._conv, self._lanes, self._elements, self._write = conv, cpu.lanes, elements, write
        size = conv.batch * conv.height * conv.width * conv.channels
        self._data, self._declare = tir.flat(data, "data", size, elements.dtype)
        self._source, self._line, self._prepare = self._data, conv.width * conv.channels, elements.prepare
        # No tile of channels: rows are divided by the size of the cache alone.
        pixel_tile = tiling.RegisterTile(1, 1, 1)
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

        def line(index: Any) -> Any:
            start = base + index * (conv.strides[0] * self._line)

            def piece(_: Any, column: Any, count: int) -> Any:
                return self._pixels(image, row + index, column, start, count)

            return tir.sequence(tir.pieces("piece", conv.out_width, self.pixels, piece))

        return [*copy_statements, tir.loop("line", self._rows, line)]

    def _pixels(self, image: Any, h: Any, w: Any, start: Any, count: int) -> Any:
        conv = self._conv
        base = start + w * (conv.strides[1] * conv.channels)
        return tir.run(
            conv.channels, self._lanes, lambda c, lanes: self._vector((image, h, w, c), base + c, count, lanes)
        )

    def _vector(self, indices: tuple[Any, Any, Any, Any], base: Any, count: int, lanes: int) -> Any:
        image, h, w, c = indices
        # A buffer for each pixel, which the compiler keeps in a register, as every index is known.
        values = [tir.buffer("value", [lanes], self._elements.sums) for _ in range(count)]
        at_zero = tir.span(tir.number(0), lanes)
        statements = [tirx.AllocBuffer(value) for value in values]
        first = tirx.const(self._elements.first, self._elements.sums)
        statements += [tir.store(value, tir.wide(first, lanes), at_zero) for value in values]
        statements += tir.bound("from", base, lambda start: [self._window_loops(values, start, c, lanes)])
        stores = [self._store(value, (image, h, w + dx, c), lanes) for dx, value in enumerate(values)]
        return tir.sequence([*statements, *stores])

    def _store(self, value: Any, indices: tuple[Any, Any, Any, Any], lanes: int) -> Any:
        image, h, w, c = indices
        return tir.loop(
            "lane", lanes, lambda lane: self._write(tir.load(value, lane), image, h, w, c + lane), tir.VECTORIZED
        )

    @abstractmethod
    def _window_loops(self, values: list[Any], base: Any, c: Any, lanes: int) -> Any:
        """Combine elements from `base` and channel `c` with values."""

    def _element(self, base: Any, tap: tuple[Any, Any], column: int, lanes: int) -> Any:
        """Return a vector of window elements at a row and column."""
        conv, (dy, dx) = self._conv, tap
        offset = base + dy * (conv.dilation[0] * self._line) + dx * (conv.dilation[1] * conv.channels)
        index = offset + column * conv.strides[1] * conv.channels
        return self._prepare(tir.load(self._source, tir.span(index, lanes)))


class SlidingWindowLoops(WindowLoops):
    """Writes the loops of a pooling or depthwise convolution.

    Parameters
    ----------
    first : float
        Initial value, and filler outside of the data, where it changes no result.
    combine : callable
    conv, cpu, data, write, tasks
        Parameters of `WindowLoops`.
    dtype : str
        Dtype of the values, if not that of the data.
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
        dtype: str = "",
    ) -> None:
        elements = WindowElements(str(data.dtype), first, dtype or str(data.dtype), first, copied=dtype)
        super().__init__(conv, cpu, data, elements, write, tasks)
        self._combine = combine
        # Where a load waits for the products before it, those of a row stand together.
        self._is_ordered = cpu.in_order and cpu.latency > LOAD_LATENCY

    def _window_loops(self, values: list[Any], base: Any, c: Any, lanes: int) -> Any:
        height, width = self._conv.kernel
        at_zero = tir.span(tir.number(0), lanes)

        def tap(dy: Any, dx: Any) -> Any:
            statements = []
            for column, value in enumerate(values):
                element = self._element(base, (dy, dx), column, lanes)
                result = self._combine(tir.load(value, at_zero), element, dy, dx, c, lanes)
                statements.append(tir.store(value, result, at_zero))
            return tir.sequence(statements)

        # Wider ones, such as global pools, would be too much code.
        if width > UNROLLED_WIDTH:
            return tir.loop("down", height, lambda dy: tir.loop("right", width, lambda dx: tap(dy, dx)))
        if self._is_ordered:
            return tir.loop("down", height, lambda dy: self._row(values, base, dy, c, lanes))
        return tir.loop("down", height, lambda dy: tir.sequence([tap(dy, tir.number(dx)) for dx in range(width)]))

    def _row(self, values: list[Any], base: Any, dy: Any, c: Any, lanes: int) -> Any:
        """Combine a window row, loading all elements first."""
        conv, at_zero = self._conv, tir.span(tir.number(0), lanes)
        taps = [(column, dx) for dx in range(conv.kernel[1]) for column in range(len(values))]
        positions = {tap: tap[0] * conv.strides[1] + tap[1] * conv.dilation[1] for tap in taps}
        # Neighbouring windows share elements.
        loads = {position: self._element(base, (dy, tir.number(tap[1])), tap[0], lanes)
                 for tap, position in positions.items()}  # fmt: skip
        dtype = tir.lanewise(self._elements.sums, lanes)
        variables, statements = tir.bind_values("element", list(loads.values()), dtype)
        elements = dict(zip(loads, variables, strict=True))
        statements.append(tir.schedule_boundary(variables[-1]))
        for column, dx in taps:
            total = tir.load(values[column], at_zero)
            result = self._combine(total, elements[positions[column, dx]], dy, tir.number(dx), c, lanes)
            statements.append(tir.store(values[column], result, at_zero))
        return tir.sequence([*statements, tir.schedule_boundary(tir.load(values[-1], at_zero))])
