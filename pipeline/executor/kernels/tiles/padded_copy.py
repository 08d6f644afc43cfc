"""Padded copies: a convolution piece's rows with zero margins, in cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.tvm import statements as tir

Prepare = Callable[[Any], Any]
"""Preparation of elements as they lie in memory, one or a vector."""


@dataclass(frozen=True)
class PaddedRows:
    """Scratch buffer (rows, width, group channels), and its filling statements."""

    buffer: Any
    """Buffer of one dimension."""
    line: int
    """Elements from one row to the next."""
    statements: list[Any]


def copy_padded(  # noqa: PLR0913, PLR0917 - where the rows are
    data: Any,
    conv: ConvShape,
    rows: int,
    image: Any,
    group: Any,
    top: Any,
    lanes: int,
    filler: float = 0.0,
    prepare: Prepare = lambda elements: elements,
    dtype: str = "",
) -> PaddedRows:
    """Copy `rows` padded rows from `top`, with `filler` outside the data.

    `prepare` makes what is stored of an element or of a vector of elements, which is converted to a `dtype`, if given.
    """
    dtype = dtype or str(data.dtype)
    depth, width = conv.depth, conv.reach(1, conv.out_width)
    pad_top, pad_left = conv.pads[0], min(max(0, conv.pads[1]), width)
    # With padding below zero, the first columns are not read.
    unread = max(0, -conv.pads[1])
    copied_columns = max(0, min(conv.width - unread, width - pad_left))
    scratch = tir.buffer("padded", [rows * width * depth], dtype)

    def fill(start: Any, count: int) -> Any:
        value = tirx.const(filler, dtype)
        return tir.run(
            count, lanes, lambda offset, size: tir.store(scratch, tir.wide(value, size), tir.span(start + offset, size))
        )

    def row(index: Any) -> Any:
        source, target = top + index - pad_top, index * (width * depth)
        first = ((image * conv.height + source) * conv.width + unread) * conv.channels + group * depth
        # Borders of a row are known now; only whether the row itself is one depends on its number.
        copies = [
            part
            for part in (
                fill(target, pad_left * depth),
                _pixels(data, first, scratch, target + pad_left * depth, copied_columns, conv, lanes, prepare),
                fill(target + (pad_left + copied_columns) * depth, (width - pad_left - copied_columns) * depth),
            )
            if part is not None
        ]
        is_outside = tirx.Or(source < tir.number(0), source >= tir.number(conv.height))
        return tirx.IfThenElse(is_outside, fill(target, width * depth), tir.sequence(copies))

    return PaddedRows(scratch, width * depth, [tirx.AllocBuffer(scratch), tir.loop("row", rows, row)])


def _pixels(  # noqa: PLR0913, PLR0917
    data: Any,
    first: Any,
    scratch: Any,
    target: Any,
    count: int,
    conv: ConvShape,
    lanes: int,
    prepare: Prepare,
) -> Any:
    """Copy `count` pixels; without groups they are one run."""
    if not count:
        return None

    def pixel(index: Any, length: int = conv.depth) -> Any:
        source, destination = first + index * conv.channels, target + index * conv.depth
        return copy_run(data, source, scratch, destination, length, lanes, prepare)

    # All channels are wanted, so that neighbouring pixels are one run.
    if conv.groups == 1:
        return pixel(tir.number(0), count * conv.depth)
    return tir.loop("pixel", count, pixel)


def copy_rows(  # noqa: PLR0913, PLR0917 - where the rows are
    data: Any, conv: ConvShape, rows: int, image: Any, top: Any, lanes: int, dtype: str
) -> PaddedRows:
    """Copy whole unpadded rows, converted to `dtype`."""
    line = conv.width * conv.channels
    scratch = tir.buffer("rows", [rows * line], dtype)
    copy = copy_run(data, (image * conv.height + top) * line, scratch, tir.number(0), rows * line, lanes)
    return PaddedRows(scratch, line, [tirx.AllocBuffer(scratch), copy])


def copy_run(  # noqa: PLR0913, PLR0917 - where both sides are
    data: Any,
    source: Any,
    scratch: Any,
    target: Any,
    length: int,
    lanes: int,
    prepare: Prepare = lambda elements: elements,
) -> Any:
    """Copy adjacent elements, converted to the scratch buffer's dtype."""
    dtype = str(scratch.dtype)

    def step(offset: Any, size: int) -> Any:
        value = prepare(tir.load(data, tir.span(source + offset, size)))
        return tir.store(scratch, tir.convert(value, dtype, size), tir.span(target + offset, size))

    return tir.run(length, lanes, step)
