"""Tiles: how a convolution is divided, from the sizes of the machine alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from pipeline.executor.schedules.machine import Machine

FLOAT = 4
"""Bytes."""

# Cycles: of a fused multiply-add until its result can be added to again, at two starts per cycle; of the code
# around one tile; bytes of weights that arrive per cycle from the second-level cache.
_LATENCY, _AROUND, _BYTES_PER_CYCLE = 4.0, 12.0, 40.0
_PORTS = 2

# Bytes of a line of the first-level cache, and of one of its ways: addresses so far apart share a set.
_LINE, _WAY = 64, 4096


@dataclass(frozen=True)
class Window:
    """Shape of one convolution (or of one window of a pooling) in NHWC.

    Attributes
    ----------
    batch, height, width, channels : int
        Of the data.
    out_height, out_width, out_channels : int
        Of the result.
    kernel, strides, dilation : tuple of two int
    pads : tuple of four int
        Top, left, bottom, right.
    groups : int
    """

    batch: int
    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    out_channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[int, int, int, int]
    groups: int = 1

    @property
    def depth(self) -> int:
        """Input channels of one group."""
        return self.channels // self.groups

    @property
    def makes(self) -> int:
        """Output channels of one group."""
        return self.out_channels // self.groups

    @property
    def made(self) -> tuple[int, int, int, int]:
        """Shape of the result."""
        return self.batch, self.out_height, self.out_width, self.out_channels

    @property
    def terms(self) -> int:
        """Products in the sum of one output element."""
        return self.kernel[0] * self.kernel[1] * self.depth

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return 2 * self.batch * self.out_height * self.out_width * self.out_channels * self.terms

    @property
    def padded(self) -> bool:
        """Whether the window leaves the data."""
        return any(self.pads) or any(
            self.reach(axis, outputs) > inputs
            for axis, outputs, inputs in ((0, self.out_height, self.height), (1, self.out_width, self.width))
        )

    @property
    def pointwise(self) -> bool:
        """Whether each pixel is computed from the same pixel."""
        return self.kernel == (1, 1) and self.strides == (1, 1) and not any(self.pads)

    def flattened(self) -> Window:
        """Return a pointwise window with all pixels of the batch in one column."""
        pixels = self.batch * self.height * self.width
        return replace(self, batch=1, height=pixels, out_height=pixels, width=1, out_width=1)

    def reach(self, axis: int, outputs: int) -> int:
        """Return how many inputs along an axis `outputs` neighbouring outputs read."""
        return (outputs - 1) * self.strides[axis] + (self.kernel[axis] - 1) * self.dilation[axis] + 1


@dataclass(frozen=True)
class Tile:
    """Accumulators kept in registers: `rows` x `columns` pixels, `vectors` vectors of channels each."""

    rows: int
    columns: int
    vectors: int

    @property
    def pixels(self) -> int:
        """Pixels of the tile."""
        return self.rows * self.columns


def blocks(total: int, size: int, *, alone: bool = False) -> list[tuple[int, int, int]]:
    """Divide `total` vectors into blocks: (first vector, how many blocks, vectors in each).

    With `alone` the last block stands for itself.
    """
    whole, rest = divmod(total, size)
    if alone and not rest and whole > 1:
        return [(0, whole - 1, size), ((whole - 1) * size, 1, size)]
    found = [(0, whole, size)] if whole else []
    return [*found, (whole * size, 1, rest)] if rest else found


def best(window: Window, machine: Machine) -> Tile:
    """Return the tile with the fewest estimated cycles."""
    vectors = -(-window.makes // machine.lanes)
    return min(candidates(window, machine, vectors), key=lambda tile: _cycles(tile, window, machine, vectors))


def with_vectors(window: Window, machine: Machine, vectors: int) -> Tile:
    """Return the best tile among those with so many vectors."""
    total = -(-window.makes // machine.lanes)
    fitting = [tile for tile in candidates(window, machine, total) if tile.vectors == vectors]
    return min(fitting, key=lambda tile: _cycles(tile, window, machine, total))


def cycles(tile: Tile, window: Window, machine: Machine) -> float:
    """Return the estimated cycles of one image, data and weights at hand."""
    return _cycles(tile, window, machine, -(-window.makes // machine.lanes))


def candidates(window: Window, machine: Machine, vectors: int) -> Iterator[Tile]:
    """Return the tiles that fit in the registers and the result, which has so many vectors of channels."""
    for size in range(1, min(4, vectors) + 1):
        # One register for each vector of weights, and one for the pixel they are multiplied with.
        room = (machine.registers - size - 1) // size
        for columns in range(1, min(room, window.out_width) + 1):
            most = min(room // columns, window.out_height)
            for rows in range(1, most + 1 if columns == window.out_width else 2):
                yield Tile(rows, columns, size)


def _cycles(tile: Tile, window: Window, machine: Machine, vectors: int) -> float:
    whole, rest = divmod(window.out_width, tile.columns)
    bands = -(-window.out_height // tile.rows)
    widths = [(tile.columns, whole), (rest, 1)]
    return sum(
        bands * count * many * _one(Tile(tile.rows, columns, size), window, machine)
        for columns, count in widths
        if columns
        for _, many, size in blocks(vectors, tile.vectors)
    )


def _one(tile: Tile, window: Window, machine: Machine) -> float:
    sums = tile.pixels * tile.vectors
    loads = (tile.pixels + tile.vectors) / _PORTS
    far = tile.vectors * machine.lanes * FLOAT
    if _collisions(tile, window) > machine.l1_bytes // _WAY:
        # Each pixel's line is gone before its next channel is asked for.
        far += tile.pixels * _LINE
    return window.terms * max(sums / _PORTS, _LATENCY, loads, far / _BYTES_PER_CYCLE) + sums * 2 + _AROUND


@cache
def _collisions(tile: Tile, window: Window) -> int:
    """Return how many of a tile's pixels lie in the same set of the first-level cache, at most."""
    step = window.strides[1] * window.channels * FLOAT
    line = window.strides[0] * window.width * window.channels * FLOAT
    places = product(range(tile.rows), range(tile.columns))
    return max(Counter((down * line + right * step) % _WAY // _LINE for down, right in places).values())


def channel_block(window: Window, tile: Tile, machine: Machine) -> int:
    """Return how many input channels are summed up before the next ones, so that a tile's data stay close."""
    if window.kernel == (1, 1):
        return window.depth
    seen = window.reach(0, tile.rows) * window.reach(1, tile.columns) * FLOAT
    limit = max(machine.lanes, machine.l1_bytes // 4 // seen)
    fitting = [size for size in range(1, window.depth + 1) if window.depth % size == 0 and size <= limit]
    # A width without a good divisor is not worth a loop per few channels.
    return fitting[-1] if fitting[-1] >= min(limit, window.depth) // 4 else window.depth


def weights_stay(window: Window, machine: Machine) -> bool:
    """Whether all weights fit in the second-level cache beside the data."""
    return window.terms * window.makes * FLOAT <= machine.l2_bytes // 4


def chunk_rows(window: Window, tile: Tile, machine: Machine, tasks: int) -> int:
    """Return how many output rows are computed, for all output channels, before the next rows."""
    stay = weights_stay(window, machine)
    # Weights that stay in the cache may be read again for each chunk; others are to be read as seldom as possible.
    room = machine.l2_bytes // (4 if stay else 2)
    row = window.width * window.depth * FLOAT
    fit = window.out_height
    if window.padded or not stay:
        fit = max(1, (room // row - window.reach(0, 1)) // window.strides[0] + 1)
    fit = min(fit, -(-window.out_height // tasks), window.out_height)
    fit = max(fit // tile.rows, 1) * tile.rows
    chunks = -(-window.out_height // fit)
    even = -(-window.out_height // chunks)
    return min(-(-even // tile.rows) * tile.rows, window.out_height)
