"""Folding: many elements become one, in several registers at a time so that none waits for another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

from tvm import tirx

from pipeline.executor.schedules.language import tir

REGISTERS = 4
"""Vectors under way: as many as an addition takes cycles."""

Read = Callable[[Any, int, int], Any]
"""From an offset, a number of lanes and that of the vector of lines to what is to be folded: a vector, or one value."""

Keep = Callable[[Any, Any, int], Any]
"""From an offset, what was read there and its lanes to the statement that stores it."""


class Fold(NamedTuple):
    """What two values of a dtype become, and what changes no value."""

    combine: Callable[[Any, Any], Any]
    neutral: float
    dtype: str = "float32"

    def unchanged(self, lanes: int) -> Any:
        """Return what changes no value, in all lanes of a vector, which may be one."""
        return tir.wide(tirx.const(self.neutral, self.dtype), lanes)


SUM = Fold(lambda a, b: a + b, 0.0)
PRODUCT = Fold(lambda a, b: a * b, 1.0)
LARGEST = Fold(lambda a, b: tirx.Max(a, b), float("-inf"))  # noqa: PLW0108 - takes more than these two
SMALLEST = Fold(lambda a, b: tirx.Min(a, b), float("inf"))  # noqa: PLW0108


class Run(NamedTuple):
    """So many elements, each so far from the one before."""

    extent: int
    stride: int


def across(  # noqa: PLR0913, PLR0917 - what a loop consists of
    fold: Fold, runs: Sequence[Run], read: Read, lanes: int, count: int = 1, keep: Keep | None = None
) -> tuple[list[Any], list[Any]]:
    """Fold `count` vectors of neighbours, each lane for itself.

    Returns
    -------
    statements : list
    totals : list of vectors
    """
    totals = _Registers(fold, lanes, count)

    def step(offset: Any) -> Any:
        return tir.sequence([
            totals.add(each, _of(read, each), offset + each * lanes, lanes, keep) for each in range(count)
        ])  # fmt: skip

    return [*totals.cleared(), _nested(runs, step)], totals.values()


def along(
    fold: Fold, runs: Sequence[Run], read: Read, lanes: int, keep: Keep | None = None
) -> tuple[list[Any], list[Any]]:
    """Fold runs, the last of which are neighbours, into one value.

    Returns
    -------
    statements : list
    total : list of one value
    """
    *outer, (extent, _) = runs
    whole, rest = divmod(extent, lanes)
    totals = _Registers(fold, lanes, max(1, min(REGISTERS, whole)))
    first = _of(read, 0)

    def line(offset: Any) -> Any:
        def chunk(_: Any, start: Any, size: int) -> Any:
            parts = range(size // lanes)
            return tir.sequence([totals.add(part, first, offset + start + part * lanes, lanes, keep) for part in parts])

        steps = tir.pieces("chunk", whole * lanes, totals.count * lanes, chunk) if whole else []
        return tir.sequence(
            [
                *steps,
                *([totals.add(0, first, offset + whole * lanes, rest, keep)] if rest else []),
            ]
        )

    total, finish = _joined(fold, reduce(fold.combine, totals.values()), lanes)
    return [*totals.cleared(), _nested(outer, line), *finish], [total]


def _of(read: Read, which: int) -> Callable[[Any, int], Any]:
    return lambda offset, size: read(offset, size, which)


class _Registers:
    """Vectors that are folded into."""

    def __init__(self, fold: Fold, lanes: int, count: int) -> None:
        self._fold, self._lanes, self.count = fold, lanes, count
        self._buffers = [tir.buffer("total", [lanes], fold.dtype) for _ in range(count)]
        self._at = tir.span(tir.number(0), lanes)

    def cleared(self) -> list[Any]:
        """Return the statements that make them neutral."""
        neutral = self._fold.unchanged(self._lanes)
        return [
            *(tirx.AllocBuffer(each) for each in self._buffers),
            *(tir.store(each, neutral, self._at) for each in self._buffers),
        ]

    def values(self) -> list[Any]:
        """Return what they hold."""
        return [tir.load(each, self._at) for each in self._buffers]

    def add(self, number: int, read: Callable[[Any, int], Any], offset: Any, size: int, keep: Keep | None) -> Any:
        """Return the statement that folds `size` values into one of the vectors."""
        value = tirx.Var("value", tir.lanewise(self._fold.dtype, size))
        kept = [] if keep is None else [keep(offset, value, size)]
        total = tir.load(self._buffers[number], self._at)
        made = self._fold.combine(total, self._filled(value, size))
        return tir.sequence([
            tirx.Bind(value, read(offset, size)), *kept, tir.store(self._buffers[number], made, self._at)
        ])  # fmt: skip

    def _filled(self, value: Any, size: int) -> Any:
        missing = self._lanes - size
        if not missing:
            return value
        filler = self._fold.unchanged(missing)
        return tirx.Shuffle([value, filler], _numbers(range(self._lanes)))


def _joined(fold: Fold, vector: Any, lanes: int) -> tuple[Any, list[Any]]:
    """Return a vector's lanes folded into one value, and what is to run before."""
    statements = []
    while lanes > 1:
        var = tirx.Var("part", tir.lanewise(fold.dtype, lanes))
        statements.append(tirx.Bind(var, vector))
        lanes //= 2
        halves = [tirx.Shuffle([var], _numbers(range(first, first + lanes))) for first in (0, lanes)]
        vector = fold.combine(*halves)
    var = tirx.Var("whole", fold.dtype)
    return var, [*statements, tirx.Bind(var, vector)]


def _numbers(values: range) -> list[Any]:
    return [tirx.IntImm("int32", each) for each in values]


def _nested(runs: Sequence[Run], body: Callable[[Any], Any]) -> Any:
    """Return loops over runs, around what is done at an offset."""

    def level(number: int, offset: Any) -> Any:
        if number == len(runs):
            return body(offset)
        extent, stride = runs[number]
        return tir.loop("fold", extent, lambda index: level(number + 1, offset + index * stride))

    return level(0, tir.number(0))
