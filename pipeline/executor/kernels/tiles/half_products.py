"""Products of float16: supported layouts, and their machine for tiles."""

from __future__ import annotations

from dataclasses import replace

from pipeline.executor.kernels.microarchitecture import Microarchitecture

WAY = "float16"
"""Their name in a layout, and in a build's arithmetic."""

BLOCK = 64
"""Terms summed in float16. With 128, errors are up to 1.7 times as large, and kernels 9 % faster.

A second level of sums in float16 would widen fewer of them, but finds no registers; loops were 8 % slower.
"""

_BYTES = 2

# Vectors of elements, of which one lane is a factor, have to be in the lower half of the registers: two more than tiles
# need leave LLVM room to arrange that.
_SPARE = 2


def for_tiles(cpu: Microarchitecture) -> Microarchitecture:
    """Return the machine with vectors of float16."""
    return replace(cpu, lanes=2 * cpu.lanes, item_bytes=_BYTES, registers=cpu.registers - _SPARE)
