"""Schedule of an addition: inputs scaled into ACC by diagonal matrices."""

from __future__ import annotations

import numpy as np

from boards.vta.compiler.builder import ProgramBuilder, span
from boards.vta.compiler.convolution import cut_extent
from boards.vta.compiler.epilogue import Epilogue
from boards.vta.compiler.layers import Addition, Requantization
from boards.vta.compiler.packing import blocks
from boards.vta.compiler.tiles import SLOTS, OutputTile, ScratchpadSlots
from boards.vta.isa.config import MemoryType
from boards.vta.isa.encoding import pack_uops
from boards.vta.isa.instructions import Gemm
from boards.vta.simulator.accesses import Access

_INPUTS = 2


def append_addition(builder: ProgramBuilder, layer: Addition, sources: tuple[int, int], target: int) -> None:
    """Append a layer; addresses of packed tensors are in bytes."""
    config = builder.config
    epilogue = Epilogue(builder, _requantization(layer, config.block))
    _load_factors(builder, layer)
    acc = ScratchpadSlots(config.depth(MemoryType.ACC) - epilogue.reservation.acc, SLOTS)
    # Both inputs of a tile are in INP at once.
    inp = ScratchpadSlots(config.depth(MemoryType.INP) - epilogue.reservation.inp, SLOTS * _INPUTS)
    size = (config.depth(MemoryType.INP) - epilogue.reservation.inp) // (SLOTS * _INPUTS)
    count = blocks(config, layer.shape[0]) * layer.shape[1] * layer.shape[2]
    for part in cut_extent(count, min(size, (config.depth(MemoryType.ACC) - epilogue.reservation.acc) // SLOTS)):
        # Positions do not matter to a sum: the whole tensor is one long row.
        tile = OutputTile(range(1), range(1), part)
        start, _ = acc.find(part)
        epilogue.begin(tile, start)
        for number, source in enumerate(sources):
            inp_start, _ = inp.find((number, part))
            builder.load(
                MemoryType.INP, inp_start, builder.element(MemoryType.INP, source) + part.start, (1, len(part))
            )
            _add(builder, tile, (start, inp_start, number))
        epilogue.finish(tile, start)
        builder.store(start, builder.element(MemoryType.OUT, target) + part.start, (1, len(part)))


def _requantization(layer: Addition, block: int) -> Requantization:
    # One block stands for all: nothing differs between channels.
    shift = np.full(block, layer.shift, np.int8)
    return Requantization.of(np.zeros(block, np.int32), shift, layer.low, layer.high, even=layer.even)


def _load_factors(builder: ProgramBuilder, layer: Addition) -> None:
    identity = np.eye(builder.config.block, dtype=np.int8)
    # Two to the power of a shift, which ALU would take two cycles more for.
    factors = np.stack([identity << layer.left_shift, identity << layer.right_shift])
    builder.load(MemoryType.WGT, 0, builder.element(MemoryType.WGT, builder.constant(factors)), (1, _INPUTS))


def _add(builder: ProgramBuilder, tile: OutputTile, starts: tuple[int, int, int]) -> None:
    acc, inp, wgt = starts
    begin = builder.uops(pack_uops(builder.config, [acc], inp, wgt))
    gemm = Gemm(uop_bgn=begin, uop_end=begin + 1, iter_in=tile.count, dst_factor_in=1, src_factor_in=1)
    builder.compute(
        gemm,
        Access("INP", span(inp, tile.count), writes=False),
        Access("WGT", span(wgt, 1), writes=False),
        Access("ACC", span(acc, tile.count), writes=True),
    )
