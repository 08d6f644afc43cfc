"""Packing: weights in a convolution tile's reading order."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import half_products, tiling
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.tiling import RegisterTile


class PackedLayout(msgspec.Struct, frozen=True):
    """Memory layout of a convolution's weights, decided at packing.

    Tuning databases keep it as JSON, under the names that its fields had first.
    """

    conv: ConvShape = msgspec.field(name="window")
    tile: RegisterTile
    depth: int
    """Input channels that are summed up before the next ones."""
    lanes: int
    element_channels: int = msgspec.field(default=1, name="each")
    """Channels of the model in one channel of the window; four bytes count as one."""
    filler: int = 0
    """Value outside of the data."""
    way: str = ""
    """Form of products of bytes (see `byte_products.choose`), or ``"float16"``."""

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return self.conv.operations * self.element_channels

    @property
    def vectors(self) -> int:
        """Vectors of output channels per group, the last padded with zeros."""
        return -(-self.conv.group_outputs // self.lanes)

    @property
    def size(self) -> int:
        """Packed weights."""
        return self.conv.groups * self.vectors * self.lanes * self.conv.terms


def estimate_layout(conv: ConvShape, cpu: Microarchitecture) -> PackedLayout:
    """Return the layout with the fewest estimated cycles."""
    tile = tiling.best(conv, cpu)
    return PackedLayout(conv, tile, tiling.channel_block(conv, tile, cpu), cpu.lanes)


def float_layout(conv: ConvShape, cpu: Microarchitecture) -> PackedLayout:
    """Return the layout for the build's product dtype."""
    if cpu.arithmetic == half_products.WAY:
        return msgspec.structs.replace(estimate_layout(conv, half_products.for_tiles(cpu)), way=half_products.WAY)
    return estimate_layout(conv, cpu)


def choose_layout(conv: ConvShape, cpu: Microarchitecture) -> tuple[PackedLayout, bool]:
    """Return a convolution's layout, and if tuning found it."""
    # A tile of a pointwise one may reach over the ends of rows.
    form = float_layout(conv.flatten() if conv.pointwise else conv, cpu)
    # The shape of the model is kept: whether pixels may be one column is known when all is fused.
    form = msgspec.structs.replace(form, conv=conv)
    tuned_form = form if cpu.layouts is None else cpu.layouts(form)
    return tuned_form, tuned_form != form


def pack(
    weights: np.ndarray, form: PackedLayout, order: Callable[[np.ndarray], np.ndarray] = lambda block: block
) -> np.ndarray:
    """Pack weights (out, in, kh, kw) in the kernel's reading order.

    For each group and block of output vectors: blocks of input channels, kh, kw, input channel, output channel.
    Elements along the last two axes may have an `order` of their own.
    """
    conv, lanes = form.conv, form.lanes
    height, width = conv.kernel
    # Whole vectors: lanes beyond the last output channel multiply by zero, and are not stored.
    filled_weights = np.zeros((conv.groups, form.vectors * lanes, conv.depth, height, width), weights.dtype)
    filled_weights[:, : conv.group_outputs] = weights.reshape(
        conv.groups, conv.group_outputs, conv.depth, height, width
    )
    filled_weights = filled_weights.reshape(
        conv.groups, form.vectors, lanes, conv.depth // form.depth, form.depth, height, width
    )
    pieces = []
    for group in filled_weights:
        # The same division as the loops make, so that each block is read from its first byte to its last.
        for first, block_count, size in tiling.blocks(form.vectors, form.tile.vectors):
            part = group[first : first + block_count * size].reshape(block_count, size * lanes, *group.shape[2:])
            pieces.append(order(np.ascontiguousarray(part.transpose(0, 2, 4, 5, 3, 1))).reshape(-1))
    return np.concatenate(pieces)


def store_weights(packed_weights: np.ndarray, cpu: Microarchitecture) -> np.ndarray:
    """Convert packed float32 weights to the build's type."""
    return (
        round_to_bfloat16(packed_weights) if cpu.weights == "bfloat16"
        else packed_weights.astype(cpu.weights, copy=False)
    )  # fmt: skip


def round_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Return bfloat16, which NumPy lacks: the upper half of float32, as uint16."""
    # Half a unit of the last kept bit rounds; a tie goes to the even number.
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
