"""Byte windows per channel: 16-bit products, 32-bit sums."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import tirx

from pipeline.executor.kernels.microarchitecture import LOAD_LATENCY, Microarchitecture
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.sliding_window import Values, WindowElements, WindowLoops
from pipeline.executor.kernels.tir import shuffling
from pipeline.tvm import statements as tir

CHANNELS = 16
"""Bytes of a vector."""

FOUR = 4
"""Products that an instruction adds up."""

_ALL_ROWS, _ONE_ROW = (2, 2), (1, 4)
"""Tiles in fours: the one has all rows of elements in registers, the other one after the other."""

WRITTEN_TAPS = 25
"""Windows with up to so many elements are written out."""

_LOWEST = -128


@dataclass(frozen=True)
class ByteWindow:
    """Depthwise convolution of bytes, signed or less by 128."""

    conv: ConvShape
    """Shape of the convolution, with one group."""
    filler: int
    """Signed byte that stands outside of the data."""
    is_paired: bool
    """True if two products that follow each other add up to 16 bits, whatever the data."""
    by_fours: bool = False
    """True if four products are added up at once, of pixels side by side."""


def fit_pairs(weights: np.ndarray) -> bool:
    """Test if product pairs fit 16 bits, for weights (kh, kw, channels)."""
    taps = weights.reshape(-1, weights.shape[-1])
    # Only twice the lowest byte times itself is too large.
    return not ((taps[:-1:2] == _LOWEST) & (taps[1::2] == _LOWEST)).any()


def by_fours(conv: ConvShape, cpu: Microarchitecture) -> bool:
    """Test for sums of four products, for a window of few columns and whole vectors of channels."""
    is_short = conv.dilation[1] == 1 and conv.kernel[1] < 2 * FOUR and math.prod(conv.kernel) <= WRITTEN_TAPS
    # In order, interleaving takes as long as it saves where few rows of results share it.
    is_worthwhile = not cpu.in_order or _fours_tile(conv) == _ALL_ROWS
    return cpu.dots in {"sdot", "mmla"} and is_short and conv.channels % CHANNELS == 0 and is_worthwhile


def _fours_tile(conv: ConvShape) -> tuple[int, int]:
    rows, columns = (conv.reach(axis, extent) for axis, extent in enumerate(_ALL_ROWS))
    # Half of the registers, as the sums have the others.
    return _ALL_ROWS if rows * (columns + columns % 2) <= CHANNELS else _ONE_ROW


def pack_fours(weights: np.ndarray, conv: ConvShape) -> np.ndarray:
    """Pack weights (kh, kw, channels) as (shift, kh, fours, four times channels), zeros around them."""
    height, width, channels = weights.shape
    # Fours begin at even pixels.
    shifts = 1 + conv.strides[1] % 2
    packed = np.zeros((shifts, height, -(-(width + shifts - 1) // FOUR), FOUR, channels), np.int8)
    for shift in range(shifts):
        packed[shift].reshape(height, -1, channels)[:, shift : shift + width] = weights
    return np.ascontiguousarray(packed.swapaxes(-1, -2)).reshape(*packed.shape[:3], -1)


def flip_sign(elements: Any) -> Any:
    """Turn unsigned bytes to signed, less 128."""
    lowest = tirx.IntImm("int8", _LOWEST)
    return elements ^ tir.wide(lowest, lanes_of(elements))


def lanes_of(value: Any) -> int:
    """Return a value's number of lanes, at least one."""
    return int(str(value.ty.dtype).partition("x")[2] or 1)


