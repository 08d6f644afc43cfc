"""Statements of the step loop in TVM's tensor IR, on flat buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tvm import tirx

from pipeline.tvm.statements import buffer, constant, loop, number, run, sequence, span

LANES = 16
"""Lanes per vector. Processors with shorter vectors use several."""

TILE_VECTORS = 4
"""Vectors of sums in registers, of which AVX2 has sixteen of eight lanes."""

TILE = LANES * TILE_VECTORS

BLOCK_ROWS = 4
"""Rows of a batch that share loaded weights."""


def load(source: Any, offset: Any, lanes: int = 1) -> Any:
    """Return an element, or several neighbours."""
    return tirx.BufferLoad(source, [span(offset, lanes)])


def store(target: Any, offset: Any, value: Any, lanes: int = 1) -> Any:
    """Return the store of one element or several neighbours."""
    return tirx.BufferStore(target, value, [span(offset, lanes)])


def copy(target: Any, source: Any, length: int) -> Any:
    """Return a copying loop."""
    return run(length, LANES, lambda offset, lanes: store(target, offset, load(source, offset, lanes), lanes))


def product(target: Any, source: Any, weights: Any, sizes: tuple[int, int, int]) -> Any:
    """Return the loops of ``target[rows, width] = source[rows, terms] @ weights``.

    The weights come as tiles of `TILE` columns, ``[width / TILE, terms, TILE]``; `sizes` are rows, terms and width.
    """
    rows, _, width = sizes
    blocks, remainder = divmod(rows, BLOCK_ROWS)
    half = TILE_VECTORS // 2

    def tile(column: Any) -> Any:
        def sums(first_row: Any, count: int, parts: Sequence[int]) -> Any:
            return _Sums(target, source, weights, sizes, column, first_row, count, parts).statement()

        def half_tile(parts: Sequence[int]) -> Any:
            return loop("block", blocks, lambda block: sums(block * BLOCK_ROWS, BLOCK_ROWS, parts))

        # Rows share the weights that are loaded; half as many columns, for the sums of all to be in registers.
        statements = [half_tile(range(half)), half_tile(range(half, TILE_VECTORS))] if blocks else []
        if remainder:
            first = blocks * BLOCK_ROWS
            statements.append(loop("row", remainder, lambda row: sums(row + first, 1, range(TILE_VECTORS))))
        return sequence(statements)

    return loop("column", width // TILE, tile)


class _Sums(NamedTuple):
    """Sums of a few rows and column vectors, in registers."""

    target: Any
    source: Any
    weights: Any
    sizes: tuple[int, int, int]
    column: Any
    first_row: Any
    rows: int
    parts: Sequence[int]

    def statement(self) -> Any:
        """Return the loop over all terms, between initial and final stores."""
        _, terms, width = self.sizes
        # A buffer for each register: the compiler keeps it there, as every index is known.
        registers = {(row, part): buffer("sum", [LANES]) for row in range(self.rows) for part in self.parts}
        begin = number(0)

        def term(index: Any) -> Any:
            start = (self.column * terms + index) * TILE
            return sequence([
                store(register, begin, load(register, begin, LANES) + self._value(row, index)
                      * load(self.weights, start + part * LANES, LANES), LANES)
                for (row, part), register in registers.items()
            ])  # fmt: skip

        return sequence([
            *map(tirx.AllocBuffer, registers.values()),
            *(store(register, begin, constant(0.0, LANES), LANES) for register in registers.values()),
            loop("term", terms, term),
            *(store(self.target, (self.first_row + row) * width + self.column * TILE + part * LANES,
                    load(register, begin, LANES), LANES)
              for (row, part), register in registers.items()),
        ])  # fmt: skip

    def _value(self, row: int, index: Any) -> Any:
        return tirx.Broadcast(load(self.source, (self.first_row + row) * self.sizes[1] + index), LANES)
