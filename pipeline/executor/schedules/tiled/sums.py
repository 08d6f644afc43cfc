"""Sums: one tile of accumulators in registers, and the loops that add up products in them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from tvm import tirx

from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.tiled.arithmetic import Arithmetic, widened
from pipeline.executor.schedules.tiled.packing import Layout
from pipeline.executor.schedules.tiled.tiles import Tile

AHEAD = 8
"""Terms by which weights are fetched into the first-level cache before they are used."""

UNROLL = 4
"""Terms that are written out, so that counting them costs little."""

LINE = 16
"""Values of 32 bits in a cache line."""


def line(dtype: str) -> int:
    """Return how many values of a dtype are in a cache line."""
    return LINE * 4 // np.dtype(dtype).itemsize


class Source(NamedTuple):
    """One-dimensional buffer of pixels, with the elements from one row to the next and from one pixel to the next."""

    buffer: Any
    line: int
    step: int


class Sums:
    """Writes the code of one tile.

    Parameters
    ----------
    form : Layout
    tile : Tile
        The form's own one, or a smaller one at a border.
    source : Source
    weights : buffer
    arithmetic : Arithmetic
    """

    def __init__(self, form: Layout, tile: Tile, source: Source, weights: Any, arithmetic: Arithmetic) -> None:
        self._form, self._source, self._weights, self._arithmetic = form, source, weights, arithmetic
        self._step = tile.vectors * form.lanes
        self._line = line(str(weights.dtype))
        self.tile = tile
        # A buffer for each register: the compiler keeps it there, as every index is known.
        self.registers = {
            (down, right, part): tir.buffer("sum", [form.lanes], arithmetic.dtype)
            for down in range(tile.rows)
            for right in range(tile.columns)
            for part in range(tile.vectors)
        }

    def cleared(self) -> list[Any]:
        """Return the statements that set all sums to zero."""
        lanes = self._form.lanes
        at = tir.ramp(tir.number(0), lanes)
        allocated = [tirx.AllocBuffer(each) for each in self.registers.values()]
        zeros = tir.vector(tirx.const(0, self._arithmetic.dtype), lanes)
        return [*allocated, *(tir.store(each, zeros, at) for each in self.registers.values())]

    def loops(self, data: Any, weights: Any, turn: tuple[Any, int] | None) -> Any:
        """Return the loops over all terms.

        Parameters
        ----------
        data, weights : expression
            Where the tile's first pixel and the block's weights start.
        turn : (expression, int), optional
            Which of the block's tiles this is, and how many there are.  Meanwhile the weights of the next block are
            fetched, a part in each tile; None where all weights stay in the cache anyway.
        """
        form, window, source = self._form, self._form.window, self._source
        height, width = window.kernel
        # Pixels that lie side by side with all their channels are one long run.
        joined = width == 1 or (form.depth == source.step and window.dilation[1] == 1)
        run, across = (form.depth * width, 1) if joined else (form.depth, width)
        unroll = next(count for count in range(UNROLL, 0, -1) if run % count == 0)
        next_block, lines = (None, 0) if turn is None else self._part(weights, turn, window.terms // unroll)

        def along(outer: Any, down: Any, right: Any) -> Any:
            offset = outer * form.depth
            offset += down * (window.dilation[0] * source.line) + right * (window.dilation[1] * source.step)
            done = ((outer * height + down) * across + right) * run

            def group(x: Any, w: Any, index: Any) -> Any:
                first = (done // unroll + index) * lines
                fetches = [
                    tir.fetch(self._weights, next_block + (first + each) * self._line, near=False)
                    for each in range(lines)
                ]
                terms = [self._term(x, w, index * unroll + number, turn is not None) for number in range(unroll)]
                return tir.sequence([*fetches, *terms])

            def body(x: Any, w: Any) -> list[Any]:
                return [tir.loop("terms", run // unroll, lambda index: group(x, w, index))]

            return tir.sequence(
                tir.bound(
                    "x", data + offset, lambda x: tir.bound("w", weights + done * self._step, lambda w: body(x, w))
                )
            )

        return tir.loop(
            "outer",
            window.depth // form.depth,
            lambda outer: tir.loop(
                "down", height, lambda down: tir.loop("right", across, lambda right: along(outer, down, right))
            ),
        )

    def _part(self, weights: Any, turn: tuple[Any, int], groups: int) -> tuple[Any, int]:
        """Return where this tile's part of the next block starts, and how many lines to fetch in each group."""
        number, tiles = turn
        block = self._form.window.terms * self._step
        lines = -(-block // self._line)
        each = -(-lines // (groups * tiles))
        parts = -(-lines // (groups * each))
        return weights + block + (number % parts) * (groups * each * self._line), each

    def _term(self, data: Any, weights: Any, index: Any, fetch: bool) -> Any:
        """Return the products of one input channel at one place of the kernel."""
        lanes, source, strides = self._form.lanes, self._source, self._form.window.strides
        at, first = tir.ramp(tir.number(0), lanes), weights + index * self._step
        statements = [
            tir.fetch(self._weights, first + (AHEAD * self._step + offset))
            for offset in range(0, self._step, self._line)
            if fetch
        ]
        for (down, right, part), total in self.registers.items():
            offset = down * strides[0] * source.line + right * strides[1] * source.step
            value = tir.vector(tir.load(source.buffer, data + index + offset), lanes)
            weight = tir.load(self._weights, tir.ramp(first + part * lanes, lanes))
            weight = widened(weight, str(self._weights.dtype), lanes)
            statements.append(tir.store(total, self._arithmetic.add(tir.load(total, at), value, weight, lanes), at))
        return tir.sequence(statements)
