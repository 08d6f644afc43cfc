"""Shuffling: transposition of square blocks in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from pipeline.tvm import statements as tir


def transpose_rows(rows: Sequence[Any], lanes: int, dtype: str) -> tuple[list[Any], list[Any]]:
    """Transpose a block of `lanes` rows, vectors of as many lanes, a power of two.

    Returns the block's columns, and statements to run before.
    """
    current, statements = tir.bind_values("row", rows, f"{dtype}x{lanes}")
    # As many steps as the logarithm of the lanes, each a shuffle of two registers for every row.
    half = lanes // 2
    # Weaving rows i and i + half together moves one bit of the row's number to the column's; each takes its turn.
    for _ in range(lanes.bit_length() - 1):
        woven = [part for row in range(half) for part in interleave(current[row], current[row + half], lanes)]
        current, bindings = tir.bind_values("row", woven, f"{dtype}x{lanes}")
        statements += bindings
    return current, statements


def interleave(first: Any, second: Any, lanes: int) -> list[Any]:
    """Return two vectors of alternating elements of two vectors."""
    picks = [tirx.IntImm("int32", step // 2 + (step % 2) * lanes) for step in range(2 * lanes)]
    return [tirx.Shuffle([first, second], part) for part in (picks[:lanes], picks[lanes:])]


def block(  # noqa: PLR0913, PLR0917 - where both sides are
    source: Any, first: Any, line: int, lanes: int, store: Callable[[int, Any], Any], rows: int | None = None
) -> Any:
    """Read a block, at the offset `first` of a buffer of one dimension, and store it transposed.

    Its rows are `line` elements apart; zeros stand for those beyond `rows`. `store` makes the statement that stores a
    vector, from the number of its column.
    """
    count = lanes if rows is None else rows
    loads = [tir.load(source, tir.ramp(first + row * line, lanes)) for row in range(count)]
    zeros = tir.vector(tirx.const(0, str(source.dtype)), lanes)
    columns, statements = transpose_rows([*loads, *[zeros] * (lanes - count)], lanes, str(source.dtype))
    return tir.sequence([*statements, *(store(number, column) for number, column in enumerate(columns))])
