"""Tiles follow from the sizes of the cpu and of the window."""

from __future__ import annotations

from itertools import product

import pytest

from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import tiling
from pipeline.executor.kernels.tiles.conv_shape import ConvShape

KIB = 1024


def pointwise(channels: int, strides: int = 1) -> ConvShape:
    """Return a window of one pixel on images of 14 x 14 pixels; pointwise ones in one column."""
    size = 14 // strides
    window = ConvShape(1, 14, 14, channels, size, size, 256, (1, 1), (strides, strides), (1, 1), (0, 0, 0, 0))
    return window.flatten() if strides == 1 else window


def in_one_set(window: ConvShape, tile: tiling.RegisterTile) -> int:
    """Return how many of the tile's pixels have lines in the same set of a cache with ways of 4 KiB."""
    step = 4 * window.channels
    offsets = [
        step * (down * window.strides[0] * window.width + right * window.strides[1])
        for down, right in product(range(tile.rows), range(tile.columns))
    ]
    sets = [place % (4 * KIB) // 64 for place in offsets]
    return max(map(sets.count, sets))


@pytest.mark.parametrize("lanes", [16, 8, 4])
@pytest.mark.parametrize("l1", [32 * KIB, 48 * KIB])
@pytest.mark.parametrize(("channels", "strides"), [(256, 1), (1024, 1), (2048, 1), (512, 2), (1000, 1), (1056, 1)])
def test_the_pixels_of_a_tile_stay_in_the_cache(channels: int, strides: int, l1: int, lanes: int) -> None:
    window = pointwise(channels, strides)
    tile = tiling.best(window, Microarchitecture(lanes, 32 if lanes == 16 else 16, l1, KIB * KIB))
    assert in_one_set(window, tile) <= l1 // (4 * KIB)


def test_channels_that_spread_over_the_cache_have_the_largest_tile() -> None:
    cpu = Microarchitecture(16, 32, 32 * KIB, KIB * KIB)
    spread, crowded = (tiling.best(pointwise(channels), cpu) for channels in (1000, 1024))
    assert (spread.pixels, spread.vectors) == (14, 2)
    assert crowded.pixels <= 8
    # Enough sums in registers to hide how long each addition takes.
    assert crowded.pixels * crowded.vectors >= 16
