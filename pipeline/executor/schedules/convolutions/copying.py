"""Padded copies: the rows that one piece of a convolution reads, with zeros around them, close in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.tiled.tiles import Window


@dataclass(frozen=True)
class Copied:
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


def padded(  # noqa: PLR0913, PLR0917 - where the rows are
    data: Any, window: Window, rows: int, image: Any, group: Any, top: Any, lanes: int, filler: float = 0.0
) -> Copied:
    """Copy `rows` rows from padded row `top` on, as wide as the outputs need; `filler` stands outside of the data."""
    from tvm import tirx

    depth, width = window.depth, window.reach(1, window.out_width)
    above, left = window.pads[0], min(max(0, window.pads[1]), width)
    # With padding below zero, the first columns are not read.
    unread = max(0, -window.pads[1])
    inside = max(0, min(window.width - unread, width - left))
    scratch = tir.buffer("padded", [rows * width * depth], str(data.dtype))

    def fill(start: Any, count: int) -> Any:
        value = tirx.const(filler, str(data.dtype))
        return tir.run(
            count, lanes, lambda at, size: tir.store(scratch, tir.wide(value, size), tir.span(start + at, size))
        )

    def row(index: Any) -> Any:
        source, target = top + index - above, index * (width * depth)
        first = ((image * window.height + source) * window.width + unread) * window.channels + group * depth
        copies = [
            part
            for part in (
                fill(target, left * depth),
                _pixels(data, first, scratch, target + left * depth, inside, window, lanes),
                fill(target + (left + inside) * depth, (width - left - inside) * depth),
            )
            if part is not None
        ]
        outside = tirx.Or(source < tir.number(0), source >= tir.number(window.height))
        return tirx.IfThenElse(outside, fill(target, width * depth), tir.sequence(copies))

    return Copied(scratch, width * depth, [tirx.AllocBuffer(scratch), tir.loop("row", rows, row)])


def _pixels(  # noqa: PLR0913, PLR0917
    data: Any, first: Any, scratch: Any, target: Any, count: int, window: Window, lanes: int
) -> Any:
    """Copy `count` pixels; without groups they are one run."""
    if not count:
        return None

    def pixel(index: Any, length: int = window.depth) -> Any:
        source, place = first + index * window.channels, target + index * window.depth
        return tir.run(
            length,
            lanes,
            lambda at, size: tir.store(
                scratch, tir.load(data, tir.span(source + at, size)), tir.span(place + at, size)
            ),
        )

    if window.groups == 1:
        return pixel(tir.number(0), count * window.depth)
    return tir.loop("pixel", count, pixel)
