"""How a convolution is divided so that its pieces fit the scratchpads, by a model of the time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from boards.vta.compiler.tiles import DISTANCE, LISTS, SLOTS, Reserved, Shape, Tiling, field
from boards.vta.config import UOP_BYTES, Config, Memory
from boards.vta.timing import BURST, STARTING
from pipeline.errors import BuildError


@lru_cache(maxsize=256)
def best(config: Config, shape: Shape, reserved: Reserved) -> Tiling:
    """Return the tiling with the least estimated time.

    Parameters
    ----------
    config : Config
        The accelerator.
    shape : Shape
        The layer.
    reserved : Reserved
        What the scratchpads hold besides.

    Raises
    ------
    BuildError
        If not even the smallest tile fits.
    """
    found = list(_candidates(config, shape, reserved))
    if not found:
        raise BuildError(f"a kernel of {shape.kernel} is too large for the scratchpads of {config.name}")
    return min(found, key=lambda tiling: _cycles(config, shape, tiling))


def _candidates(config: Config, shape: Shape, reserved: Reserved) -> Iterator[Tiling]:
    taps = shape.kernel[0] * shape.kernel[1]
    acc = (config.depth(Memory.ACC) - reserved.acc) // SLOTS
    inp = (config.depth(Memory.INP) - reserved.inp) // SLOTS
    wgt = (config.depth(Memory.WGT) - reserved.wgt) // SLOTS
    for outputs, height, width in product(*map(_parts, shape.outputs)):
        rows, columns = field(shape, (height, width))
        inputs = min(shape.inputs[0], inp // (rows * columns), wgt // (taps * outputs))
        if not inputs or height * width * outputs > acc:
            continue
        even = -(-shape.inputs[0] // -(-shape.inputs[0] // inputs))
        for outputs_first in (False, True):
            tiling = Tiling(height, width, outputs, even, outputs_first)
            if _words(shape, tiling) <= config.depth(Memory.UOP) // LISTS:
                yield tiling


def _parts(extent: int) -> list[int]:
    """Return the sizes of the largest of n even parts, for every n."""
    return sorted({-(-extent // number) for number in range(1, extent + 1)})


def _cycles(config: Config, shape: Shape, tiling: Tiling) -> float:
    """Return the estimated time: of the slower of compute and load, and of what nothing overlaps."""
    steps = -(-shape.inputs[0] // tiling.inputs)
    outputs = -(-shape.outputs[0] // tiling.outputs)
    places = -(-shape.outputs[1] // tiling.height) * -(-shape.outputs[2] // tiling.width)
    inp, wgt = _input_cycles(config, shape, tiling), _weight_cycles(config, shape, tiling)
    every = steps * outputs * places
    if tiling.outputs_first:
        loads = (inp * (every if steps * places > SLOTS else steps * places), wgt * _once(steps, outputs, every))
    else:
        loads = (inp * _once(steps, places, every), wgt * (every if steps * outputs > SLOTS else steps * outputs))
    compute = every * STARTING * _instructions(shape, tiling) + _epilogues(shape, outputs * places)
    uops = _uop_cycles(config, shape, tiling, every)
    useful = (
        shape.outputs[0] * shape.outputs[1] * shape.outputs[2] * shape.inputs[0] * shape.kernel[0] * shape.kernel[1]
    )
    last = 8 * tiling.height * tiling.width * tiling.outputs + BURST * tiling.height * tiling.outputs
    return max(useful + compute + uops, sum(loads)) + inp + wgt + last


def _once(steps: int, tiles: int, every: int) -> int:
    """Return how often something is loaded that stays the same for a while, if its steps fit the slots."""
    return steps * tiles if steps <= SLOTS else every


def _epilogues(shape: Shape, tiles: int) -> int:
    """Return the time for what is done once per tile: to reset, add the bias, shift and clip twice."""
    return tiles * 5 * STARTING + 8 * shape.outputs[0] * shape.outputs[1] * shape.outputs[2]


def _instructions(shape: Shape, tiling: Tiling) -> int:
    """Return the GEMM instructions of one step; many where hazards forbid to have the whole sum in one."""
    if tiling.height * tiling.outputs >= DISTANCE:
        return 1
    taps = shape.kernel[0] * shape.kernel[1]
    return tiling.inputs * (1 if tiling.height * tiling.width * tiling.outputs >= DISTANCE else taps)


def _words(shape: Shape, tiling: Tiling) -> int:
    """Return the micro-ops of one list."""
    taps = shape.kernel[0] * shape.kernel[1]
    rows = tiling.height * tiling.outputs
    return taps * rows if rows >= DISTANCE else taps * rows * tiling.width


def _uop_cycles(config: Config, shape: Shape, tiling: Tiling, every: int) -> float:
    """Return the time to load micro-ops: a list for each set of slots, and again and again if they do not fit."""
    words = _words(shape, tiling)
    lists = SLOTS**3 * (1 if tiling.height * tiling.outputs >= DISTANCE else tiling.inputs)
    loads = min(lists, every) if lists * words <= config.depth(Memory.UOP) else every * _instructions(shape, tiling)
    return loads * (STARTING + BURST + words * UOP_BYTES / config.board.bus_bytes)


def _input_cycles(config: Config, shape: Shape, tiling: Tiling) -> float:
    rows, columns = field(shape, (tiling.height, tiling.width))
    beats = columns * config.element_bytes(Memory.INP) / config.board.bus_bytes
    return tiling.inputs * (STARTING + rows * (BURST + beats))


def _weight_cycles(config: Config, shape: Shape, tiling: Tiling) -> float:
    taps = shape.kernel[0] * shape.kernel[1]
    beats = tiling.inputs * taps * config.element_bytes(Memory.WGT) / config.board.bus_bytes
    return STARTING + tiling.outputs * (BURST + beats)
