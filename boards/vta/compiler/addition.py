"""The schedule of an addition: both inputs come into ACC as products with a multiple of the identity matrix."""

from __future__ import annotations

import numpy as np

from boards.vta.accesses import Access
from boards.vta.compiler.builder import Builder, span
from boards.vta.compiler.epilogue import Epilogue
from boards.vta.compiler.layers import Addition, Ending
from boards.vta.compiler.packing import blocks
from boards.vta.compiler.schedule import cut
from boards.vta.compiler.slots import Slots
from boards.vta.compiler.tiles import SLOTS, Tile
from boards.vta.config import Memory
from boards.vta.encoding import pack_uops
from boards.vta.instructions import Gemm

_INPUTS = 2


def addition(builder: Builder, layer: Addition, sources: tuple[int, int], target: int) -> None:
    """Append a layer.

    Parameters
    ----------
    builder : Builder
        Where to.
    layer : Addition
        What to compute.
    sources : tuple of int
        Byte addresses of the two packed inputs.
    target : int
        Byte address of the packed result.
    """
    config = builder.config
    epilogue = Epilogue(builder, _ending(layer, config.block))
    _load_factors(builder, layer)
    acc = Slots(config.depth(Memory.ACC) - epilogue.reserved.acc, SLOTS)
    inp = Slots(config.depth(Memory.INP) - epilogue.reserved.inp, SLOTS * _INPUTS)
    size = (config.depth(Memory.INP) - epilogue.reserved.inp) // (SLOTS * _INPUTS)
    count = blocks(config, layer.shape[0]) * layer.shape[1] * layer.shape[2]
    for part in cut(count, min(size, (config.depth(Memory.ACC) - epilogue.reserved.acc) // SLOTS)):
        tile = Tile(range(1), range(1), part)
        start, _ = acc.find(part)
        epilogue.begin(tile, start)
        for number, source in enumerate(sources):
            place, _ = inp.find((number, part))
            builder.load(Memory.INP, place, builder.element(Memory.INP, source) + part.start, (1, len(part)))
            _add(builder, tile, (start, place, number))
        epilogue.finish(tile, start)
        builder.store(start, builder.element(Memory.OUT, target) + part.start, (1, len(part)))


def _ending(layer: Addition, block: int) -> Ending:
    shift = np.full(block, layer.shift, np.int8)
    return Ending.of(np.zeros(block, np.int32), shift, layer.low, layer.high, even=layer.even)


def _load_factors(builder: Builder, layer: Addition) -> None:
    identity = np.eye(builder.config.block, dtype=np.int8)
    factors = np.stack([identity << layer.left_shift, identity << layer.right_shift])
    builder.load(Memory.WGT, 0, builder.element(Memory.WGT, builder.constant(factors)), (1, _INPUTS))


def _add(builder: Builder, tile: Tile, places: tuple[int, int, int]) -> None:
    acc, inp, wgt = places
    begin = builder.uops(pack_uops(builder.config, [acc], inp, wgt))
    gemm = Gemm(uop_bgn=begin, uop_end=begin + 1, iter_in=tile.count, dst_factor_in=1, src_factor_in=1)
    builder.compute(
        gemm,
        Access("INP", span(inp, tile.count), writes=False),
        Access("WGT", span(wgt, 1), writes=False),
        Access("ACC", span(acc, tile.count), writes=True),
    )
