"""Random GEMM and ALU instructions, the programs around them, and the sums that they should give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from boards.vta import Config
from boards.vta.isa.config import MemoryType
from boards.vta.isa.instructions import Alu, AluOpcode, Gemm, Instruction, Uop
from tests.support.vta import building, interpreter

ELEMENTS = 24
"""Of each scratchpad that a program uses; few, so that there are many repetitions."""


@st.composite
def random_loops(draw: st.DrawFn) -> tuple[list[Uop], list[Gemm | Alu]]:
    """Draw micro-ops, and instructions that use them."""
    indices = st.integers(0, 8)
    uops = draw(st.lists(st.builds(Uop, indices, indices, indices), min_size=1, max_size=6))
    return uops, draw(st.lists(random_loop(len(uops)), min_size=1, max_size=4))


@st.composite
def random_loop(draw: st.DrawFn, count: int) -> Gemm | Alu:
    """Draw a GEMM or ALU instruction on so many micro-ops."""
    begin = draw(st.integers(0, count - 1))
    values: dict[str, Any] = {"uop_bgn": begin, "uop_end": draw(st.integers(begin, count))}
    values |= {name: draw(st.integers(0, 3)) for name in ("iter_out", "iter_in")}
    factors = st.sampled_from([0, 0, 1, 2, 3])
    for name in ("dst", "src"):
        values |= {f"{name}_factor_out": draw(factors), f"{name}_factor_in": draw(factors)}
    if draw(st.booleans()):
        return Gemm(**values, wgt_factor_out=draw(factors), wgt_factor_in=draw(factors), reset_reg=draw(st.booleans()))
    immediate: Any = draw(st.sampled_from([-(2**15), -33, -32, -17, -1, 0, 1, 15, 31, 32, 33, 2**15 - 1]))
    return Alu(**values, alu_opcode=draw(st.sampled_from(AluOpcode)), use_imm=draw(st.booleans()), imm=immediate)


def surround_with_transfers(
    config: Config, uops: Sequence[Uop], works: Sequence[Gemm | Alu]
) -> tuple[Instruction, ...]:
    """Return a program that loads everything, works, and stores the four bytes of each result."""
    loads = [building.load(config, memory, ELEMENTS) for memory in (MemoryType.INP, MemoryType.WGT, MemoryType.ACC)]
    identity_uops = [Uop(index) for index in range(ELEMENTS)]
    uop_load = building.load(config, MemoryType.UOP, len(uops) + len(identity_uops))
    epilogue: list[Instruction] = []
    for plane in range(4):
        shift: dict[str, Any] = {"uop_bgn": len(uops), "uop_end": len(uops) + ELEMENTS, "imm": 8 * (plane > 0)}
        epilogue.append(Alu(alu_opcode=AluOpcode.SHR, use_imm=True, **shift))
        epilogue.append(building.store(config, ELEMENTS, index=plane * ELEMENTS))
    return building.serial([uop_load, *loads, *works, *epilogue])


def expected_sums(
    config: Config, uops: Sequence[Uop], works: Sequence[Gemm | Alu], memory: npt.NDArray[np.uint8]
) -> npt.NDArray[np.int64]:
    """Compute ACC as the specification words it, one micro-op after the other, from a program's memory."""
    acc = read_region(config, memory, MemoryType.ACC, np.int32).reshape(-1, config.batch, config.block)
    inp = read_region(config, memory, MemoryType.INP, np.int8).reshape(-1, config.batch, config.block)
    wgt = read_region(config, memory, MemoryType.WGT, np.int8).reshape(-1, config.block, config.block)
    for instruction in works:
        interpreter.execute(instruction, uops, acc, inp, wgt)
    return acc.ravel()


def read_region(
    config: Config, memory: npt.NDArray[np.uint8], memory_type: MemoryType, kind: Any
) -> npt.NDArray[np.int64]:
    """Return the elements of a region, each value as an integer."""
    start = building.REGIONS.index(memory_type) * building.REGION
    values: npt.NDArray[Any] = memory[start : start + ELEMENTS * config.element_bytes(memory_type)].view(kind)
    return values.astype(np.int64)
