"""Winograd: which 3x3 convolutions take fewer cycles by way of transformed tiles, and how they are divided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.tiled import packing, tiles
from pipeline.executor.schedules.tiled.packing import Layout
from pipeline.executor.schedules.tiled.tiles import FLOAT, Window
from pipeline.executor.schedules.winograd import transforms as winograd_transforms

# Cycles to transform a vector of one position, there or back; bytes per cycle from beyond the second-level cache, of
# weights, and of what was written there just before.
_TRANSFORM, _WEIGHTS, _SPILLED = 3.0, 4.0, 6.0

_FEWEST = 8
"""Tiles of a chunk, at least; fewer leave the weights little used."""

_WORTH = 0.9
"""Share of the cycles that may be left, since the results are less exact."""


@dataclass(frozen=True)
class Form:
    """How a convolution is computed by transformed tiles.

    Attributes
    ----------
    window : Window
    outputs : int
        Rows and columns of results of a tile, 2 or 4.
    chunk : int
        Tiles that are transformed, multiplied and transformed back before the next ones.
    layout : Layout
        Of the product at one position of the tiles; each tile of a chunk is a pixel.
    """

    window: Window
    outputs: int
    chunk: int
    layout: Layout

    @property
    def operations(self) -> int:
        """Multiplications and additions that the direct computation takes."""
        return self.window.operations

    @property
    def side(self) -> int:
        """Rows and columns of data of a tile."""
        return self.outputs + winograd_transforms.KERNEL - 1

    @property
    def positions(self) -> int:
        """Products of a tile for each pair of channels."""
        return self.side**2

    @property
    def grid(self) -> tuple[int, int, int]:
        """Images, and tiles of each along both axes; the last ones may be cut off."""
        window = self.window
        return window.batch, -(-window.out_height // self.outputs), -(-window.out_width // self.outputs)

    @property
    def total(self) -> int:
        """Tiles."""
        batch, down, right = self.grid
        return batch * down * right

    @property
    def made(self) -> int:
        """Output channels, filled up to whole vectors."""
        return self.layout.vectors * self.layout.lanes

    @property
    def data_bytes(self) -> int:
        """Transformed data and results of a chunk."""
        return FLOAT * self.positions * self.chunk * (self.window.channels + self.made)

    @property
    def weights_bytes(self) -> int:
        """Transformed weights."""
        return FLOAT * self.positions * self.window.channels * self.made


def chosen(window: Window, machine: Machine) -> Form | None:
    """Return the form with the fewest estimated cycles, or None if the direct computation takes hardly more."""
    if not possible(window, machine):
        return None
    form = min(_candidates(window, machine), key=lambda each: _cycles(each, machine))
    return form if _cycles(form, machine) < _WORTH * _direct(window, machine) else None


def possible(window: Window, machine: Machine) -> bool:
    """Whether a window can be computed so: dense, 3x3, no steps, and with a vector of channels on both sides."""
    return (
        (window.kernel, window.strides, window.dilation) == ((winograd_transforms.KERNEL,) * 2, (1, 1), (1, 1))
        and window.groups == 1
        and min(window.channels, window.out_channels) >= machine.lanes
    )


def divided(window: Window, machine: Machine, outputs: int, chunks: int) -> Form:
    """Return the form with so many chunks, at most."""
    total = Form(window, outputs, 1, Layout(window, tiles.Tile(1, 1, 1), 1, 1)).total
    chunk = -(-total // min(chunks, total))
    return Form(window, outputs, chunk, packing.layout(_product(window, chunk), machine))


def shared(form: Form, machine: Machine, tasks: int) -> Form:
    """Return the form with a chunk at least for each of so many tasks; the weights are packed already."""
    if tasks == 1:
        return form
    chunks = -(-form.total // form.chunk)
    chunk = -(-form.total // (-(-chunks // tasks) * tasks))
    window, packed = _product(form.window, chunk), form.layout
    layout = Layout(window, tiles.with_vectors(window, machine, packed.tile.vectors), packed.depth, packed.lanes)
    return Form(form.window, form.outputs, chunk, layout)


def pack(weights: NDArray[np.float32], form: Form) -> NDArray[np.float32]:
    """Return weights given as (out, in, 3, 3), transformed and packed, one position after the other."""
    transformed = winograd_transforms.of_weights(weights, form.outputs)
    return np.concatenate([packing.pack(each[..., None, None], form.layout) for each in transformed])


def weights_stay(form: Form, machine: Machine) -> bool:
    """Whether all weights stay in the second-level cache from chunk to chunk."""
    return form.weights_bytes + form.data_bytes <= _room(machine)


def _product(window: Window, chunk: int) -> Window:
    return Window(
        1, chunk, 1, window.channels, chunk, 1, window.out_channels, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)
    )  # fmt: skip


def _candidates(window: Window, machine: Machine) -> Iterator[Form]:
    for outputs in (2, 4):
        form, chunks = divided(window, machine, outputs, 1), 1
        while form.chunk >= _FEWEST or chunks == 1:
            yield form
            chunks += max(1, chunks // 2)
            form = divided(window, machine, outputs, chunks)


def _cycles(form: Form, machine: Machine) -> float:
    window, layout = form.window, form.layout
    chunks = -(-form.total // form.chunk)
    products = chunks * form.positions * tiles.cycles(layout.tile, layout.window, machine)
    streamed = form.weights_bytes * (1 if weights_stay(form, machine) else chunks)
    # What does not stay in the cache is written and read again.
    spilled = 2 * chunks * max(0, form.data_bytes - _room(machine))
    vectors = -(-window.channels // machine.lanes) + layout.vectors
    transforms = _TRANSFORM * chunks * form.chunk * form.positions * vectors
    return _overlapped(products, streamed) + transforms + spilled / _SPILLED


def _direct(window: Window, machine: Machine) -> float:
    tile = tiles.best(window, machine)
    each = -(-window.out_height // tiles.chunk_rows(window, tile, machine, 1))
    reads = 1 if tiles.weights_stay(window, machine) else window.batch * each
    weights = FLOAT * window.terms * window.out_channels
    return _overlapped(window.batch * tiles.cycles(tile, window, machine), reads * weights)


def _overlapped(products: float, streamed: float) -> float:
    """Return the cycles of products while so many bytes of weights arrive, which hides half of the shorter."""
    both = products, streamed / _WEIGHTS
    return max(both) + min(both) / 2


def _room(machine: Machine) -> int:
    """Return how much of the second-level cache is for one chunk."""
    return machine.l2_bytes * 3 // 4
