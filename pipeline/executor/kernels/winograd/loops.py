"""Winograd's loops: chunks transformed, multiplied and transformed back in cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import arithmetic, tiling
from pipeline.executor.kernels.tiles.accumulators import LINE, PixelSource, TileAccumulators
from pipeline.executor.kernels.tiles.tiling import RegisterTile
from pipeline.executor.kernels.winograd import form as forms
from pipeline.executor.kernels.winograd import transforms
from pipeline.executor.kernels.winograd.form import WinogradForm
from pipeline.tvm import statements as tir


class WinogradLoops:
    """Writes the loops of one convolution between two buffers, in `tasks` pieces of work for the cores.

    `store` makes the statement that stores a result at its indices n, h, w, c.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a kernel consists of
        self,
        form: WinogradForm,
        cpu: Microarchitecture,
        data: Any,
        weights: Any,
        store: Callable[..., Any],
        tasks: int = 1,
    ) -> None:
        self._form = form = forms.share_chunks(form, cpu, tasks)
        self._weights, self._store, self._tasks = weights, store, tasks
        self._lanes, self._conv = form.layout.lanes, form.conv
        self._arithmetic = arithmetic.of("float32", cpu)
        self._stay = forms.weights_stay(form, cpu)
        conv = form.conv
        size = conv.batch * conv.height * conv.width * conv.channels
        self._data, self._declare = tir.flat(data, "data", size)
        # Positions a power of two apart would fall on the same few places of the cache.
        self._position_strides = form.chunk * conv.channels + LINE, form.chunk * form.padded_outputs + LINE
        self._transformed_data, self._products = (
            tir.buffer(name, [form.positions * stride])
            for name, stride in zip(("transformed", "products"), self._position_strides, strict=True)
        )
        # One tile's data with zeros beyond the image, for tiles at its border.
        self._patch = tir.buffer("patch", [form.positions * conv.channels])

    @property
    def exact(self) -> bool:
        """True if each element is computed once only."""
        # Overlapping chunks or vectors compute elements twice; over an operand the second time would read results.
        return self._form.total % self._form.chunk == 0 and self._conv.out_channels % self._lanes == 0

    def statement(self) -> Any:
        """Return the whole computation."""
        form = self._form

        def task(index: Any) -> Any:
            first = tir.piece_start(index, form.chunk, form.total)
            return tir.sequence(tir.bound("first", first, self._chunk))

        chunks = -(-form.total // form.chunk)
        return tir.sequence([self._declare, tir.loop("task", chunks, task, tir.parallel(self._tasks))])

    def _chunk(self, first: Any) -> list[Any]:
        # Inside of the task, so that each core has buffers of its own.
        scratch = [self._transformed_data, self._products, self._patch]
        return [
            *(tirx.AllocBuffer(buffer) for buffer in scratch),
            self._each_tile(first, self._transform),
            tir.loop("position", self._form.positions, lambda position: tir.sequence(self._multiply(position))),
            self._each_tile(first, self._result),
        ]

    def _each_tile(self, first: Any, body: Callable[[Any, Any, Any, Any], list[Any]]) -> Any:
        """Loop over the chunk's tiles; `body` gets number, image, first result."""
        outputs = self._form.outputs

        def tile(index: Any) -> Any:
            image, dy, dx = tir.unravel(first + index, self._form.grid)
            return tir.sequence(
                tir.bound("h", dy * outputs, lambda h: tir.bound("w", dx * outputs, lambda w: body(index, image, h, w)))
            )

        return tir.loop("tile", self._form.chunk, tile)

    def _vectors(self, channels: int, body: Callable[[Any], list[Any]]) -> Any:
        """Loop over vectors of channels; the last overlaps rather than shrinks."""
        lanes = self._lanes

        def vector(index: Any) -> Any:
            return tir.sequence(tir.bound("c", tir.piece_start(index, lanes, channels), body))

        return tir.loop("vector", -(-channels // lanes), vector)

    def _transform(self, index: Any, image: Any, h: Any, w: Any) -> list[Any]:
        conv, side = self._conv, self._form.side
        first_row, first_column = h - conv.pads[0], w - conv.pads[1]
        base = ((image * conv.height + first_row) * conv.width + first_column) * conv.channels
        data_source = PixelSource(self._data, conv.width * conv.channels, conv.channels)
        inner_statements = tir.bound("base", base, lambda base: [self._transform_from(data_source, base, index)])
        patch_source = PixelSource(self._patch, side * conv.channels, conv.channels)
        border_statements = [
            self._copy_patch(base, first_row, first_column),
            self._transform_from(patch_source, tir.number(0), index),
        ]
        is_inside = tirx.all(
            first_row >= 0,
            first_column >= 0,
            first_row <= tir.number(conv.height - side),
            first_column <= tir.number(conv.width - side),
        )
        # Inside of the image a tile is read where it lies; only at borders it is worth a copy.
        return [tirx.IfThenElse(is_inside, tir.sequence(inner_statements), tir.sequence(border_statements))]

    def _copy_patch(self, base: Any, first_row: Any, first_column: Any) -> Any:
        """Copy a tile's data with zeros outside."""
        conv, side, lanes = self._conv, self._form.side, self._lanes
        channels = conv.channels

        def pixel(dy: Any, dx: Any) -> Any:
            y, x = first_row + dy, first_column + dx
            source = base + (dy * conv.width + dx) * channels
            target = (dy * side + dx) * channels

            def copy(c: Any) -> list[Any]:
                value = tir.load(self._data, tir.ramp(source + c, lanes))
                return [tir.store(self._patch, value, tir.ramp(target + c, lanes))]

            def clear(c: Any) -> list[Any]:
                return [tir.store(self._patch, tir.zeros(lanes), tir.ramp(target + c, lanes))]

            is_inside = tirx.all(y >= 0, x >= 0, y < tir.number(conv.height), x < tir.number(conv.width))
            return tirx.IfThenElse(is_inside, self._vectors(channels, copy), self._vectors(channels, clear))

        return tir.loop("down", side, lambda dy: tir.loop("right", side, lambda dx: pixel(dy, dx)))

    def _transform_from(self, source: PixelSource, base: Any, index: Any) -> Any:
        side, outputs, lanes = self._form.side, self._form.outputs, self._lanes

        def vector(c: Any) -> list[Any]:
            statements, columns = self._columns(
                transforms.of_data, source.buffer, lambda dy, dx: base + c + (dy * source.line + dx * source.step)
            )
            for dy in range(side):
                row, bindings = transforms.of_data([column[dy] for column in columns], outputs, lanes)
                statements += bindings
                for dx, value in enumerate(row):
                    position = index * self._conv.channels + c + (dy * side + dx) * self._position_strides[0]
                    statements.append(tir.store(self._transformed_data, value, tir.ramp(position, lanes)))
            return statements

        return self._vectors(self._conv.channels, vector)

    def _columns(
        self, transform: Callable[..., Any], source: Any, offset: Callable[[int, int], Any]
    ) -> tuple[list[Any], list[Any]]:
        """Transform the columns of a tile; the rows follow."""
        statements, columns = [], []
        for dx in range(self._form.side):
            column = [tir.load(source, tir.ramp(offset(dy, dx), self._lanes)) for dy in range(self._form.side)]
            values, bindings = tir.bind_values("read", column, f"float32x{self._lanes}")
            column, transform_bindings = transform(values, self._form.outputs, self._lanes)
            statements += [*bindings, *transform_bindings]
            columns.append(column)
        return statements, columns

    def _multiply(self, position: Any) -> list[Any]:
        """Multiply all tiles at one position."""
        layout, lanes = self._form.layout, self._lanes
        # At each position a product of its own: tiles by input channels, times input channels by output channels.
        depth, band_rows = self._conv.channels, layout.tile.rows
        count = -(-self._form.chunk // band_rows)

        def block(vector: Any, size: int) -> Any:
            channel = vector * lanes
            weights = (position * self._form.padded_outputs + channel) * depth

            def band(number: Any, start: Any, rows: int) -> Any:
                sums = TileAccumulators(
                    layout,
                    RegisterTile(rows, 1, size),
                    PixelSource(self._transformed_data, depth, 0),
                    self._weights,
                    self._arithmetic,
                )
                # With one band all weights are read once and in order, as the processor expects of itself.
                turn = None if self._stay or count == 1 else (number, count)
                begin = position * self._position_strides[0] + start * depth
                loops = tir.bound("from", begin, lambda begin: [sums.loops(begin, weights, turn)])
                base = position * self._position_strides[1] + start * self._form.padded_outputs + channel
                return tir.sequence([*sums.reset(), *loops, *self._store_sums(sums, base)])

            return tir.sequence(tir.pieces("band", self._form.chunk, band_rows, band))

        def blocks(first: int, block_count: int, size: int) -> Any:
            return tir.loop("block", block_count, lambda index: block(index * size + first, size))

        return [blocks(*block_range) for block_range in tiling.blocks(layout.vectors, layout.tile.vectors)]

    def _store_sums(self, sums: TileAccumulators, base: Any) -> list[Any]:
        lanes = self._lanes
        all_lanes = tir.ramp(tir.number(0), lanes)
        return [
            tir.store(self._products, tir.load(total, all_lanes), tir.ramp(base + offset, lanes))
            for (dy, _dx, part), total in sums.registers.items()
            for offset in [dy * self._form.padded_outputs + part * lanes]
        ]

    def _result(self, index: Any, image: Any, h: Any, w: Any) -> list[Any]:
        side, outputs, lanes = self._form.side, self._form.outputs, self._lanes

        def vector(c: Any) -> list[Any]:
            first = index * self._form.padded_outputs + c
            statements, columns = self._columns(
                transforms.of_results,
                self._products,
                lambda dy, dx: first + (dy * side + dx) * self._position_strides[1],
            )
            for dy in range(outputs):
                row, bindings = transforms.of_results([column[dy] for column in columns], outputs, lanes)
                stores = [self._store_result(value, (image, h + dy, w + dx, c), (dy, dx))
                          for dx, value in enumerate(row)]  # fmt: skip
                # The last tiles of rows and columns may make results beyond the image.
                statements.append(self._where(h + dy, self._conv.out_height, dy, [*bindings, *stores]))
            return statements

        return [self._vectors(self._conv.out_channels, vector)]

    def _store_result(self, value: Any, indices: tuple[Any, Any, Any, Any], offset_in_tile: tuple[int, int]) -> Any:
        image, h, w, c = indices
        result, lanes = tir.buffer("result", [self._lanes]), self._lanes
        copy = tir.store(result, value, tir.ramp(tir.number(0), lanes))

        def lane(number: Any) -> Any:
            return self._store(tir.load(result, number), image, h, w, c + number)

        statements = [tirx.AllocBuffer(result), copy, tir.loop("lane", lanes, lane, tir.VECTORIZED)]
        return self._where(w, self._conv.out_width, offset_in_tile[1], statements)

    def _where(self, index: Any, extent: int, offset_in_tile: int, statements: list[Any]) -> Any:
        """Guard statements where a tile's results may be outside."""
        statement, remainder = tir.sequence(statements), extent % self._form.outputs
        return (
            tirx.IfThenElse(index < tir.number(extent), statement, None)
            if remainder and offset_in_tile >= remainder
            else statement
        )
