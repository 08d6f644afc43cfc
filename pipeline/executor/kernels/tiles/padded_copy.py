"""Padded copies: the rows that one piece of a convolution reads, with zeros around them, close in the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tir import statements as tir


@dataclass(frozen=True)
class PaddedRows:
    """A scratch buffer of (rows, width, channels of one group), and the statements that fill it.

    Attributes
    ----------
    buffer : buffer
        One-dimensional.
    line : int
        Elements from one row to the next.
    statements : list
    """

    buffer: Any
    line: int
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
    prepare: Callable[[Any], Any] = lambda elements: elements,
) -> PaddedRows:
    """Copy `rows` rows from padded row `top` on, as wide as the outputs need; `filler` stands outside of the data.

    `prepare` makes what is stored of an element or of a vector of elements.
    """
    from tvm import tirx

    depth, width = conv.depth, conv.reach(1, conv.out_width)
    pad_top, pad_left = conv.pads[0], min(max(0, conv.pads[1]), width)
    # With padding below zero, the first columns are not read.
    unread = max(0, -conv.pads[1])
    copied_columns = max(0, min(conv.width - unread, width - pad_left))
    scratch = tir.buffer("padded", [rows * width * depth], str(data.dtype))

    def fill(start: Any, count: int) -> Any:
        value = tirx.const(filler, str(data.dtype))
        return tir.run(
            count, lanes, lambda at, size: tir.store(scratch, tir.wide(value, size), tir.span(start + at, size))
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
    prepare: Callable[[Any], Any],
) -> Any:
    """Copy `count` pixels; without groups they are one run."""
    if not count:
        return None

    def pixel(index: Any, length: int = conv.depth) -> Any:
        source, destination = first + index * conv.channels, target + index * conv.depth
        return tir.run(
            length,
            lanes,
            lambda at, size: tir.store(
                scratch, prepare(tir.load(data, tir.span(source + at, size))), tir.span(destination + at, size)
            ),
        )

    # All channels are wanted, so that neighbouring pixels are one run.
    if conv.groups == 1:
        return pixel(tir.number(0), count * conv.depth)
    return tir.loop("pixel", count, pixel)
