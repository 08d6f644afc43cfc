"""Winograd: choice and division of 3x3 convolutions for transformed tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import half_products, packing, tiling
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.executor.kernels.tiles.tiling import FLOAT
from pipeline.executor.kernels.winograd import error
from pipeline.executor.kernels.winograd import transforms as winograd_transforms

# Cycles to transform a vector of one position, there or back; bytes per cycle of what was written just before to beyond
# the second-level cache.
_TRANSFORM, _SPILLED = 3.0, 6.0

_BOARD_WEIGHTS, _SERVER_WEIGHTS = 4.0, 8.0
"""Bytes of weights per cycle from beyond the second-level cache: a board's memory, and a third-level cache."""

_EXPOSED = 0.25
"""Share of the shorter of products and loads of weights that does not hide behind the longer."""

_FEWEST = 8
"""Tiles of a chunk, at least; fewer leave the weights little used."""

_WORTH = 0.9
"""Largest share of the direct cycles. Results are less exact."""


@dataclass(frozen=True)
class WinogradForm:
    """Division of a convolution into transformed tiles."""

    conv: ConvShape
    outputs: int
    """Rows and columns of results of a tile, 2 or 4."""
    chunk: int
    """Tiles that are transformed, multiplied and transformed back before the next ones."""
    layout: PackedLayout
    """Layout of the product at one position of the tiles; each tile of a chunk is a pixel."""

    @property
    def operations(self) -> int:
        """Multiplications and additions of the direct computation."""
        return self.conv.operations

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
        """Images, and tiles along both axes; the last may be cut off."""
        conv = self.conv
        return conv.batch, -(-conv.out_height // self.outputs), -(-conv.out_width // self.outputs)

    @property
    def total(self) -> int:
        """Tiles."""
        batch, down, right = self.grid
        return batch * down * right

    @property
    def padded_outputs(self) -> int:
        """Output channels, filled up to whole vectors."""
        return self.layout.vectors * self.layout.lanes

    @property
    def data_bytes(self) -> int:
        """Transformed data and results of a chunk."""
        # Both are there at once, while a chunk is multiplied.
        return FLOAT * self.positions * self.chunk * (self.conv.channels + self.padded_outputs)

    @property
    def weights_bytes(self) -> int:
        """Transformed weights."""
        return FLOAT * self.positions * self.conv.channels * self.padded_outputs


def choose_form(conv: ConvShape, cpu: Microarchitecture, weights: NDArray[np.float32]) -> WinogradForm | None:
    """Return the fastest form with small errors, or None without a clear gain."""
    if not is_possible(conv, cpu):
        return None
    limit = _WORTH * _direct(conv, cpu)
    forms = {_cycles(form, cpu): form for outputs in winograd_transforms.OUTPUTS for form in [best(conv, cpu, outputs)]}
    # The fastest first, and the bound last: it takes as long as packing.
    fast = (form for cycles, form in sorted(forms.items()) if cycles < limit)
    return next((form for form in fast if error.bound(weights, form.outputs) <= error.LIMIT), None)


def best(conv: ConvShape, cpu: Microarchitecture, outputs: int) -> WinogradForm:
    """Return the fastest form with tiles of `outputs`."""
    return min(_candidates(conv, cpu, outputs), key=lambda form: _cycles(form, cpu))


def is_possible(conv: ConvShape, cpu: Microarchitecture) -> bool:
    """Test for dense, unstrided 3x3 windows with a vector of channels both ways."""
    return (
        (conv.kernel, conv.strides, conv.dilation) == ((winograd_transforms.KERNEL,) * 2, (1, 1), (1, 1))
        and conv.groups == 1
        and min(conv.channels, conv.out_channels) >= cpu.lanes
    )


def with_chunks(conv: ConvShape, cpu: Microarchitecture, outputs: int, chunks: int) -> WinogradForm:
    """Return the form with so many chunks, at most."""
    total = WinogradForm(conv, outputs, 1, PackedLayout(conv, tiling.RegisterTile(1, 1, 1), 1, 1)).total
    chunk = -(-total // min(chunks, total))
    return WinogradForm(conv, outputs, chunk, packing.estimate_layout(_product(conv, chunk), cpu))


def share_chunks(form: WinogradForm, cpu: Microarchitecture, tasks: int) -> WinogradForm:
    """Return the form with a chunk per task, for packed weights."""
    # The estimate chose the chunk for one core.
    if tasks == 1:
        return form
    chunks = -(-form.total // form.chunk)
    # A multiple of the tasks, so that all cores have as many chunks.
    chunk = -(-form.total // (-(-chunks // tasks) * tasks))
    conv, source_layout = _product(form.conv, chunk), form.layout
    layout = PackedLayout(
        conv, tiling.with_vectors(conv, cpu, source_layout.tile.vectors), source_layout.depth, source_layout.lanes
    )
    return WinogradForm(form.conv, form.outputs, chunk, layout)


def pack(weights: NDArray[np.float32], form: WinogradForm) -> NDArray[np.float32]:
    """Transform and pack weights (out, in, 3, 3), position by position."""
    position_weights = winograd_transforms.of_weights(weights, form.outputs)
    return np.concatenate([packing.pack(weights[..., None, None], form.layout) for weights in position_weights])


def weights_stay(form: WinogradForm, cpu: Microarchitecture) -> bool:
    """Test if weights stay in the second-level cache between chunks."""
    return form.weights_bytes + form.data_bytes <= _room(cpu)


def _product(conv: ConvShape, chunk: int) -> ConvShape:
    return ConvShape(
        1, chunk, 1, conv.channels, chunk, 1, conv.out_channels, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0)
    )  # fmt: skip


def _candidates(conv: ConvShape, cpu: Microarchitecture, outputs: int) -> Iterator[WinogradForm]:
    form, chunks = with_chunks(conv, cpu, outputs, 1), 1
    while form.chunk >= _FEWEST or chunks == 1:
        yield form
        # By half: the estimates of neighbouring counts hardly differ.
        chunks += max(1, chunks // 2)
        form = with_chunks(conv, cpu, outputs, chunks)


def _cycles(form: WinogradForm, cpu: Microarchitecture) -> float:
    conv, layout = form.conv, form.layout
    chunks = -(-form.total // form.chunk)
    products = chunks * form.positions * tiling.cycles(layout.tile, layout.conv, cpu)
    weight_traffic = form.weights_bytes * (1 if weights_stay(form, cpu) else chunks)
    # What does not stay in the cache is written and read again.
    spill_traffic = 2 * chunks * max(0, form.data_bytes - _room(cpu))
    vectors = -(-conv.channels // cpu.lanes) + layout.vectors
    # Data on the way there, and results on the way back.
    transforms = _TRANSFORM * chunks * form.chunk * form.positions * vectors
    return _overlap_cycles(products, weight_traffic, cpu) + transforms + spill_traffic / _SPILLED


def _direct(conv: ConvShape, cpu: Microarchitecture) -> float:
    cpu = half_products.for_tiles(cpu) if cpu.arithmetic == half_products.WAY else cpu
    tile = tiling.best(conv, cpu)
    chunks = -(-conv.out_height // tiling.chunk_rows(conv, tile, cpu, 1))
    reads = 1 if tiling.weights_stay(conv, cpu) else conv.batch * chunks
    weights = FLOAT * conv.terms * conv.out_channels
    return _overlap_cycles(conv.batch * tiling.cycles(tile, conv, cpu), reads * weights, cpu)


def _overlap_cycles(products: float, weight_traffic: float, cpu: Microarchitecture) -> float:
    """Return the cycles of products during loads of weights."""
    phases = products, weight_traffic / (_BOARD_WEIGHTS if cpu.lane_products else _SERVER_WEIGHTS)
    return max(phases) + _EXPOSED * min(phases)


def _room(cpu: Microarchitecture) -> int:
    """Return a chunk's share of the second-level cache."""
    return cpu.l2_bytes * 3 // 4
