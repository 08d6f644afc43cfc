"""Output channel blocks: adjacent vectors of one tile, and their starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pipeline.executor.kernels.tiles import tiling
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.tvm import statements as tir


@dataclass(frozen=True)
class TileOrigin:
    """Indices and offsets of a tile's start, as expressions."""

    image: Any
    group: Any
    row: Any
    base: Any
    weights: Any
    channel: Any


def chunk_tasks(conv: ConvShape, rows: int, chunks: int, tasks: int, body: Callable[[Any, Any, Any], list[Any]]) -> Any:
    """Return the loop over images, groups and chunks of rows, shared out to the cores in `tasks` pieces.

    The last of the chunks of an image may overlap. `body` makes a chunk's statements from image, group and first row.
    """

    def task(index: Any) -> Any:
        chunk, outer_index = index % chunks, index // chunks
        first = tir.piece_start(chunk, rows, conv.out_height)
        group, image = outer_index % conv.groups, outer_index // conv.groups
        return tir.sequence(tir.bound("row", first, lambda row: body(image, group, row)))

    return tir.loop("task", conv.batch * conv.groups * chunks, task, tir.parallel(tasks))


ChannelBlock = Callable[[Any], tuple[TileOrigin, int, bool]]
"""Block of channels by index: its origin, its vectors, and whether the last vector is partial."""


def divide(form: PackedLayout, origin: TileOrigin, first_weight: Any) -> Iterator[tuple[int, ChannelBlock]]:
    """Yield the block counts by size, with their blocks.

    All tiles have the `origin`; the packed weights begin at `first_weight` in their buffer.
    """
    # The block with the last vector is by itself, as fewer of its lanes are stored.
    has_partial_vector = bool(form.conv.group_outputs % form.lanes)
    vector_weights = form.lanes * form.conv.terms
    for first, count, size in tiling.blocks(form.vectors, form.tile.vectors, separate_last=has_partial_vector):

        def block(index: Any, first: int = first, count: int = count, size: int = size) -> tuple[TileOrigin, int, bool]:
            vector = index * size + first
            weights = origin.group * (form.vectors * vector_weights) + vector * vector_weights + first_weight
            block_origin = replace(origin, weights=weights, channel=vector * form.lanes)
            return block_origin, size, has_partial_vector and first + count * size == form.vectors

        yield count, block
