"""Convolution: a tile of pixels times channels in registers, over packed weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pipeline.executor.schedules.convolutions import copying
from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.tiled import arithmetic, tiles
from pipeline.executor.schedules.tiled.packing import Layout
from pipeline.executor.schedules.tiled.sums import LINE, Source, Sums
from pipeline.executor.schedules.tiled.tiles import Tile


class Results(NamedTuple):
    """What becomes of the sums.

    Attributes
    ----------
    store : callable
        From a sum and its indices n, h, w, c to the statement that stores it.
    touch : callable, optional
        From the indices of a sum to statements that bring what its store needs close.
    line : int
        Results in a cache line.
    """

    store: Callable[[Any, Any, Any, Any, Any], Any]
    touch: Callable[[Any, Any, Any, Any], list[Any]] | None = None
    line: int = LINE


class Kernel:
    """Writes the loops of one convolution.

    Parameters
    ----------
    form : Layout
    machine : Machine
    data, weights : buffer
    results : Results
    tasks : int
        Pieces of work wanted for the cores.
    first : int or expression
        Where the packed weights start in their buffer.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a kernel consists of
        self, form: Layout, machine: Machine, data: Any, weights: Any, results: Results, tasks: int = 1,
        first: Any = 0,
    ) -> None:  # fmt: skip
        self._form, self._window, self._tile, self._lanes = form, form.window, form.tile, form.lanes
        self._weights, self._first, self._results = weights, first, results
        self._stay = tiles.weights_stay(form.window, machine)
        window = self._window
        self._tasks = tasks
        self._rows = tiles.chunk_rows(window, form.tile, machine, -(-tasks // (window.batch * window.groups)))
        self._chunks = -(-window.out_height // self._rows)
        self._count = -(-self._rows // form.tile.rows) * -(-window.out_width // form.tile.columns)
        size = window.batch * window.height * window.width * window.channels
        self._arithmetic = arithmetic.of(str(data.dtype), machine)
        self._data, self._declare = tir.flat(data, "data", size, self._arithmetic.dtype)
        self._source = Source(self._data, window.width * window.channels, window.channels)

    @property
    def exact(self) -> bool:
        """Whether each element is computed once only."""
        return self._window.out_height % self._rows == 0

    def statement(self) -> Any:
        """Return the whole computation."""
        window = self._window
        total = window.batch * window.groups * self._chunks

        def task(index: Any) -> Any:
            chunk, rest = index % self._chunks, index // self._chunks
            first = self._start(chunk, self._rows, window.out_height)
            group, image = rest % window.groups, rest // window.groups
            return tir.sequence(tir.bound("row", first, lambda row: self._chunk(image, group, row)))

        return tir.sequence([self._declare, tir.loop("task", total, task, tir.parallel(self._tasks))])

    @staticmethod
    def _start(index: Any, size: int, total: int) -> Any:
        """Return where piece `index` starts: the last one may overlap its neighbour instead of being smaller."""
        from tvm import tirx

        start = index * size
        return start if total % size == 0 else tirx.Min(start, tir.number(total - size))

    def _chunk(self, image: Any, group: Any, row: Any) -> list[Any]:
        window = self._window
        top = row * window.strides[0]
        if not window.padded:
            base = ((image * window.height + top) * window.width) * window.channels + group * window.depth
            return tir.bound("base", base, lambda start: self._blocks(image, group, row, start))
        rows, filler = window.reach(0, self._rows), self._form.filler
        copied = copying.padded(self._data, window, rows, image, group, top, self._lanes, filler)
        self._source = Source(copied.buffer, copied.line, window.depth)
        return [*copied.statements, *self._blocks(image, group, row, tir.number(0))]

    def _blocks(self, image: Any, group: Any, row: Any, base: Any) -> list[Any]:
        """Return the loops over blocks of channels and over pixels; the ones with the smaller data are inside."""
        place = _Place(image, group, row, base, tir.number(0), tir.number(0))
        if self._stay:
            return self._pixels(
                lambda corner, number, rows, columns: tir.sequence(
                    self._channels(place, lambda at, size, part: self._one(
                        at, corner, number, Tile(rows, columns, size), part
                    ))
                )
            )  # fmt: skip
        return self._channels(
            place,
            lambda at, size, part: tir.sequence(
                self._pixels(lambda corner, number, rows, columns: self._one(
                    at, corner, number, Tile(rows, columns, size), part
                ))
            ),
        )  # fmt: skip

    def _channels(self, place: _Place, body: Callable[[_Place, int, bool], Any]) -> list[Any]:
        form, window = self._form, self._window
        ragged = bool(window.makes % form.lanes)
        one = form.lanes * window.terms
        statements = []
        for first, many, size in tiles.blocks(form.vectors, form.tile.vectors, alone=ragged):

            def block(index: Any, first: int = first, many: int = many, size: int = size) -> Any:
                vector = index * size + first
                weights = place.group * (form.vectors * one) + vector * one + self._first
                at = replace(place, weights=weights, channel=vector * form.lanes)
                return body(at, size, ragged and first + many * size == form.vectors)

            statements.append(tir.loop("block", many, block))
        return statements

    def _pixels(self, body: Callable[[tuple[Any, Any], Any, int, int], Any]) -> list[Any]:
        """Return loops over tiles; `body` gets a tile's corner, its number, its rows and columns."""
        wide = -(-self._window.out_width // self._tile.columns)

        def across(band: Any, row: Any, rows: int) -> Any:
            def piece(index: Any, column: Any, columns: int) -> Any:
                return body((row, column), band * wide + index, rows, columns)

            return tir.sequence(tir.pieces("piece", self._window.out_width, self._tile.columns, piece))

        return tir.pieces("band", self._rows, self._tile.rows, across)

    def _one(self, place: _Place, corner: tuple[Any, Any], number: Any, tile: Tile, partial: bool) -> Any:
        """Return the sums and the stores of one tile, the `number`th of its block."""
        row, column = corner
        window, source = self._window, self._source
        sums = Sums(self._form, tile, source, self._weights, self._arithmetic)
        base = place.base + row * (window.strides[0] * source.line) + column * (window.strides[1] * source.step)
        # With one tile, a block is read once, one after the other, as the processor expects of itself.
        turn = None if self._stay or self._count == 1 else (number, self._count)
        loops = tir.bound("from", base, lambda start: [sums.loops(start, place.weights, turn)])
        fetches = self._fetches(place, row, column, tile)
        return tir.sequence([*sums.cleared(), *fetches, *loops, *self._stores(sums, place, row, column, partial)])

    def _fetches(self, place: _Place, row: Any, column: Any, tile: Tile) -> list[Any]:
        """Return statements that bring what the stores will need close, while the sums are under way."""
        touch = self._results.touch
        if touch is None:
            return []
        statements = []
        for down in range(tile.rows):
            for right in range(tile.columns):
                for first in range(0, tile.vectors * self._lanes, self._results.line):
                    h, w = place.row + row + down, column + right
                    c = place.group * self._window.makes + place.channel + first
                    statements += touch(place.image, h, w, c)
        return statements

    def _stores(self, sums: Sums, place: _Place, row: Any, column: Any, partial: bool) -> list[Any]:
        window, lanes = self._window, self._lanes
        statements = []
        for (down, right, part), total in sums.registers.items():
            first = place.group * window.makes + place.channel + part * lanes
            last = partial and part == sums.tile.vectors - 1
            at = (place.image, place.row + row + down, column + right, first)
            statements.append(self._store(total, at, window.makes % lanes if last else lanes))
        return statements

    def _store(self, total: Any, at: tuple[Any, Any, Any, Any], count: int) -> Any:
        image, h, w, c = at

        def lane(index: Any) -> Any:
            return self._results.store(tir.load(total, index), image, h, w, c + index)

        return tir.loop("lane", count, lane, tir.VECTORIZED)


@dataclass(frozen=True)
class _Place:
    """Where a tile is: indices and offsets, as expressions."""

    image: Any
    group: Any
    row: Any
    base: Any
    weights: Any
    channel: Any
