"""Folding: reduction of many elements in several independent registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

from tvm import tirx

from pipeline.tvm import statements as tir

REGISTERS = 4
"""Vectors under way: as many as an addition takes cycles."""

Read = Callable[[Any, int, int], Any]
"""Reader of values to fold, a vector or one value, from offset, lanes, and number of the vector of lines."""

Keep = Callable[[Any, Any, int], Any]
"""Storing statement from an offset, the value read there, and its lanes."""


class Fold(NamedTuple):
    """Combination of two values of a dtype, with its neutral value."""

    combine: Callable[[Any, Any], Any]
    neutral: float
    dtype: str = "float32"

    def neutral_vector(self, lanes: int) -> Any:
        """Return the neutral value in all lanes."""
        return tir.wide(tirx.const(self.neutral, self.dtype), lanes)


SUM = Fold(lambda a, b: a + b, 0.0)
PRODUCT = Fold(lambda a, b: a * b, 1.0)
# The second operand is the result where a comparison is false, as it is with NaN, which is passed over.
LARGEST = Fold(lambda total, value: tirx.Max(value, total), float("-inf"))
SMALLEST = Fold(lambda total, value: tirx.Min(value, total), float("inf"))


class StridedRun(NamedTuple):
    """Evenly spaced elements: count and stride."""

    extent: int
    stride: int


def across(  # noqa: PLR0913, PLR0917 - what a loop consists of
    fold: Fold, runs: Sequence[StridedRun], read: Read, lanes: int, count: int = 1, keep: Keep | None = None
) -> tuple[list[Any], list[Any]]:
    """Fold `count` vectors of neighbours, each lane for itself."""
    # Lanes are different rows, so that nothing has to be joined in the end.
    totals = _FoldRegisters(fold, lanes, count)

    def step(offset: Any) -> Any:
        return tir.sequence([
            totals.add(part, _of(read, part), offset + part * lanes, lanes, keep) for part in range(count)
        ])  # fmt: skip

    return [*totals.reset(), _nest_loops(runs, step)], totals.values()


def along(
    fold: Fold, runs: Sequence[StridedRun], read: Read, lanes: int, keep: Keep | None = None
) -> tuple[list[Any], list[Any]]:
    """Fold runs into one value; the last ones are adjacent."""
    *outer_runs, (extent, _) = runs
    vector_count, remainder = divmod(extent, lanes)
    # Several sums at once: an addition waits for the one before it, but not for those in other registers.
    totals = _FoldRegisters(fold, lanes, max(1, min(REGISTERS, vector_count)))
    first = _of(read, 0)

    def line(offset: Any) -> Any:
        def chunk(_: Any, start: Any, size: int) -> Any:
            parts = range(size // lanes)
            return tir.sequence([totals.add(part, first, offset + start + part * lanes, lanes, keep) for part in parts])

        steps = tir.pieces("chunk", vector_count * lanes, totals.count * lanes, chunk) if vector_count else []
        return tir.sequence(
            [
                *steps,
                *([totals.add(0, first, offset + vector_count * lanes, remainder, keep)] if remainder else []),
            ]
        )

    total, finish = _join_lanes(fold, reduce(fold.combine, totals.values()), lanes)
    return [*totals.reset(), _nest_loops(outer_runs, line), *finish], [total]


def _of(read: Read, number: int) -> Callable[[Any, int], Any]:
    return lambda offset, size: read(offset, size, number)


class _FoldRegisters:
    """Vector accumulators of a fold."""

    def __init__(self, fold: Fold, lanes: int, count: int) -> None:
        self._fold, self._lanes, self.count = fold, lanes, count
        self._buffers = [tir.buffer("total", [lanes], fold.dtype) for _ in range(count)]
        self._at = tir.span(tir.number(0), lanes)

    def reset(self) -> list[Any]:
        """Set the registers to the neutral value."""
        neutral = self._fold.neutral_vector(self._lanes)
        return [
            *(tirx.AllocBuffer(register) for register in self._buffers),
            *(tir.store(register, neutral, self._at) for register in self._buffers),
        ]

    def values(self) -> list[Any]:
        """Return the vectors of partial results."""
        return [tir.load(register, self._at) for register in self._buffers]

    def add(self, number: int, read: Callable[[Any, int], Any], offset: Any, size: int, keep: Keep | None) -> Any:
        """Fold `size` values into one of the vectors."""
        value = tirx.Var("value", tir.lanewise(self._fold.dtype, size))
        statements = [] if keep is None else [keep(offset, value, size)]
        total = tir.load(self._buffers[number], self._at)
        result = self._fold.combine(total, self._fill_up(value, size))
        return tir.sequence([
            tirx.Bind(value, read(offset, size)), *statements, tir.store(self._buffers[number], result, self._at)
        ])  # fmt: skip

    def _fill_up(self, value: Any, size: int) -> Any:
        missing_lanes = self._lanes - size
        if not missing_lanes:
            return value
        # Lanes beyond the row must change nothing.
        filler = self._fold.neutral_vector(missing_lanes)
        return tirx.Shuffle([value, filler], _numbers(range(self._lanes)))


def _join_lanes(fold: Fold, vector: Any, lanes: int) -> tuple[Any, list[Any]]:
    """Fold a vector's lanes, with preparing statements."""
    statements = []
    # Half onto half: as many steps as the logarithm of the lanes.
    while lanes > 1:
        var = tirx.Var("part", tir.lanewise(fold.dtype, lanes))
        statements.append(tirx.Bind(var, vector))
        lanes //= 2
        halves = [tirx.Shuffle([var], _numbers(range(first, first + lanes))) for first in (0, lanes)]
        vector = fold.combine(*halves)
    var = tirx.Var("whole", fold.dtype)
    return var, [*statements, tirx.Bind(var, vector)]


def _numbers(values: range) -> list[Any]:
    return [tirx.IntImm("int32", lane) for lane in values]


def _nest_loops(runs: Sequence[StridedRun], body: Callable[[Any], Any]) -> Any:
    """Nest loops over runs around a body at an offset."""

    def level(number: int, offset: Any) -> Any:
        if number == len(runs):
            return body(offset)
        extent, stride = runs[number]
        return tir.loop("fold", extent, lambda index: level(number + 1, offset + index * stride))

    return level(0, tir.number(0))
