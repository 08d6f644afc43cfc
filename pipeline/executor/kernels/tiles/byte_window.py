"""Byte windows per channel: 16-bit products, 32-bit sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from tvm import tirx

from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.sliding_window import WindowElements, WindowLoops
from pipeline.tvm import statements as tir

CHANNELS = 16
"""Bytes of a vector."""

WRITTEN_TAPS = 25
"""Windows with up to so many elements are written out."""

_LOWEST = -128


@dataclass(frozen=True)
class ByteWindow:
    """Depthwise convolution of bytes, signed or less by 128.

    Attributes
    ----------
    conv : ConvShape
        Shape of the convolution, with one group.
    filler : int
        Signed byte that stands outside of the data.
    is_paired : bool
        True if two products that follow each other add up to 16 bits, whatever the data.
    """

    conv: ConvShape
    filler: int
    is_paired: bool


def fit_pairs(weights: np.ndarray) -> bool:
    """Test if product pairs fit 16 bits, for weights (kh, kw, channels)."""
    taps = weights.reshape(-1, weights.shape[-1])
    # Only twice the lowest byte times itself is too large.
    return not ((taps[:-1:2] == _LOWEST) & (taps[1::2] == _LOWEST)).any()


def flip_sign(elements: Any) -> Any:
    """Turn unsigned bytes to signed, less 128."""
    lowest = tirx.IntImm("int8", _LOWEST)
    return elements ^ tir.wide(lowest, lanes_of(elements))


def lanes_of(value: Any) -> int:
    """Return a value's number of lanes, at least one."""
    return int(str(value.ty.dtype).partition("x")[2] or 1)


class ByteWindowLoops(WindowLoops):
    """Writes the loops of a depthwise convolution of bytes."""

    # Four vectors of sums each: half of the registers.
    pixels: ClassVar[int] = 4

    def __init__(  # noqa: PLR0913, PLR0917 - what a kernel consists of
        self, form: ByteWindow, cpu: Microarchitecture, data: Any, weights: Any, write: Any, tasks: int
    ) -> None:
        elements = WindowElements("int8", form.filler, "int32", 0)
        if str(data.dtype) == "uint8":
            elements = elements._replace(prepare=flip_sign)
        super().__init__(form.conv, replace(cpu, lanes=CHANNELS), data, elements, write, tasks)
        self._weights, self._step = weights, 2 if form.is_paired else 1

    def _window_loops(self, values: list[Any], base: Any, c: Any, lanes: int) -> Any:
        height, width = self._conv.kernel
        if height * width > WRITTEN_TAPS:
            return tir.loop(
                "down",
                height,
                lambda dy: tir.loop(
                    "right", width, lambda dx: tir.sequence(self._add(values, [(dy, dx)], base, c, lanes))
                ),
            )
        taps = [(tir.number(dy), tir.number(dx)) for dy in range(height) for dx in range(width)]
        groups = [taps[first : first + self._step] for first in range(0, len(taps), self._step)]
        sums = [statement for group in groups for statement in self._add(values, group, base, c, lanes)]
        # What is done with the sums stays below, where registers are free again.
        return tir.sequence([*sums, tir.schedule_boundary(tir.load(values[-1], tir.span(tir.number(0), lanes)))])

    def _add(self, values: list[Any], taps: list[tuple[Any, Any]], base: Any, c: Any, lanes: int) -> list[Any]:
        """Add 16-bit product sums to all values."""
        at_zero, words = tir.span(tir.number(0), lanes), tir.lanewise("int16", lanes)
        weights = [tir.load(self._weights, dy, dx, tir.span(c, lanes)).astype(words) for dy, dx in taps]
        statements = []
        for column, value in enumerate(values):
            first, *further = (
                self._element(base, tap, column, lanes).astype(words) * factor
                for tap, factor in zip(taps, weights, strict=True)
            )
            total = sum(further, first).astype(tir.lanewise("int32", lanes))
            statements.append(tir.store(value, tir.load(value, at_zero) + total, at_zero))
        return statements
