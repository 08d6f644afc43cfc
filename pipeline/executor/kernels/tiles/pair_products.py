"""Products of bfloat16 in pairs, summed in float32: supported layouts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import structs
from tvm import tirx

from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import amx_loops, packing, tiling
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.kernels.tiles.tiling import RegisterTile

PAIR = 2
"""Numbers multiplied and added at once, counted as one of 32 bits."""

ARITHMETIC = "bfloat16"
"""Their name in a build's arithmetic."""

# Products per pixel and group of a matrix tile that is nearly empty, where plain ones are faster.
_FEWEST = 128


def applies(conv: ConvShape, cpu: Microarchitecture) -> bool:
    """Test if pairs suit a convolution of float32."""
    if cpu.arithmetic != ARITHMETIC or conv.depth == 1:
        return False
    pixels = conv.out_height * conv.out_width * (conv.batch if conv.pointwise else 1)
    return cpu.pairs != amx_loops.WAY or (conv.depth * conv.group_outputs >= _FEWEST and pixels > 1)


def pack(weights: np.ndarray, conv: ConvShape, cpu: Microarchitecture) -> tuple[PackedLayout, np.ndarray]:
    """Return the layout of a float32 convolution as pairs, and its packed weights."""
    halves = np.pad(round_to_halves(weights), ((0, 0), (0, -conv.depth % PAIR), (0, 0), (0, 0)))
    pairs = np.ascontiguousarray(halves.transpose(0, 2, 3, 1)).view(np.int32).transpose(0, 3, 1, 2)
    form = _layout(replace(conv, channels=pairs.shape[1] * conv.groups), cpu)
    if form.way != amx_loops.WAY:
        return form, packing.pack(pairs, form)
    padded_form = amx_loops.pad_depth(form)
    zeros = padded_form.conv.depth - form.conv.depth
    return form, packing.pack(np.pad(pairs, ((0, 0), (0, zeros), (0, 0), (0, 0))), padded_form)


def _layout(conv: ConvShape, cpu: Microarchitecture) -> PackedLayout:
    if cpu.pairs == amx_loops.WAY:
        tile = RegisterTile(1, amx_loops.ROWS, min(2, -(-conv.group_outputs // cpu.lanes)))
        return PackedLayout(conv, tile, amx_loops.step_pairs(conv.depth), cpu.lanes, PAIR, way=cpu.pairs)
    layout = packing.estimate_layout(conv.flatten() if conv.pointwise else conv, cpu)
    return structs.replace(layout, conv=conv, element_channels=PAIR, way=cpu.pairs)


def round_to_halves(values: np.ndarray) -> np.ndarray:
    """Return the upper halves of float32, rounded to the nearest, as uint16."""
    # Half a unit of the last kept bit rounds; a tie goes to the even number.
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
