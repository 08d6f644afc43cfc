"""Values of tiling: a layer's shape, a tiling, a tile, and their limits."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from boards.vta.compiler.layers import Convolution
from boards.vta.compiler.packing import blocks
from boards.vta.isa.config import Config

# More would make tiles smaller, and with them the share of the time that multiplies.
SLOTS = 2
"""Slots per scratchpad: one is filled or emptied while the other is used."""

# As strict as the simulator; see `HAZARD_DISTANCE` there.
DISTANCE = 8
"""Least distance of two micro-ops on the same element of ACC."""

LISTS = 4
"""Lists of micro-ops that fit UOP at once."""


@dataclass(frozen=True)
class BlockedShape:
    """Extents of a convolution, its channels in blocks.

    Attributes
    ----------
    inputs, outputs : tuple of int
        Blocks of channels, height, width.
    kernel, strides : tuple of int
        Down and across.
    """

    inputs: tuple[int, int, int]
    outputs: tuple[int, int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]

    @classmethod
    def of(cls, config: Config, layer: Convolution) -> BlockedShape:
        """Return the extents of a layer."""
        channels, height, width = layer.inputs
        results, result_height, result_width = layer.outputs
        inputs, outputs = blocks(config, channels), blocks(config, results)
        return cls((inputs, height, width), (outputs, result_height, result_width), layer.kernel, layer.strides)


@dataclass(frozen=True)
class Tiling:
    """Extents of a tile; tiles at the far ends are smaller.

    Attributes
    ----------
    height, width : int
        Size of its results.
    outputs, inputs : int
        Blocks of channels.
    outputs_first : bool
        True if all positions of one block of results come before the next block; False for the other way round.
    """

    height: int
    width: int
    outputs: int
    inputs: int
    outputs_first: bool


@dataclass(frozen=True)
class ReservedElements:
    """Elements at the ends of scratchpads, reserved from tiles."""

    acc: int = 0
    inp: int = 0
    wgt: int = 0


@dataclass(frozen=True)
class OutputTile:
    """Some results.

    Attributes
    ----------
    outputs, rows, columns : range
        Blocks of channels, and positions.
    """

    outputs: range
    rows: range
    columns: range

    @property
    def points(self) -> int:
        """Elements of one block of channels."""
        return len(self.rows) * len(self.columns)

    @property
    def count(self) -> int:
        """Elements of all."""
        return len(self.outputs) * self.points


def field(shape: BlockedShape, tile: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of the input under a tile of results."""
    height, width = (
        (extent - 1) * stride + size for extent, stride, size in zip(tile, shape.strides, shape.kernel, strict=True)
    )
    return height, width


class ScratchpadSlots:
    """Equal parts of a scratchpad, with their contents."""

    def __init__(self, depth: int, count: int) -> None:
        # From the one that was not used for the longest time to the latest.
        self._contents: dict[int, Hashable] = dict.fromkeys(range(0, depth // count * count, depth // count))

    def find(self, content: Hashable) -> tuple[int, bool]:
        """Return the slot for `content` and if it is loaded."""
        start = next((start for start, slot_content in self._contents.items() if slot_content == content), None)
        is_loaded = start is not None
        # Not by truth: the first slot begins at 0.
        slot = next(iter(self._contents)) if start is None else start
        del self._contents[slot]
        # At the end again: dictionaries keep the order of insertion.
        self._contents[slot] = content
        return slot, is_loaded
