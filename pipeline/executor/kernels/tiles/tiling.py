"""Tiling: division of a convolution from machine sizes alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from pipeline.executor.kernels.microarchitecture import LOAD_LATENCY, Microarchitecture
from pipeline.executor.kernels.tiles.conv_shape import ConvShape

FLOAT = 4
"""Bytes."""

# Cycles of the code around one tile; bytes of weights that arrive per cycle from the second-level cache; loads that
# start in a cycle.
_AROUND, _BYTES_PER_CYCLE, _LOADS = 12.0, 40.0, 2

# Bytes of a line of the first-level cache.
_LINE = 64


LONGEST_RUN = 32
"""Longest line in terms written out completely, where it is no multiple of a vector's lanes."""


@dataclass(frozen=True)
class RegisterTile:
    """Accumulators in registers: `rows` x `columns` pixels x `vectors` of channels."""

    rows: int
    columns: int
    vectors: int

    @property
    def pixels(self) -> int:
        """Pixels of the tile."""
        return self.rows * self.columns


def blocks(total: int, size: int, *, separate_last: bool = False) -> list[tuple[int, int, int]]:
    """Divide `total` vectors into blocks: (first vector, blocks, vectors per block).

    With `separate_last` the last block stands for itself.
    """
    full_blocks, remainder = divmod(total, size)
    # Its stores differ from those of the other blocks.
    if separate_last and not remainder and full_blocks > 1:
        return [(0, full_blocks - 1, size), ((full_blocks - 1) * size, 1, size)]
    divisions = [(0, full_blocks, size)] if full_blocks else []
    return [*divisions, (full_blocks * size, 1, remainder)] if remainder else divisions


