"""Rows: tensor elements reduced together, along some axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tvm import tirx

from pipeline.executor.kernels.rows import folding
from pipeline.executor.kernels.rows.folding import Fold, Keep, Read, StridedRun
from pipeline.tvm import statements as tir


@dataclass(frozen=True)
class Rows:
    """Shape of a contiguous tensor, and its row axes, sorted."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements in all."""
        return math.prod(self.shape)

    @property
    def length(self) -> int:
        """Elements of one row."""
        return math.prod(self.shape[axis] for axis in self.axes)

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of a row's axes."""
        return tuple(self.shape[axis] for axis in self.axes)

    @property
    def contiguous(self) -> bool:
        """True if memory neighbours belong to one row."""
        # Neighbours in memory are neighbours along the last axis.
        return len(self.shape) - 1 in self.axes

    @property
    def outer_axes(self) -> tuple[int, ...]:
        """Axes across rows."""
        return tuple(axis for axis in range(len(self.shape)) if axis not in self.axes)

    def stride(self, axis: int) -> int:
        """Return an axis's stride in elements."""
        return math.prod(self.shape[axis + 1 :])

    @property
    def runs(self) -> list[StridedRun]:
        """The row's axes, merged into contiguous runs."""
        runs: list[StridedRun] = []
        for axis in self.axes:
            stride = self.stride(axis)
            # Neighbouring axes are one loop, the longer the better.
            if runs and runs[-1].stride == stride * self.shape[axis]:
                runs[-1] = StridedRun(runs[-1].extent * self.shape[axis], stride)
            else:
                runs.append(StridedRun(self.shape[axis], stride))
        return runs


class RowBlock(NamedTuple):
    """Rows processed at once."""

    rows: Rows
    base: Any
    """Offset of the first element of the first row."""
    indices: list[Any]
    """The index along each outer axis."""
    lanes: int
    vectors: int
    """Vectors of rows side by side; if the neighbours are of one row, there is that row only."""

    @property
    def result_lanes(self) -> int:
        """Lanes of a fold's result."""
        # Along a row its lanes are joined in the end; across rows each lane is a row.
        return 1 if self.rows.contiguous else self.lanes

    def read(self, source: Any, offset: Any, size: int) -> Any:
        """Return elements of a one-dimensional buffer."""
        return tir.load(source, tir.span(self.base + offset, size))

    def fold(self, fold: Fold, read: Read, keep: Keep | None = None) -> tuple[list[Any], list[Any]]:
        """Return statements, and folded values per row vector or row."""
        if self.rows.contiguous:
            return folding.along(fold, self.rows.runs, read, self.lanes, keep)
        return folding.across(fold, self.rows.runs, read, self.lanes, self.vectors, keep)

    def broadcast(self, value: Any, size: int) -> Any:
        """Return a row's folded value for `size` neighbours."""
        return value if size == 1 or not self.rows.contiguous else tir.vector(value, size)


def loop_over_rows(rows: Rows, lanes: int, tasks: int, body: Callable[[RowBlock], Any], *, count: int) -> Any:
    """Loop over all rows, `count` vectors at once, divided between cores."""
    # Across rows, the last axis is that of the vectors.
    outer_axes = rows.outer_axes if rows.contiguous else rows.outer_axes[:-1]
    extents = [rows.shape[axis] for axis in outer_axes]
    single = math.prod(extents) == 1

    def task(number: Any) -> Any:
        indices = tir.unravel(number, extents)
        base = tir.number(0)
        for index, axis in zip(indices, outer_axes, strict=True):
            base += index * rows.stride(axis)
        if rows.contiguous:
            return body(RowBlock(rows, base, indices, lanes, 1))
        # With a single outer pass, only the neighbouring rows are left to be shared out.
        return _across(rows, (count, lanes), tasks if single else 1, (base, indices), body)

    return tir.loop("task", math.prod(extents), task, tir.parallel(tasks))


def _across(
    rows: Rows, size: tuple[int, int], tasks: int, start: tuple[Any, list[Any]], body: Callable[[RowBlock], Any]
) -> Any:
    """Loop over adjacent rows: vector blocks, single vectors, remainder."""
    (base, indices), (most_vectors, lanes) = start, size
    extent = rows.shape[-1]
    statements = []
    first = 0
    # Several vectors hide how long an addition takes; single ones and a narrow one do what remains.
    for vectors, width in ((most_vectors, lanes), (1, lanes), (1, extent % lanes)):
        blocks = (extent - first) // (vectors * width) if width else 0
        if blocks:

            def block(index: Any, first: int = first, vectors: int = vectors, width: int = width) -> Any:
                column = index * (vectors * width) + first
                return body(RowBlock(rows, base + column, [*indices, column], width, vectors))

            statements.append(tir.loop("block", blocks, block, tir.parallel(tasks)))
            first += blocks * vectors * width
    return tir.sequence(statements)


def bind_once(statements: list[Any], value: Any, block: RowBlock) -> tuple[list[Any], Any]:
    """Compute a folded value once, into a variable."""
    var = tirx.Var("row_value", "float32" if block.result_lanes == 1 else f"float32x{block.result_lanes}")
    return [*statements, tirx.Bind(var, value)], var


def store_elements(block: RowBlock, read: Callable[[Any, int], Any], store: Callable[..., Any]) -> Any:
    """Store every element of a single-run row block.

    `read` makes the value to store at an offset, of a number of lanes; `store` the statement that stores a value at its
    index along each axis.
    """
    rows, lanes = block.rows, block.lanes
    (extent, stride), *_ = rows.runs

    def inside(offset: Any, size: int) -> Any:
        return tir.sequence(
            store_lanes(
                read(offset, size),
                size,
                lambda value, lane: store(value, *_indices(rows, block.indices, offset + lane)),
            )
        )

    def beside(position: Any) -> Any:
        *indices, column = block.indices
        return tir.sequence(
            store_lanes(
                read(position * stride, lanes),
                lanes,
                lambda value, lane: store(value, *_indices(rows, [*indices, column + lane], position)),
            )
        )

    return tir.run(extent, lanes, inside) if rows.contiguous else tir.loop("position", extent, beside)


def store_lanes(vector: Any, lanes: int, store: Callable[[Any, Any], Any]) -> list[Any]:
    """Store the lanes of a vector: `store` gets value and lane."""
    # Fused operators are written for one element: they become vectors by way of a loop over lanes.
    value = tir.buffer("value", [lanes])
    return [
        tirx.AllocBuffer(value),
        tir.store(value, vector, tir.span(tir.number(0), lanes)),
        tir.loop("lane", lanes, lambda lane: store(tir.load(value, lane), lane), tir.VECTORIZED),
    ]


def _indices(rows: Rows, indices: Sequence[Any], position: Any) -> list[Any]:
    """Return a row element's index on every tensor axis."""
    row_indices = dict(zip(rows.axes, tir.unravel(position, rows.extents), strict=True))
    outer_indices = dict(zip(rows.outer_axes, indices, strict=True))
    return [row_indices[axis] if axis in row_indices else outer_indices[axis] for axis in range(len(rows.shape))]
