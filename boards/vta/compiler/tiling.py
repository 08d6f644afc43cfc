"""Tiling: the fastest estimated division of a convolution into scratchpad tiles."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from boards.vta.compiler.tiles import DISTANCE, LISTS, SLOTS, BlockedShape, ReservedElements, Tiling, field
from boards.vta.isa.config import UOP_BYTES, Config, MemoryType
from boards.vta.simulator.timing import BURST, STARTING
from pipeline.errors import BuildError


@lru_cache(maxsize=256)
def choose_tiling(config: Config, shape: BlockedShape, reservation: ReservedElements) -> Tiling:
    """Return the tiling with the least estimated time; `BuildError` if not even the smallest tile fits."""
    candidates = list(_candidates(config, shape, reservation))
    if not candidates:
        raise BuildError(f"a kernel of {shape.kernel} is too large for the scratchpads of {config.name}")
    return min(candidates, key=lambda tiling: _cycles(config, shape, tiling))


def _candidates(config: Config, shape: BlockedShape, reservation: ReservedElements) -> Iterator[Tiling]:
    taps = shape.kernel[0] * shape.kernel[1]
    acc = (config.depth(MemoryType.ACC) - reservation.acc) // SLOTS
    inp = (config.depth(MemoryType.INP) - reservation.inp) // SLOTS
    wgt = (config.depth(MemoryType.WGT) - reservation.wgt) // SLOTS
    # All even divisions: a few thousand, each of which takes microseconds, and `choose_tiling` remembers the best.
    for outputs, height, width in product(*map(_parts, shape.outputs)):
        rows, columns = field(shape, (height, width))
        inputs = min(shape.inputs[0], inp // (rows * columns), wgt // (taps * outputs))
        # A tile's sums stay in ACC until all input channels are added.
        if not inputs or height * width * outputs > acc:
            continue
        # Even steps: a short last one would cost its instructions all the same.
        inputs_per_step = -(-shape.inputs[0] // -(-shape.inputs[0] // inputs))
        for outputs_first in (False, True):
            tiling = Tiling(height, width, outputs, inputs_per_step, outputs_first)
            if _words(shape, tiling) <= config.depth(MemoryType.UOP) // LISTS:
                yield tiling


def _parts(extent: int) -> list[int]:
    """Return the largest size of n even parts, for every n."""
    return sorted({-(-extent // number) for number in range(1, extent + 1)})


def _cycles(config: Config, shape: BlockedShape, tiling: Tiling) -> float:
    """Estimate the cycles: the slower of compute and load, plus serial parts."""
    # Ceilings of divisions: tiles at the far ends are smaller, but cost an instruction as well.
    steps = -(-shape.inputs[0] // tiling.inputs)
    outputs = -(-shape.outputs[0] // tiling.outputs)
    positions = -(-shape.outputs[1] // tiling.height) * -(-shape.outputs[2] // tiling.width)
    inp, wgt = _input_cycles(config, shape, tiling), _weight_cycles(config, shape, tiling)
    total_steps = steps * outputs * positions
    # The innermost operand changes with each tile; the other one stays while its steps fit the slots.
    if tiling.outputs_first:
        input_loads = total_steps if steps * positions > SLOTS else steps * positions
        weight_loads = _once(steps, outputs, total_steps)
    else:
        input_loads = _once(steps, positions, total_steps)
        weight_loads = total_steps if steps * outputs > SLOTS else steps * outputs
    compute = total_steps * STARTING * _instructions(shape, tiling) + _epilogues(shape, outputs * positions)
    uops = _uop_cycles(config, shape, tiling, total_steps)
    # One micro-op per cycle (`II = 1` of GEMM in vta.cc): no tiling needs fewer.
    useful = (
        shape.outputs[0] * shape.outputs[1] * shape.outputs[2] * shape.inputs[0] * shape.kernel[0] * shape.kernel[1]
    )
    # Nothing overlaps with the first loads, nor with the last tile's epilogue and store.
    last = 8 * tiling.height * tiling.width * tiling.outputs + BURST * tiling.height * tiling.outputs
    return max(useful + compute + uops, inp * input_loads + wgt * weight_loads) + inp + wgt + last


def _once(steps: int, tiles: int, total_steps: int) -> int:
    """Count the loads of reusable content while enough slots exist."""
    return steps * tiles if steps <= SLOTS else total_steps


def _epilogues(shape: BlockedShape, tiles: int) -> int:
    """Estimate the cycles per tile for reset, bias, shift and clipping."""
    # Five instructions; four of them by ALU, with two cycles for each element.
    return tiles * 5 * STARTING + 8 * shape.outputs[0] * shape.outputs[1] * shape.outputs[2]


def _instructions(shape: BlockedShape, tiling: Tiling) -> int:
    """Count the GEMM instructions of a step, more under hazards."""
    if tiling.height * tiling.outputs >= DISTANCE:
        return 1
    taps = shape.kernel[0] * shape.kernel[1]
    return tiling.inputs * (1 if tiling.height * tiling.width * tiling.outputs >= DISTANCE else taps)


def _words(shape: BlockedShape, tiling: Tiling) -> int:
    """Return the micro-ops of one list."""
    taps = shape.kernel[0] * shape.kernel[1]
    rows = tiling.height * tiling.outputs
    return taps * rows if rows >= DISTANCE else taps * rows * tiling.width


def _uop_cycles(config: Config, shape: BlockedShape, tiling: Tiling, total_steps: int) -> float:
    """Estimate the cycles for loading micro-ops, repeated where they do not fit."""
    words = _words(shape, tiling)
    # Micro-ops hold addresses, which differ with the slots of ACC, INP and WGT.
    lists = SLOTS**3 * (1 if tiling.height * tiling.outputs >= DISTANCE else tiling.inputs)
    if lists * words <= config.depth(MemoryType.UOP):
        loads = min(lists, total_steps)
    else:
        loads = total_steps * _instructions(shape, tiling)
    return loads * (STARTING + BURST + words * UOP_BYTES / config.board.bus_bytes)


def _input_cycles(config: Config, shape: BlockedShape, tiling: Tiling) -> float:
    rows, columns = field(shape, (tiling.height, tiling.width))
    # One burst for each row, as in `boards.vta.simulator.timing`.
    beats = columns * config.element_bytes(MemoryType.INP) / config.board.bus_bytes
    return tiling.inputs * (STARTING + rows * (BURST + beats))


def _weight_cycles(config: Config, shape: BlockedShape, tiling: Tiling) -> float:
    taps = shape.kernel[0] * shape.kernel[1]
    beats = tiling.inputs * taps * config.element_bytes(MemoryType.WGT) / config.board.bus_bytes
    return STARTING + tiling.outputs * (BURST + beats)