class ByteWindowLoops(WindowLoops):
    """Writes the loops of a depthwise convolution of bytes."""

    def __init__(
        self, form: ByteWindow, cpu: Microarchitecture, operands: Sequence[Any], write: Any, tasks: int
    ) -> None:
        data, self._weights, self._start = operands
        elements = WindowElements("int8", form.filler, "int32", 0)
        if str(data.dtype) == "uint8":
            elements = elements._replace(prepare=flip_sign)
        self._step, self._in_order = 2 if form.is_paired else 1, cpu.in_order
        # Four vectors of sums each: half of the registers.  Out of order, a pixel follows the other.
        self.tile = _fours_tile(form.conv) if form.by_fours else (1, 4 if cpu.in_order else 2)
        # Groups of taps between which no loads are moved, where these wait for products: all would find no registers.
        shares = form.conv.kernel[1] >= 2 * form.conv.strides[1]
        self._boundary = (1 + shares) if cpu.in_order and cpu.latency > LOAD_LATENCY else WRITTEN_TAPS
        super().__init__(form.conv, replace(cpu, lanes=CHANNELS), data, elements, write, tasks)

    def _first(self, c: Any, lanes: int) -> Any:
        return tir.load(self._start, tir.span(c, lanes))

    def _window_loops(self, values: Values, stores: Values, base: Any, c: Any, lanes: int) -> Any:
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
        boundary = tir.schedule_boundary(tir.load(values[0, 0], tir.span(tir.number(0), lanes)))
        statements = list[Any]()
        # Out of order, the sums of a pixel are scaled beside the products of the next.
        for pixels in [values] if self._in_order else [{pixel: value} for pixel, value in values.items()]:
            for number, group in enumerate(groups, 1):
                statements += self._add(pixels, group, base, c, lanes)
                statements += [boundary] if number % self._boundary == 0 else []
            statements += [stores.pop(pixel) for pixel in pixels]
        return tir.sequence(statements)

    def _add(self, values: Values, taps: list[tuple[Any, Any]], base: Any, c: Any, lanes: int) -> list[Any]:
        """Add 16-bit product sums to all values."""
        at_zero, words = tir.span(tir.number(0), lanes), tir.lanewise("int16", lanes)
        weights = [tir.load(self._weights, dy, dx, tir.span(c, lanes)).astype(words) for dy, dx in taps]
        statements = []
        for pixel, value in values.items():
            first, *further = (
                self._element(base, *self._position(pixel, tap), lanes).astype(words) * factor
                for tap, factor in zip(taps, weights, strict=True)
            )
            total = sum(further, first).astype(tir.lanewise("int32", lanes))
            statements.append(tir.store(value, tir.load(value, at_zero) + total, at_zero))
        return statements


class FourWindowLoops(ByteWindowLoops):
    """Writes a depthwise convolution of bytes whose products are added up in fours.

    Pixels side by side are interleaved, so that four bytes of a channel are neighbours.  Rows of results share them.
    """

    def _window_loops(self, values: Values, stores: Values, base: Any, c: Any, lanes: int) -> Any:  # noqa: ARG002
        height, width = self._conv.kernel
        at_zero, parts, statements = tir.ramp(tir.number(0), FOUR), range(lanes // FOUR), list[Any]()
        sums = {(pixel, part): tir.buffer("sum", [FOUR], "int32") for part in parts for pixel in values}
        for (_, part), total in sums.items():
            statements += [tirx.AllocBuffer(total), tir.store(total, self._first(c + FOUR * part, FOUR), at_zero)]
        last_row, last = self._position(next(reversed(values)), (height - 1, width - 1))
        step = last_row + 1 if self.tile == _ALL_ROWS else 1
        for first in range(0, last_row + 1, step):
            rows = range(first, min(first + step, last_row + 1))
            pairs = {row: self._pairs(base, row, last, statements) for row in rows}
            # One part after the other, so that few sums are under way.
            for part in parts:
                for row, pixel, dy in itertools.product(rows, values, range(height)):
                    top, column = self._position(pixel, (dy, 0))
                    if top == row:
                        total = tir.load(sums[pixel, part], at_zero)
                        value = self._line_sum(total, pairs[row], column, dy, c, part)
                        statements.append(tir.store(sums[pixel, part], value, at_zero))
                statements.append(tir.schedule_boundary(tir.load(sums[pixel, part], at_zero)))
        for (pixel, part), total in sums.items():
            statements.append(
                tir.store(values[pixel], tir.load(total, at_zero), tir.ramp(tir.number(FOUR * part), FOUR))
            )
        return tir.sequence(statements)

    def _pairs(self, base: Any, row: int, last: int, statements: list[Any]) -> list[Any]:
        """Interleave the pixels of a row in pairs, each as two vectors of 16 bits."""
        pixels = [self._element(base, row, column, CHANNELS) for column in range(last + 1)]
        pixels, loads = tir.bind_values("pixel", pixels, "int8x16")
        halves = [
            tirx.reinterpret("int16x8", half)
            for column in range(0, last + 1, 2)
            for half in shuffling.interleave(pixels[column], pixels[min(column + 1, last)], CHANNELS)
        ]
        variables, bindings = tir.bind_values("pair", halves, "int16x8")
        statements += [*loads, *bindings]
        return variables

    def _line_sum(self, total: Any, pairs: list[Any], column: int, dy: int, c: Any, part: int) -> Any:  # noqa: PLR0913, PLR0917
        """Return the sums of four channels with a line of a window."""
        shift = column % 2
        for index in range(-(-(self._conv.kernel[1] + shift) // FOUR)):
            first = column - shift + FOUR * index
            # What lies behind the last pair is multiplied by zero.
            lower, upper = (pairs[min(start, len(pairs) - 2) + part // 2] for start in (first, first + 2))
            data = tirx.reinterpret("int8x16", shuffling.interleave(lower, upper, CHANNELS // 2)[part % 2])
            weights = tir.load(self._weights, shift, dy, index, tir.ramp(FOUR * (c + FOUR * part), CHANNELS))
            total = tirx.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.sdot.v4i32.v16i8", total, data, weights)
        return total
