"""Packing: weights in the order in which a convolution's tiles read them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.tiled import tiles
from pipeline.executor.schedules.tiled.tiles import Tile, Window

TUNED = "tuned_"
"""What the name of a rule begins with where its layout is not the rule's own choice."""


@dataclass(frozen=True)
class Layout:
    """How a convolution's weights lie: decided once, when they are packed.

    Attributes
    ----------
    window : Window
    tile : Tile
    depth : int
        Input channels that are summed up before the next ones.
    lanes : int
    each : int
        Channels of the model in one channel of the window; four bytes count as one.
    filler : int
        What stands outside of the data.
    """

    window: Window
    tile: Tile
    depth: int
    lanes: int
    each: int = 1
    filler: int = 0

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return self.window.operations * self.each

    @property
    def vectors(self) -> int:
        """Vectors of output channels in one group; the last one may be filled up with zeros."""
        return -(-self.window.makes // self.lanes)

    @property
    def size(self) -> int:
        """Packed weights."""
        return self.window.groups * self.vectors * self.lanes * self.window.terms


def layout(window: Window, machine: Machine) -> Layout:
    """Return the layout for a window on a machine."""
    tile = tiles.best(window, machine)
    return Layout(window, tile, tiles.channel_block(window, tile, machine), machine.lanes)


def chosen(rule: str, seen: Window, machine: Machine) -> tuple[str, Layout]:
    """Return a rule's name and the layout for the window, or another name if tuning found a better layout than its."""
    form = replace(layout(seen.flattened() if seen.pointwise else seen, machine), window=seen)
    better = form if machine.layouts is None else machine.layouts(form)
    return (rule if better == form else f"{TUNED}{rule}"), better


def pack(weights: np.ndarray, form: Layout) -> np.ndarray:
    """Return weights given as (out, in, kh, kw) in the order in which the kernel reads them.

    For each group and block of output vectors: blocks of input channels, kh, kw, input channel, output channel.
    """
    window, lanes = form.window, form.lanes
    height, width = window.kernel
    filled = np.zeros((window.groups, form.vectors * lanes, window.depth, height, width), weights.dtype)
    filled[:, : window.makes] = weights.reshape(window.groups, window.makes, window.depth, height, width)
    filled = filled.reshape(window.groups, form.vectors, lanes, window.depth // form.depth, form.depth, height, width)
    pieces = []
    for group in filled:
        for first, many, size in tiles.blocks(form.vectors, form.tile.vectors):
            part = group[first : first + many * size].reshape(many, size * lanes, *group.shape[2:])
            pieces.append(part.transpose(0, 2, 4, 5, 3, 1).reshape(-1))
    return np.concatenate(pieces)


def stored(packed: np.ndarray, machine: Machine) -> np.ndarray:
    """Return packed float32 weights as the machine keeps them.

    bfloat16, which NumPy does not have, is the upper half of a float32, rounded to the nearest, as uint16.
    """
    if machine.weights == "bfloat16":
        whole = packed.view(np.uint32)
        return ((whole + 0x7FFF + ((whole >> 16) & 1)) >> 16).astype(np.uint16)
    return packed.astype(machine.weights, copy=False)
