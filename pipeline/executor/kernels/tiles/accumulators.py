"""Sums: one register tile of accumulators, and its loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from tvm import tirx

from pipeline.executor.kernels.tiles import tiling
from pipeline.executor.kernels.tiles.arithmetic import Arithmetic, widen_weights
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.kernels.tiles.tiling import RegisterTile
from pipeline.tvm import statements as tir

AHEAD = 8
"""Terms between prefetching weights into the first-level cache and their use."""

UNROLL = 4
"""Terms written out per turn, so that counting costs little."""

_WRITTEN_TERMS = 4 * UNROLL
"""Most terms of a line written out completely, on processors with reordering."""

LINE = 16
"""Values of 32 bits in a cache line."""


def line_values(dtype: str) -> int:
    """Count a dtype's values per cache line."""
    return LINE * 4 // np.dtype(dtype).itemsize


class PixelSource(NamedTuple):
    """One-dimensional buffer of pixels, with row and pixel strides."""

    buffer: Any
    line: int
    step: int


class TileAccumulators:
    """Writes the code of one tile: the form's own one, or a smaller one at a border."""

    def __init__(
        self, form: PackedLayout, tile: RegisterTile, source: PixelSource, weights: Any, arithmetic: Arithmetic
    ) -> None:
        self._form, self._source, self._weights, self._arithmetic = form, source, weights, arithmetic
        self._by_lanes = arithmetic.by_lanes and tiling.has_vectors(form.conv, form.lanes)
        self._step = tile.vectors * form.lanes
        # Terms whose weights are loaded before the products of the first of them; 0 if in no certain order.
        self._is_ordered = self._by_lanes and arithmetic.is_ordered
        registers = arithmetic.registers if self._by_lanes else 0
        self._ahead = tiling.terms_ahead(tile, registers, form.lanes) if registers else 0
        self._line = line_values(str(weights.dtype))
        self._all = tir.ramp(tir.number(0), form.lanes)
        # Terms of one vector of elements.
        self._group = form.lanes if self._by_lanes else UNROLL
        self._unroll = self._unrolled_terms(self._run()[0])
        self.tile = tile
        # A buffer for each register: the compiler keeps it there, as every index is known.
        self.registers = {
            (dy, dx, part): tir.buffer("sum", [form.lanes], arithmetic.dtype)
            for dy in range(tile.rows)
            for dx in range(tile.columns)
            for part in range(tile.vectors)
        }
        # What is stored in the end, by pixel and vector.
        self.results = self.registers

    def reset(self) -> list[Any]:
        """Set all sums to zero."""
        return [*(tirx.AllocBuffer(register) for register in self.registers.values()), *self._clear()]

    def _clear(self) -> list[Any]:
        zeros = tir.vector(tirx.const(0, self._arithmetic.dtype), self._form.lanes)
        return [tir.store(register, zeros, self._all) for register in self.registers.values()]

    def finish(self) -> list[Any]:
        """Complete the sums per pixel and vector in `results`."""
        return []

    def loops(self, data: Any, weights: Any, turn: tuple[Any, int] | None) -> Any:
        """Return the loops over all terms, from the offsets of the tile's first pixel and of the block's weights.

        A `turn` is the number of this tile in the block, and the block's tiles. Meanwhile the weights of the next block
        are fetched, a part in each tile; None where all weights stay in the cache anyway.
        """
        form, conv, source = self._form, self._form.conv, self._source
        height, (run, run_count), unroll = conv.kernel[0], self._run(), self._unroll
        loop_count, remainder = divmod(run, unroll)
        run_groups = loop_count + bool(remainder)
        next_block, lines = (None, 0) if turn is None else self._part(weights, turn, conv.terms // run * run_groups)

        def along(depth_block: Any, dy: Any, dx: Any) -> Any:
            offset = depth_block * form.depth
            offset += dy * (conv.dilation[0] * source.line) + dx * (conv.dilation[1] * source.step)
            terms_before = ((depth_block * height + dy) * run_count + dx) * run

            def group(x: Any, w: Any, index: Any, numbers: range) -> Any:
                groups_before = terms_before // run * run_groups if remainder else terms_before // unroll
                first = (groups_before + index + numbers.start // unroll) * lines
                # Spread over the groups of terms: all at once they would occupy every line that may be under way to the
                # cache.
                fetches = [
                    tir.fetch(self._weights, next_block + (first + line) * self._line, to_l1=False)
                    for line in range(lines)
                ]
                data_start, weights_start = x + index * unroll, w + index * (unroll * self._step)
                terms = [
                    self._terms(data_start, weights_start, numbers[start : start + self._group], turn is not None)
                    for start in range(0, len(numbers), self._group)
                ]
                return tir.sequence([*fetches, *itertools.chain.from_iterable(terms)])

            def body(x: Any, w: Any) -> list[Any]:
                loops = self._turns(loop_count, lambda index: group(x, w, index, range(unroll)))
                # Counted from the last whole group, whose elements may share a vector with these.
                remaining = range(unroll, unroll + remainder)
                return [*loops, group(x, w, tir.number(loop_count - 1), remaining)] if remainder else loops

            return tir.sequence(
                tir.bound(
                    "x",
                    data + offset,
                    lambda x: tir.bound("w", weights + terms_before * self._step, lambda w: body(x, w)),
                )
            )

        def right(outer: Any, dy: Any) -> Any:
            return tir.loop("right", run_count, lambda dx: self._sum_up(1, along(outer, dy, dx)))

        def down(outer: Any) -> Any:
            return self._sum_up(3, tir.loop("down", height, lambda dy: self._sum_up(2, right(outer, dy))))

        return self._sum_up(4, tir.loop("outer", conv.depth // form.depth, down))

    def _run(self) -> tuple[int, int]:
        """Return terms per run and runs per kernel line."""
        form, conv, source = self._form, self._form.conv, self._source
        width = conv.kernel[1]
        # Pixels that lie side by side with all their channels are one long run.
        is_one_run = width == 1 or (form.depth == source.step and conv.dilation[1] == 1)
        return (form.depth * width, 1) if is_one_run else (form.depth, width)

    def _turns(self, count: int, turn: Callable[[Any], Any]) -> list[Any]:
        """Loop over a run of turns, written by `turn`."""
        return [tir.loop("terms", count, turn)]

    def _sum_up(self, level: int, statement: Any) -> Any:  # noqa: ARG002
        """Return a loop's statement; level 1 is innermost, 4 all terms."""
        return statement

    def _part(self, weights: Any, turn: tuple[Any, int], groups: int) -> tuple[Any, int]:
        """Return the next block's start for this tile, and prefetch lines."""
        number, tiles = turn
        block = self._form.conv.terms * self._step
        lines = -(-block // self._line)
        lines_per_tile = -(-lines // (groups * tiles))
        # Where there are more tiles than parts, some fetch what others have fetched, which costs an instruction each.
        parts = -(-lines // (groups * lines_per_tile))
        return weights + block + (number % parts) * (groups * lines_per_tile * self._line), lines_per_tile

    def _unrolled_terms(self, run: int) -> int:
        """Return a run's unrolled terms, preferably a divisor: no remainder."""
        group = self._group
        if self._by_lanes and run % group and run <= tiling.LONGEST_RUN:
            # Vectors of pixels side by side overlap; of many LLVM would keep some for later terms, and spill others.
            return min(run, group) if self._ahead or run > _WRITTEN_TERMS else run
        counts: list[int] = [*([2 * UNROLL] if self._is_ordered and not self._ahead else []), *range(group, 0, -1)]
        return next(count for count in counts if run % count == 0)

    def _terms(self, data: Any, weights: Any, numbers: range, fetch: bool) -> list[Any]:
        """Multiply a few terms of a run, from given starts."""
        loads, elements = self._elements(data, numbers)
        weights += numbers.start * self._step
        if not self._is_ordered:
            return [*loads, *self._products(elements, weights, fetch)]
        # Arm's cores fetch what follows in a line by themselves.  Loads of the next vectors, brought forward, would
        # find no register.
        products = self._clumps(elements, weights) if self._ahead else self._products(elements, weights, fetch=False)
        return [*loads, *products, self.boundary()]

    def _elements(self, data: Any, numbers: range) -> tuple[list[Any], list[dict[tuple[int, int], Any]]]:
        """Load the elements of a few terms, for all pixels."""
        source, strides, lanes = self._source, self._form.conv.strides, self._form.lanes
        down, right = strides[0] * source.line, strides[1] * source.step
        pixels = list(dict.fromkeys((dy, dx) for dy, dx, _ in self.registers))
        if self._by_lanes and numbers.stop >= lanes:
            # The last few terms are the upper lanes of a vector that begins before them: none reaches beyond the run.
            skipped = lanes - len(numbers)
            starts = [dy * down + dx * right + numbers.start - skipped for dy, dx in pixels]
            loads, vectors = self._load_vectors(data, starts)
            return loads, [
                {pixel: tir.lane(vectors[start], term) for pixel, start in zip(pixels, starts, strict=True)}
                for term in range(skipped, lanes)
            ]
        # Elements of neighbouring pixels lie so close that they share vectors.
        length = max(dx for _, dx in pixels) * right + numbers.stop
        if self._by_lanes and lanes <= length <= lanes * len(pixels):
            firsts = [min(first, length - lanes) for first in range(0, length, lanes)]
            loads, vectors = self._load_vectors(
                data, [dy * down + first for dy, dx in pixels if not dx for first in firsts]
            )

            def element(dy: int, offset: int) -> Any:
                first = firsts[offset // lanes]
                return tir.lane(vectors[dy * down + first], offset - first)

            return loads, [{(dy, dx): element(dy, dx * right + term) for dy, dx in pixels} for term in numbers]
        prepare = self._arithmetic.prepare
        return [], [
            {(dy, dx): prepare(tir.load(source.buffer, data + (dy * down + dx * right + term)), 1) for dy, dx in pixels}
            for term in numbers
        ]

    def _load_vectors(self, data: Any, starts: list[int]) -> tuple[list[Any], dict[int, Any]]:
        """Load vectors of elements; return their variables by start."""
        lanes = self._form.lanes
        vectors = [
            self._arithmetic.prepare(tir.load(self._source.buffer, tir.ramp(data + start, lanes)), lanes)
            for start in starts
        ]
        variables, loads = tir.bind_values("elements", vectors, f"{self._arithmetic.factor}x{lanes}")
        return loads, dict(zip(starts, variables, strict=True))

    def _products(self, elements: list[dict[tuple[int, int], Any]], weights: Any, fetch: bool) -> list[Any]:
        """Multiply terms with loads at their use, for out-of-order processors."""
        return [
            statement
            for number, values in enumerate(elements)
            for statement in [
                *(self._fetches(number, weights) if fetch else []),
                *self._term(values, self._weight_vectors(number, weights)),
            ]
        ]

    def _clumps(self, elements: list[dict[tuple[int, int], Any]], weights: Any) -> list[Any]:
        """Multiply terms behind as many grouped loads as registers allow."""
        statements, dtype, lanes = list[Any](), self._arithmetic.factor, self._form.lanes
        for start in range(0, len(elements), self._ahead):
            numbers, loads, clump = range(start, len(elements))[: self._ahead], list[Any](), list[Any]()
            for number in numbers:
                values, bindings = tir.bind_values("weights", self._weight_vectors(number, weights), f"{dtype}x{lanes}")
                loads += bindings
                clump += self._term(elements[number], values)
            # Loads stay above, and products below.
            statements += [*([self.boundary()] if start else []), *loads, tir.schedule_boundary(values[-1]), *clump]
        return statements

    def boundary(self) -> Any:
        """Return a scheduling barrier for products."""
        sums = list(self.registers.values())
        return tir.schedule_boundary(tir.load(sums[-1], tir.ramp(tir.number(0), self._form.lanes)))

    def _fetches(self, number: int, weights: Any) -> list[Any]:
        """Prefetch the weight lines of a later term."""
        first = weights + number * self._step
        # Each line once, where several terms share one.
        start = -(number * self._step) % self._line
        offsets = range(start, self._step, self._line)
        return [tir.fetch(self._weights, first + (AHEAD * self._step + offset)) for offset in offsets]

    def _weight_vectors(self, number: int, weights: Any) -> list[Any]:
        """Return the vectors of one term's weights."""
        lanes, first, dtype = self._form.lanes, weights + number * self._step, str(self._weights.dtype)
        starts = [first + part * lanes for part in range(self.tile.vectors)]
        vectors = [tir.load(self._weights, tir.ramp(start, lanes)) for start in starts]
        # Where products are of what is stored, there is nothing to widen.
        return (
            vectors if dtype == self._arithmetic.factor else [widen_weights(vector, dtype, lanes) for vector in vectors]
        )

    def _term(self, elements: dict[tuple[int, int], Any], weights: list[Any]) -> list[Any]:
        """Multiply all pixels' elements by one term's weights."""
        lanes = self._form.lanes
        all_lanes = tir.ramp(tir.number(0), lanes)
        statements = []
        # Vectors innermost: the element stays in its register for all of them.
        for (dy, dx, part), total in self.registers.items():
            # One element in all lanes: AVX-512 and AArch64 do this as a part of the multiplication.
            value = tir.vector(elements[dy, dx], lanes)
            result = self._arithmetic.add(tir.load(total, all_lanes), value, weights[part], lanes)
            statements.append(tir.store(total, result, all_lanes))
        return statements
