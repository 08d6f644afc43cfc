"""Winograd's loops: a chunk of tiles is transformed, multiplied and transformed back while it is in the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.tiled import arithmetic, tiles
from pipeline.executor.schedules.tiled.sums import LINE, Source, Sums
from pipeline.executor.schedules.tiled.tiles import Tile
from pipeline.executor.schedules.winograd import transforms, winograd
from pipeline.executor.schedules.winograd.winograd import Form


class WinogradKernel:
    """Writes the loops of one convolution.

    Parameters
    ----------
    form : Form
    machine : Machine
    data, weights : buffer
    store : callable
        From a result and its indices n, h, w, c to the statement that stores it.
    tasks : int
        Pieces of work wanted for the cores.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a kernel consists of
        self, form: Form, machine: Machine, data: Any, weights: Any, store: Callable[..., Any], tasks: int = 1
    ) -> None:
        self._form = form = winograd.shared(form, machine, tasks)
        self._weights, self._store, self._tasks = weights, store, tasks
        self._lanes, self._window = form.layout.lanes, form.window
        self._arithmetic = arithmetic.of("float32", machine)
        self._stay = winograd.weights_stay(form, machine)
        window = form.window
        size = window.batch * window.height * window.width * window.channels
        self._data, self._declare = tir.flat(data, "data", size)
        # Positions a power of two apart would fall on the same few places of the cache.
        self._apart = form.chunk * window.channels + LINE, form.chunk * form.made + LINE
        self._transformed, self._products = (
            tir.buffer(name, [form.positions * apart])
            for name, apart in zip(("transformed", "products"), self._apart, strict=True)
        )
        self._patch = tir.buffer("patch", [form.positions * window.channels])

    @property
    def exact(self) -> bool:
        """Whether each element is computed once only."""
        return self._form.total % self._form.chunk == 0 and self._window.out_channels % self._lanes == 0

    def statement(self) -> Any:
        """Return the whole computation."""
        form = self._form

        def task(index: Any) -> Any:
            # The last chunk may overlap its neighbour instead of being smaller.
            first = index * form.chunk
            if form.total % form.chunk:
                first = tirx.Min(first, tir.number(form.total - form.chunk))
            return tir.sequence(tir.bound("first", first, self._chunk))

        chunks = -(-form.total // form.chunk)
        return tir.sequence([self._declare, tir.loop("task", chunks, task, tir.parallel(self._tasks))])

    def _chunk(self, first: Any) -> list[Any]:
        scratch = [self._transformed, self._products, self._patch]
        return [
            *(tirx.AllocBuffer(each) for each in scratch),
            self._each_tile(first, self._transform),
            tir.loop("position", self._form.positions, lambda position: tir.sequence(self._multiply(position))),
            self._each_tile(first, self._result),
        ]

    def _each_tile(self, first: Any, body: Callable[[Any, Any, Any, Any], list[Any]]) -> Any:
        """Return a loop over the chunk's tiles; `body` gets the number in it, the image and the first result."""
        outputs = self._form.outputs

        def tile(index: Any) -> Any:
            image, down, right = tir.places(first + index, self._form.grid)
            return tir.sequence(
                tir.bound(
                    "h", down * outputs, lambda h: tir.bound("w", right * outputs, lambda w: body(index, image, h, w))
                )
            )

        return tir.loop("tile", self._form.chunk, tile)

    def _vectors(self, channels: int, body: Callable[[Any], list[Any]]) -> Any:
        """Return a loop over vectors of channels; the last one begins earlier rather than being smaller."""
        lanes = self._lanes

        def vector(index: Any) -> Any:
            first = index * lanes if channels % lanes == 0 else tirx.Min(index * lanes, tir.number(channels - lanes))
            return tir.sequence(tir.bound("c", first, body))

        return tir.loop("vector", -(-channels // lanes), vector)

    def _transform(self, index: Any, image: Any, h: Any, w: Any) -> list[Any]:
        window, side = self._window, self._form.side
        top, left = h - window.pads[0], w - window.pads[1]
        base = ((image * window.height + top) * window.width + left) * window.channels
        near = Source(self._data, window.width * window.channels, window.channels)
        whole = tir.bound("base", base, lambda base: [self._transformed_from(near, base, index)])
        copied = Source(self._patch, side * window.channels, window.channels)
        cut = [
            self._copied(base, top, left),
            self._transformed_from(copied, tir.number(0), index),
        ]
        inside = tirx.all(
            top >= 0, left >= 0, top <= tir.number(window.height - side), left <= tir.number(window.width - side)
        )
        return [tirx.IfThenElse(inside, tir.sequence(whole), tir.sequence(cut))]

    def _copied(self, base: Any, top: Any, left: Any) -> Any:
        """Return the loops that copy a tile's data, with zeros where there are none."""
        window, side, lanes = self._window, self._form.side, self._lanes
        channels = window.channels

        def pixel(down: Any, right: Any) -> Any:
            y, x = top + down, left + right
            source = base + (down * window.width + right) * channels
            target = (down * side + right) * channels

            def copy(c: Any) -> list[Any]:
                value = tir.load(self._data, tir.ramp(source + c, lanes))
                return [tir.store(self._patch, value, tir.ramp(target + c, lanes))]

            def clear(c: Any) -> list[Any]:
                return [tir.store(self._patch, tir.zeros(lanes), tir.ramp(target + c, lanes))]

            inside = tirx.all(y >= 0, x >= 0, y < tir.number(window.height), x < tir.number(window.width))
            return tirx.IfThenElse(inside, self._vectors(channels, copy), self._vectors(channels, clear))

        return tir.loop("down", side, lambda down: tir.loop("right", side, lambda right: pixel(down, right)))

    def _transformed_from(self, source: Source, base: Any, index: Any) -> Any:
        side, outputs, lanes = self._form.side, self._form.outputs, self._lanes

        def vector(c: Any) -> list[Any]:
            statements, columns = [], []
            for right in range(side):
                places = [base + c + (down * source.line + right * source.step) for down in range(side)]
                column = [tir.load(source.buffer, tir.ramp(place, lanes)) for place in places]
                made, before = _once(column, lanes)
                column, after = transforms.of_data(made, outputs, lanes)
                statements += [*before, *after]
                columns.append(column)
            for down in range(side):
                row, before = transforms.of_data([column[down] for column in columns], outputs, lanes)
                statements += before
                for right, value in enumerate(row):
                    at = index * self._window.channels + c + (down * side + right) * self._apart[0]
                    statements.append(tir.store(self._transformed, value, tir.ramp(at, lanes)))
            return statements

        return self._vectors(self._window.channels, vector)

    def _multiply(self, position: Any) -> list[Any]:
        """Return the loops of the product at one position of all tiles."""
        layout, lanes = self._form.layout, self._lanes
        depth, each = self._window.channels, layout.tile.rows
        count = -(-self._form.chunk // each)

        def block(vector: Any, size: int) -> Any:
            channel = vector * lanes
            weights = (position * self._form.made + channel) * depth

            def band(number: Any, start: Any, rows: int) -> Any:
                sums = Sums(
                    layout, Tile(rows, 1, size), Source(self._transformed, depth, 0), self._weights, self._arithmetic
                )
                turn = None if self._stay or count == 1 else (number, count)
                begin = position * self._apart[0] + start * depth
                loops = tir.bound("from", begin, lambda begin: [sums.loops(begin, weights, turn)])
                at = position * self._apart[1] + start * self._form.made + channel
                return tir.sequence([*sums.cleared(), *loops, *self._stored(sums, at)])

            return tir.sequence(tir.pieces("band", self._form.chunk, each, band))

        def blocks(first: int, many: int, size: int) -> Any:
            return tir.loop("block", many, lambda index: block(index * size + first, size))

        return [blocks(*each) for each in tiles.blocks(layout.vectors, layout.tile.vectors)]

    def _stored(self, sums: Sums, at: Any) -> list[Any]:
        lanes = self._lanes
        all_lanes = tir.ramp(tir.number(0), lanes)
        return [
            tir.store(self._products, tir.load(total, all_lanes), tir.ramp(at + offset, lanes))
            for (down, _right, part), total in sums.registers.items()
            for offset in [down * self._form.made + part * lanes]
        ]

    def _result(self, index: Any, image: Any, h: Any, w: Any) -> list[Any]:
        side, outputs, lanes = self._form.side, self._form.outputs, self._lanes

        def vector(c: Any) -> list[Any]:
            statements, columns = [], []
            for right in range(side):
                places = [index * self._form.made + c + (down * side + right) * self._apart[1] for down in range(side)]
                made, before = _once([tir.load(self._products, tir.ramp(place, lanes)) for place in places], lanes)
                column, after = transforms.of_results(made, outputs, lanes)
                statements += [*before, *after]
                columns.append(column)
            for down in range(outputs):
                row, before = transforms.of_results([column[down] for column in columns], outputs, lanes)
                stores = [self._finished(value, (image, h + down, w + right, c), (down, right))
                          for right, value in enumerate(row)]  # fmt: skip
                statements.append(self._where(h + down, self._window.out_height, down, [*before, *stores]))
            return statements

        return [self._vectors(self._window.out_channels, vector)]

    def _finished(self, value: Any, at: tuple[Any, Any, Any, Any], place: tuple[int, int]) -> Any:
        image, h, w, c = at
        result, lanes = tir.buffer("result", [self._lanes]), self._lanes
        kept = tir.store(result, value, tir.ramp(tir.number(0), lanes))

        def lane(number: Any) -> Any:
            return self._store(tir.load(result, number), image, h, w, c + number)

        stored = [tirx.AllocBuffer(result), kept, tir.loop("lane", lanes, lane, tir.VECTORIZED)]
        return self._where(w, self._window.out_width, place[1], stored)

    def _where(self, index: Any, extent: int, place: int, statements: list[Any]) -> Any:
        """Return statements, guarded if results at that place of a tile may be outside."""
        statement, rest = tir.sequence(statements), extent % self._form.outputs
        return tirx.IfThenElse(index < tir.number(extent), statement, None) if rest and place >= rest else statement


def _once(values: list[Any], lanes: int) -> tuple[list[Any], list[Any]]:
    """Return variables for values that are read several times, and the statements that set them."""
    variables = [tirx.Var(f"read{number}", f"float32x{lanes}") for number in range(len(values))]
    return variables, [tirx.Bind(var, value) for var, value in zip(variables, values, strict=True)]
