"""Windows without mixing channels: pooling and depthwise convolution, vectors along the channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import padded_copy, tiling
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tir import statements as tir

PIXELS = 8
"""Neighbouring results that are computed at once, so that several sums are under way."""

UNROLLED_WIDTH = 5
"""Windows up to this width are written out."""

Combine = Callable[[Any, Any, Any, Any, Any, int], Any]
"""From the value so far, an element, its kernel row and column, its channel and the lanes to the next value."""


class SlidingWindowLoops:
    """Writes the loops of a pooling or depthwise convolution.

    Parameters
    ----------
    conv : ConvShape
        Its groups are 1; the channels of data and result are the same.
    cpu : Microarchitecture
    data : buffer
    first : float
        What the values start from, and what stands outside of the data.
    combine : callable
    write : callable
        From a value and its indices n, h, w, c to the statement that stores it.
    tasks : int
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
    ) -> None:
        self._conv, self._lanes = conv, cpu.lanes
        self._first, self._combine, self._write = first, combine, write
        size = conv.batch * conv.height * conv.width * conv.channels
        self._dtype = str(data.dtype)
        self._data, self._declare = tir.flat(data, "data", size, self._dtype)
        self._source, self._line = self._data, conv.width * conv.channels
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
        # Padded with what values start from, which changes no result.
        if conv.padded:
            copy = padded_copy.copy_padded(
                self._data, conv, conv.reach(0, self._rows), image, tir.number(0), top, self._lanes, self._first
            )
            self._source, self._line, copy_statements, base = copy.buffer, copy.line, copy.statements, tir.number(0)

        def line(index: Any) -> Any:
            start = base + index * (conv.strides[0] * self._line)

            def piece(_: Any, column: Any, count: int) -> Any:
                return self._pixels(image, row + index, column, start, count)

            return tir.sequence(tir.pieces("piece", conv.out_width, PIXELS, piece))

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
        values = [tir.buffer("value", [lanes], self._dtype) for _ in range(count)]
        at_zero = tir.span(tir.number(0), lanes)
        statements = [tirx.AllocBuffer(each) for each in values]
        first = tirx.const(self._first, self._dtype)
        statements += [tir.store(each, tir.wide(first, lanes), at_zero) for each in values]
        statements += tir.bound("from", base, lambda start: [self._window_loops(values, start, c, lanes)])
        stores = [self._store(value, (image, h, w + dx, c), lanes) for dx, value in enumerate(values)]
        return tir.sequence([*statements, *stores])

    def _store(self, value: Any, indices: tuple[Any, Any, Any, Any], lanes: int) -> Any:
        image, h, w, c = indices
        return tir.loop(
            "lane", lanes, lambda lane: self._write(tir.load(value, lane), image, h, w, c + lane), tir.VECTORIZED
        )

    def _window_loops(self, values: list[Any], base: Any, c: Any, lanes: int) -> Any:
        conv = self._conv
        height, width = conv.kernel
        at_zero = tir.span(tir.number(0), lanes)

        def tap(dy: Any, dx: Any) -> Any:
            offset = base + dy * (conv.dilation[0] * self._line) + dx * (conv.dilation[1] * conv.channels)
            statements = []
            for column, value in enumerate(values):
                index = offset + column * conv.strides[1] * conv.channels
                element = tir.load(self._source, tir.span(index, lanes))
                result = self._combine(tir.load(value, at_zero), element, dy, dx, c, lanes)
                statements.append(tir.store(value, result, at_zero))
            return tir.sequence(statements)

        # Wider ones, such as global pools, would be too much code.
        if width <= UNROLLED_WIDTH:
            return tir.loop("down", height, lambda dy: tir.sequence([tap(dy, tir.number(dx)) for dx in range(width)]))
        return tir.loop("down", height, lambda dy: tir.loop("right", width, lambda dx: tap(dy, dx)))
