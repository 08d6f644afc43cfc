"""Windows without mixing channels: pooling and depthwise convolution, vectors along the channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from pipeline.executor.schedules.convolutions import copying
from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.tiled import tiles
from pipeline.executor.schedules.tiled.tiles import Window

PIXELS = 8
"""Neighbouring results that are computed at once, so that several sums are under way."""

UNROLLED_WIDTH = 5
"""Windows up to this width are written out."""

Combine = Callable[[Any, Any, Any, Any, Any, int], Any]
"""From the value so far, an element, its kernel row and column, its channel and the lanes to the next value."""


class WindowKernel:
    """Writes the loops of a pooling or depthwise convolution.

    Parameters
    ----------
    window : Window
        Its groups are 1; the channels of data and result are the same.
    machine : Machine
    data : buffer
    first : float
        What the values start from, and what stands outside of the data.
    combine : callable
    write : callable
        From a value and its indices n, h, w, c to the statement that stores it.
    tasks : int
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a kernel consists of
        self, window: Window, machine: Machine, data: Any, first: float, combine: Combine, write: Any, tasks: int = 1
    ) -> None:
        self._window, self._lanes = window, machine.lanes
        self._first, self._combine, self._write = first, combine, write
        size = window.batch * window.height * window.width * window.channels
        self._dtype = str(data.dtype)
        self._data, self._declare = tir.flat(data, "data", size, self._dtype)
        self._source, self._line = self._data, window.width * window.channels
        one = tiles.Tile(1, 1, 1)
        self._tasks = tasks
        self._rows = tiles.chunk_rows(window, one, machine, -(-tasks // window.batch))
        self._chunks = -(-window.out_height // self._rows)

    def statement(self) -> Any:
        """Return the whole computation."""
        window = self._window

        def task(index: Any) -> Any:
            start = (index % self._chunks) * self._rows
            if window.out_height % self._rows:
                start = tirx.Min(start, tir.number(window.out_height - self._rows))
            return tir.sequence(tir.bound("row", start, lambda row: self._chunk(index // self._chunks, row)))

        return tir.sequence(
            [self._declare, tir.loop("task", window.batch * self._chunks, task, tir.parallel(self._tasks))]
        )

    def _chunk(self, image: Any, row: Any) -> list[Any]:
        window = self._window
        top = row * window.strides[0]
        before: list[Any] = []
        base = ((image * window.height + top) * window.width) * window.channels
        if window.padded:
            copied = copying.padded(
                self._data, window, window.reach(0, self._rows), image, tir.number(0), top, self._lanes, self._first
            )
            self._source, self._line, before, base = copied.buffer, copied.line, copied.statements, tir.number(0)

        def line(index: Any) -> Any:
            start = base + index * (window.strides[0] * self._line)

            def piece(_: Any, column: Any, count: int) -> Any:
                return self._pixels(image, row + index, column, start, count)

            return tir.sequence(tir.pieces("piece", window.out_width, PIXELS, piece))

        return [*before, tir.loop("line", self._rows, line)]

    def _pixels(self, image: Any, h: Any, w: Any, start: Any, count: int) -> Any:
        window = self._window
        base = start + w * (window.strides[1] * window.channels)
        return tir.run(
            window.channels, self._lanes, lambda c, lanes: self._vector((image, h, w, c), base + c, count, lanes)
        )

    def _vector(self, place: tuple[Any, Any, Any, Any], base: Any, count: int, lanes: int) -> Any:
        image, h, w, c = place
        values = [tir.buffer("value", [lanes], self._dtype) for _ in range(count)]
        at_zero = tir.span(tir.number(0), lanes)
        statements = [tirx.AllocBuffer(each) for each in values]
        first = tirx.const(self._first, self._dtype)
        statements += [tir.store(each, tir.wide(first, lanes), at_zero) for each in values]
        statements += tir.bound("from", base, lambda start: [self._window_loops(values, start, c, lanes)])
        stores = [self._store(value, (image, h, w + right, c), lanes) for right, value in enumerate(values)]
        return tir.sequence([*statements, *stores])

    def _store(self, value: Any, at: tuple[Any, Any, Any, Any], lanes: int) -> Any:
        image, h, w, c = at
        return tir.loop(
            "lane", lanes, lambda lane: self._write(tir.load(value, lane), image, h, w, c + lane), tir.VECTORIZED
        )

    def _window_loops(self, values: list[Any], base: Any, c: Any, lanes: int) -> Any:
        window = self._window
        height, width = window.kernel
        at_zero = tir.span(tir.number(0), lanes)

        def tap(down: Any, right: Any) -> Any:
            offset = base + down * (window.dilation[0] * self._line) + right * (window.dilation[1] * window.channels)
            statements = []
            for column, value in enumerate(values):
                at = offset + column * window.strides[1] * window.channels
                element = tir.load(self._source, tir.span(at, lanes))
                made = self._combine(tir.load(value, at_zero), element, down, right, c, lanes)
                statements.append(tir.store(value, made, at_zero))
            return tir.sequence(statements)

        if width <= UNROLLED_WIDTH:
            return tir.loop(
                "down", height, lambda down: tir.sequence([tap(down, tir.number(right)) for right in range(width)])
            )
        return tir.loop("down", height, lambda down: tir.loop("right", width, lambda right: tap(down, right)))
