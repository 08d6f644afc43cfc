"""Lines: the elements of a tensor that are taken together, along some of its axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tvm import tirx

from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.lines import folding
from pipeline.executor.schedules.lines.folding import Fold, Keep, Read, Run


@dataclass(frozen=True)
class Lines:
    """Shape of a contiguous tensor, and the axes that a line extends along, in order."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements in all."""
        return math.prod(self.shape)

    @property
    def length(self) -> int:
        """Elements of one line."""
        return math.prod(self.shape[axis] for axis in self.axes)

    @property
    def extents(self) -> tuple[int, ...]:
        """Of a line's axes."""
        return tuple(self.shape[axis] for axis in self.axes)

    @property
    def inner(self) -> bool:
        """Whether the neighbours in memory belong to one line, not to different ones."""
        return len(self.shape) - 1 in self.axes

    @property
    def kept(self) -> tuple[int, ...]:
        """The axes that lines lie side by side along."""
        return tuple(axis for axis in range(len(self.shape)) if axis not in self.axes)

    def stride(self, axis: int) -> int:
        """Return the elements from one index of an axis to the next."""
        return math.prod(self.shape[axis + 1 :])

    @property
    def runs(self) -> list[Run]:
        """The line's axes, those joined that make one run."""
        found: list[Run] = []
        for axis in self.axes:
            stride = self.stride(axis)
            if found and found[-1].stride == stride * self.shape[axis]:
                found[-1] = Run(found[-1].extent * self.shape[axis], stride)
            else:
                found.append(Run(self.shape[axis], stride))
        return found


class Bundle(NamedTuple):
    """Lines that are worked on at once.

    Attributes
    ----------
    lines : Lines
    base : expression
        Where the first element of the first line is.
    places : list of expressions
        The index along each axis that is kept.
    lanes : int
        Of one vector.
    vectors : int
        Vectors of lines side by side; if the neighbours are of one line, there is that line only.
    """

    lines: Lines
    base: Any
    places: list[Any]
    lanes: int
    vectors: int

    @property
    def result(self) -> int:
        """Lanes of what a fold makes."""
        return 1 if self.lines.inner else self.lanes

    def read(self, source: Any, at: Any, size: int) -> Any:
        """Return elements of a one-dimensional buffer."""
        return tir.load(source, tir.span(self.base + at, size))

    def fold(self, how: Fold, read: Read, keep: Keep | None = None) -> tuple[list[Any], list[Any]]:
        """Return statements, and what each vector of lines, or the line, becomes."""
        if self.lines.inner:
            return folding.along(how, self.lines.runs, read, self.lanes, keep)
        return folding.across(how, self.lines.runs, read, self.lanes, self.vectors, keep)

    def wide(self, value: Any, size: int) -> Any:
        """Return what a line has become, for `size` neighbours."""
        return value if size == 1 or not self.lines.inner else tir.vector(value, size)


def each(lines: Lines, lanes: int, tasks: int, body: Callable[[Bundle], Any], *, count: int) -> Any:
    """Return the loops over all lines, `count` vectors of them at once, divided between `tasks` cores."""
    outer = lines.kept if lines.inner else lines.kept[:-1]
    extents = [lines.shape[axis] for axis in outer]
    alone = math.prod(extents) == 1

    def task(index: Any) -> Any:
        places = tir.places(index, extents)
        base = tir.number(0)
        for place, axis in zip(places, outer, strict=True):
            base += place * lines.stride(axis)
        if lines.inner:
            return body(Bundle(lines, base, places, lanes, 1))
        return _across(lines, (count, lanes), tasks if alone else 1, (base, places), body)

    return tir.loop("task", math.prod(extents), task, tir.parallel(tasks))


def _across(
    lines: Lines, size: tuple[int, int], tasks: int, start: tuple[Any, list[Any]], body: Callable[[Bundle], Any]
) -> Any:
    """Return the loops over neighbouring lines: blocks of several vectors, single vectors, and the rest."""
    (base, places), (most, lanes) = start, size
    extent = lines.shape[-1]
    statements = []
    first = 0
    for count, width in ((most, lanes), (1, lanes), (1, extent % lanes)):
        many = (extent - first) // (count * width) if width else 0
        if many:

            def block(index: Any, first: int = first, many: int = count, width: int = width) -> Any:
                column = index * (many * width) + first
                return body(Bundle(lines, base + column, [*places, column], width, many))

            statements.append(tir.loop("block", many, block, tir.parallel(tasks)))
            first += many * count * width
    return tir.sequence(statements)


def named(statements: list[Any], value: Any, bundle: Bundle) -> tuple[list[Any], Any]:
    """Return statements, and what a fold has made of a bundle, computed once, as a variable."""
    var = tirx.Var("of_line", "float32" if bundle.result == 1 else f"float32x{bundle.result}")
    return [*statements, tirx.Bind(var, value)], var


def written(bundle: Bundle, read: Callable[[Any, int], Any], store: Callable[..., Any]) -> Any:
    """Return the statement that stores each element of a bundle of lines whose axes are one run.

    Parameters
    ----------
    bundle : Bundle
    read : callable
        From an offset and a number of lanes to what is to be stored there.
    store : callable
        From a value and its index along each axis to the statement that stores it.
    """
    lines, lanes = bundle.lines, bundle.lanes
    (extent, stride), *_ = lines.runs

    def inside(at: Any, size: int) -> Any:
        return tir.sequence(
            lanewise(read(at, size), size, lambda value, lane: store(value, *_indices(lines, bundle.places, at + lane)))
        )

    def beside(position: Any) -> Any:
        *places, column = bundle.places
        return tir.sequence(
            lanewise(
                read(position * stride, lanes),
                lanes,
                lambda value, lane: store(value, *_indices(lines, [*places, column + lane], position)),
            )
        )

    return tir.run(extent, lanes, inside) if lines.inner else tir.loop("position", extent, beside)


def lanewise(vector: Any, lanes: int, store: Callable[[Any, Any], Any]) -> list[Any]:
    """Return statements that store each lane of a vector: `store` gets the value and the number of the lane."""
    value = tir.buffer("value", [lanes])
    return [
        tirx.AllocBuffer(value),
        tir.store(value, vector, tir.span(tir.number(0), lanes)),
        tir.loop("lane", lanes, lambda lane: store(tir.load(value, lane), lane), tir.VECTORIZED),
    ]


def _indices(lines: Lines, places: Sequence[Any], position: Any) -> list[Any]:
    """Return the index of a line's element along each axis of the tensor."""
    inside = dict(zip(lines.axes, tir.places(position, lines.extents), strict=True))
    outside = dict(zip(lines.kept, places, strict=True))
    return [inside[axis] if axis in inside else outside[axis] for axis in range(len(lines.shape))]
