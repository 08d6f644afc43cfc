"""Layout of a convolution by AMX: channels in whole steps of matrix tiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from msgspec import structs

from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import packing
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.kernels.tiles.tiling import RegisterTile

WAY, SPLIT = "amx", "amx-split"
"""Their names in a layout; `SPLIT` is of float32, as sums of two bfloat16."""

WAYS = frozenset({WAY, SPLIT})

ROWS = 16
"""Rows of a matrix tile: pixels, or units of channels; each row has 64 bytes."""


def step_units(depth: int) -> int:
    """Return the units of channels per tile, which may need a few zeros more."""
    steps = -(-depth // ROWS)
    # Without zeros nothing has to be copied, at the price of a few more steps.
    even = _divisor(depth)
    return even if depth // even * 3 <= steps * 4 else -(-depth // steps)


def _divisor(terms: int) -> int:
    return next(units for units in range(ROWS, 0, -1) if terms % units == 0)


def joins_columns(conv: ConvShape) -> bool:
    """Test if a line of the kernel is one run of terms: of few channels, tiles would be nearly empty."""
    return conv.depth < ROWS and conv.kernel[1] > 1 and conv.dilation[1] == 1


def summed_shape(conv: ConvShape) -> tuple[ConvShape, int]:
    """Return the convolution in whole steps, as weights are packed for it, and the units of a step."""
    if joins_columns(conv):
        run = conv.depth * conv.kernel[1]
        return replace(conv, channels=run * conv.groups, kernel=(conv.kernel[0], 1)), _divisor(run)
    units = step_units(conv.depth)
    return replace(conv, channels=-(-conv.depth // units) * units * conv.groups), units


def pack(  # noqa: PLR0913, PLR0917 - what a layout consists of
    units: np.ndarray, conv: ConvShape, cpu: Microarchitecture, elements: int, filler: int = 0, way: str = WAY
) -> tuple[PackedLayout, np.ndarray]:
    """Return the layout of a convolution on units of channels, and its packed weights.

    The weights (out, in, height, width) are int32, each of so many `elements`; `filler` is the unit outside of the
    data.
    """
    form = layout(conv, cpu, elements, filler, way)
    return form, packing.pack(_order_weights(units, conv), structs.replace(form, conv=summed_shape(conv)[0]))


def layout(conv: ConvShape, cpu: Microarchitecture, elements: int, filler: int = 0, way: str = WAY) -> PackedLayout:
    """Return the layout of a convolution on units of channels."""
    tile = RegisterTile(1, ROWS, min(2, -(-conv.group_outputs // cpu.lanes)))
    return PackedLayout(conv, tile, summed_shape(conv)[1], cpu.lanes, elements, filler, way)


def _order_weights(units: np.ndarray, conv: ConvShape) -> np.ndarray:
    """Return weights (out, in, height, width) of the convolution in whole steps."""
    if joins_columns(conv):
        run = conv.depth * conv.kernel[1]
        joined: np.ndarray = units.transpose(0, 3, 1, 2).reshape(len(units), run, conv.kernel[0], 1)
        return joined
    return np.pad(units, ((0, 0), (0, summed_shape(conv)[0].depth - conv.depth), (0, 0), (0, 0)))
