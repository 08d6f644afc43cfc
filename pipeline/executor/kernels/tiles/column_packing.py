"""Column packing: a data matrix's columns, adjacent per row, as weights."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipeline.executor.kernels.tir import shuffling
from pipeline.tvm import statements as tir


class ColumnBlock(NamedTuple):
    """Neighbouring columns of a matrix."""

    column: Any
    """The first one."""
    packed_offset: Any
    size: int
    """Vectors of columns."""
    last: int
    """Columns in the last vector."""


class ColumnPacking:
    """Writes the copies of blocks of columns, of `depth` rows, between buffers of one dimension.

    One of the strides, from one row to the next, and from one column to the next, is 1.
    """

    def __init__(self, source: Any, strides: tuple[int, int], target: Any, depth: int, lanes: int) -> None:
        self._source, self._target, self._depth, self._lanes = source, target, depth, lanes
        self._row_stride, self._column_stride = strides

    def statements(self, first: Any, block: ColumnBlock) -> list[Any]:
        """Copy a block's columns from `first`, adjacent per row."""
        pack = self._by_rows if self._column_stride == 1 else self._by_columns
        lanes, size = self._lanes, block.size
        step = lanes * self._column_stride
        return [
            pack(first + part * step, block.packed_offset + part * lanes, size * lanes,
                 block.last if part == size - 1 else lanes)
            for part in range(size)
        ]  # fmt: skip

    def _by_rows(self, first: Any, offset: Any, step: int, count: int) -> Any:
        """Copy a vector of each row."""
        lanes = self._lanes

        def row(index: Any) -> Any:
            target = index * step + offset
            value = tir.load(self._source, tir.span(first + index * self._row_stride, count))
            copy = tir.store(self._target, self._convert(value, count), tir.span(target, count))
            if count == lanes:
                return copy
            # The product reads all lanes of the last vector.
            return tir.sequence([tir.store(self._target, self._zeros(), tir.ramp(target, lanes)), copy])

        return tir.loop("row", self._depth, row)

    def _by_columns(self, first: Any, offset: Any, step: int, count: int) -> Any:
        """Copy row-stored columns in square blocks."""
        depth, lanes, line = self._depth, self._lanes, self._column_stride
        if depth < lanes:
            return self._one_by_one(first, offset, step, count)

        def square(index: Any) -> Any:
            start = tir.piece_start(index, lanes, depth)

            def store(number: int, column: Any) -> Any:
                value = self._convert(column, lanes)
                return tir.store(self._target, value, tir.ramp((start + number) * step + offset, lanes))

            return shuffling.block(self._source, first + start, line, lanes, store, count)

        return tir.loop("square", -(-depth // lanes), square)

    def _one_by_one(self, first: Any, offset: Any, step: int, count: int) -> Any:
        line, lanes = self._column_stride, self._lanes

        def row(index: Any) -> Any:
            clear = tir.store(self._target, self._zeros(), tir.ramp(index * step + offset, lanes))

            def column(number: Any) -> Any:
                value = tir.load(self._source, first + number * line + index)
                return tir.store(self._target, self._convert(value, 1), index * step + offset + number)

            return tir.sequence([clear, tir.loop("column", count, column)])

        return tir.loop("row", self._depth, row)

    def _convert(self, value: Any, lanes: int) -> Any:
        """Convert elements to the products' dtype."""
        return tir.convert(value, str(self._target.dtype), lanes)

    def _zeros(self) -> Any:
        return tir.zeros(self._lanes, str(self._target.dtype))
