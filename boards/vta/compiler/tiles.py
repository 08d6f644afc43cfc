"""The values of tiling: a layer's shape, a tiling, a tile; and what limits them."""

from __future__ import annotations

from dataclasses import dataclass

from boards.vta.compiler.layers import Convolution
from boards.vta.compiler.packing import blocks
from boards.vta.config import Config

SLOTS = 2
"""Of each scratchpad, so that one is filled or emptied while the other is used."""

DISTANCE = 8
"""Micro-ops between two that use the same element of ACC, at least."""

LISTS = 4
"""Lists of micro-ops that fit UOP at once."""


@dataclass(frozen=True)
class Shape:
    """What of a convolution the tiling depends on; channels are in blocks.

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
    def of(cls, config: Config, layer: Convolution) -> Shape:
        """Return that of a layer."""
        channels, height, width = layer.inputs
        results, down, across = layer.outputs
        inputs, outputs = blocks(config, channels), blocks(config, results)
        return cls((inputs, height, width), (outputs, down, across), layer.kernel, layer.strides)


@dataclass(frozen=True)
class Tiling:
    """The extents of a tile; those at the far ends are smaller.

    Attributes
    ----------
    height, width : int
        Of its results.
    outputs, inputs : int
        Blocks of channels.
    outputs_first : bool
        Whether all positions of one block of results come before the next block, or the other way round.
    """

    height: int
    width: int
    outputs: int
    inputs: int
    outputs_first: bool


@dataclass(frozen=True)
class Reserved:
    """Elements at the ends of scratchpads that tiles must leave alone."""

    acc: int = 0
    inp: int = 0
    wgt: int = 0


@dataclass(frozen=True)
class Tile:
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


def field(shape: Shape, tile: tuple[int, int]) -> tuple[int, int]:
    """Return how many rows and columns of the input a tile of results needs."""
    height, width = (
        (extent - 1) * stride + size for extent, stride, size in zip(tile, shape.strides, shape.kernel, strict=True)
    )
    return height, width