def best(conv: ConvShape, cpu: Microarchitecture) -> RegisterTile:
    """Return the tile with the fewest estimated cycles."""
    # The last vector may be partial, but takes as long.
    vectors = -(-conv.group_outputs // cpu.lanes)
    # A vector of elements that meets one vector of weights at a time serves four products only: too few for the loads.
    fewest = min(2, vectors) if loads_vectors(conv, cpu) else 1
    tiles = (tile for tile in candidates(conv, cpu, vectors) if tile.vectors >= fewest)
    return min(tiles, key=lambda tile: _cycles(tile, conv, cpu, vectors))


def with_vectors(conv: ConvShape, cpu: Microarchitecture, vectors: int) -> RegisterTile:
    """Return the best tile with `vectors` vectors."""
    total = -(-conv.group_outputs // cpu.lanes)
    tiles = [tile for tile in candidates(conv, cpu, total) if tile.vectors == vectors]
    return min(tiles, key=lambda tile: _cycles(tile, conv, cpu, total))


def cycles(tile: RegisterTile, conv: ConvShape, cpu: Microarchitecture) -> float:
    """Estimate the cycles of one image with cached data."""
    return _cycles(tile, conv, cpu, -(-conv.group_outputs // cpu.lanes))


def candidates(conv: ConvShape, cpu: Microarchitecture, vectors: int) -> Iterator[RegisterTile]:
    """Yield the tiles within registers and result."""
    by_vectors = loads_vectors(conv, cpu)
    for size in range(1, min(4, vectors) + 1):
        # One register for each vector of weights, and one for the pixel they are multiplied with; where elements are
        # loaded a vector at a time, one for each pixel.
        spare = 0 if by_vectors and cpu.in_order else 1
        room = (cpu.registers - size - spare) // (size + by_vectors)
        for columns in range(1, min(room, conv.out_width) + 1):
            row_limit = min(room // columns, conv.out_height)
            for rows in range(1, row_limit + 1 if columns == conv.out_width else 2):
                yield RegisterTile(rows, columns, size)


def terms_ahead(tile: RegisterTile, registers: int, lanes: int) -> int:
    """Count the terms with weights in registers beside the sums."""
    return max(1, min(lanes, (registers - tile.pixels * (tile.vectors + 1)) // tile.vectors))


def loads_vectors(conv: ConvShape, cpu: Microarchitecture) -> bool:
    """Test if pixel elements are loaded as vectors."""
    return cpu.lane_products and has_vectors(conv, cpu.lanes)


def has_vectors(conv: ConvShape, lanes: int) -> bool:
    """Test if adjacent elements form vectors with few left over."""
    return conv.depth % lanes == 0 or conv.depth * conv.kernel[1] <= LONGEST_RUN


def _cycles(tile: RegisterTile, conv: ConvShape, cpu: Microarchitecture, vectors: int) -> float:
    full_tiles, remainder = divmod(conv.out_width, tile.columns)
    bands = -(-conv.out_height // tile.rows)
    widths = [(tile.columns, full_tiles), (remainder, 1)]
    return sum(
        bands * count * block_count * _tile_cycles(RegisterTile(tile.rows, columns, size), conv, cpu)
        for columns, count in widths
        if columns
        for _, block_count, size in blocks(vectors, tile.vectors)
    )


def _tile_cycles(tile: RegisterTile, conv: ConvShape, cpu: Microarchitecture) -> float:
    sums = tile.pixels * tile.vectors
    elements = cpu.lanes if loads_vectors(conv, cpu) else 1
    loads = tile.pixels / elements + tile.vectors
    l2_bytes = tile.vectors * cpu.lanes * cpu.item_bytes
    if _collisions(tile, conv, cpu.way_bytes, cpu.item_bytes) > cpu.l1_bytes // cpu.way_bytes:
        # Each pixel's line is gone before its next channel is asked for.
        l2_bytes += tile.pixels * _LINE
    # Beside the terms, each sum is set to zero and stored once, hence twice; then comes what is around a tile.
    # The scarcest resource sets the pace: multiply-adds, their latency if there are few sums, loads, or the cache.
    products, weights = max(sums / cpu.ports, cpu.latency), l2_bytes / _BYTES_PER_CYCLE
    term_cycles = max(products, loads / _LOADS, weights)
    if cpu.in_order:
        # Loads hide behind nothing, one after the other; what they stand behind has to be complete.
        ahead = terms_ahead(tile, cpu.registers, cpu.lanes) if elements > 1 else 1
        term_cycles = max(products + loads + max(0.0, cpu.latency - LOAD_LATENCY) / ahead, weights)
    return conv.terms * term_cycles + sums * 2 + _AROUND


@cache
def _collisions(tile: RegisterTile, conv: ConvShape, way_bytes: int, item_bytes: int) -> int:
    """Return the most tile pixels in one first-level cache set."""
    # Bytes from one pixel of a tile to the next, along both axes.
    step = conv.strides[1] * conv.channels * item_bytes
    line = conv.strides[0] * conv.width * conv.channels * item_bytes
    pixels = product(range(tile.rows), range(tile.columns))
    return max(Counter((dy * line + dx * step) % way_bytes // _LINE for dy, dx in pixels).values())


def channel_block(conv: ConvShape, tile: RegisterTile, cpu: Microarchitecture) -> int:
    """Return the input channels per pass, for cached tile data."""
    if conv.kernel == (1, 1):
        return conv.depth
    # Of one input channel.
    tile_bytes = conv.reach(0, tile.rows) * conv.reach(1, tile.columns) * cpu.item_bytes
    # A quarter of the cache, since weights pass through it as well, and neighbouring tiles share data.
    limit = max(cpu.lanes, cpu.l1_bytes // 4 // tile_bytes)
    step = cpu.lanes if cpu.lane_products and conv.depth % cpu.lanes == 0 else 1
    divisors = [size for size in range(step, conv.depth + 1, step) if conv.depth % size == 0 and size <= limit]
    # A width without a good divisor is not worth a loop per few channels.
    return divisors[-1] if divisors[-1] >= min(limit, conv.depth) // 4 else conv.depth


def weights_stay(conv: ConvShape, cpu: Microarchitecture) -> bool:
    """Test if weights and data fit the second-level cache."""
    # A quarter, since a chunk's data and results want to stay there too.
    return conv.terms * conv.group_outputs * cpu.item_bytes <= cpu.l2_bytes // 4


def chunk_rows(conv: ConvShape, tile: RegisterTile, cpu: Microarchitecture, tasks: int) -> int:
    """Return the output rows per chunk of all output channels."""
    stay = weights_stay(conv, cpu)
    # Weights that stay in the cache may be read again for each chunk; others are to be read as seldom as possible.
    room = cpu.l2_bytes // (4 if stay else 2)
    row = conv.width * conv.depth * cpu.item_bytes
    fit = conv.out_height
    # Elements of another size are copied, too.
    if conv.padded or not stay or cpu.item_bytes != FLOAT:
        # Rows of data that fit, less what the kernel reaches beyond them, make so many rows of results.
        fit = max(1, (room // row - conv.reach(0, 1)) // conv.strides[0] + 1)
    fit = min(fit, -(-conv.out_height // tasks), conv.out_height)
    # Whole tiles: a smaller one has too few sums under way.
    fit = max(fit // tile.rows, 1) * tile.rows
    chunks = -(-conv.out_height // fit)
    # As many chunks, but of one size, so that no core waits for the one with the largest.
    even = -(-conv.out_height // chunks)
    return min(-(-even // tile.rows) * tile.rows, conv.out_height)
