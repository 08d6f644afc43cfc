"""Any GEMM or ALU instruction computes what one micro-op after the other would, however its elements repeat."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boards.vta import Config, simulate
from boards.vta.isa.config import MemoryType
from boards.vta.isa.instructions import Alu, AluOpcode, Gemm, Instruction, StoreInstruction, Uop
from tests.support.vta import building
from tests.support.vta.building import BATCHED
from tests.support.vta.random_loops import ELEMENTS, expected_sums, random_loops, read_region, surround_with_transfers


@pytest.mark.parametrize("piece", [3, 1 << 15])
@pytest.mark.parametrize("config", [Config(), BATCHED])
@settings(deadline=None, max_examples=60)
@given(loop_work=random_loops(), seed=st.integers(0, 1000))
def test_against_one_after_the_other(
    config: Config, piece: int, loop_work: tuple[list[Uop], list[Gemm | Alu]], seed: int
) -> None:
    uops, works = loop_work
    all_uops = [*uops, *(Uop(index) for index in range(ELEMENTS))]
    program = building.program(config, surround_with_transfers(config, uops, works), all_uops, seed)
    result = simulate(program, "functional", seed=seed, piece_size=piece)
    assert result.violations == ()
    assert result.memory is not None
    planes = building.outputs(config, result.memory, 4 * ELEMENTS).reshape(4, -1).astype(np.int64)
    sums = sum((planes[index] & 255) << 8 * index for index in range(4))
    np.testing.assert_array_equal(sums, expected_sums(config, uops, works, program.memory) & 0xFFFFFFFF)


def test_long_sums_are_exact() -> None:
    """A sum of 128 elements with large values is more than a float32 could count."""
    config, count = Config(), 128
    gemm = Gemm(
        uop_bgn=0,
        uop_end=1,
        iter_out=8,
        iter_in=16,
        src_factor_out=16,
        src_factor_in=1,
        wgt_factor_out=16,
        wgt_factor_in=1,
    )
    loads = [building.load(config, memory, count) for memory in (MemoryType.INP, MemoryType.WGT)]
    reset = Gemm(reset_reg=True, uop_bgn=0, uop_end=1)
    planes: list[Instruction] = []
    for plane in range(4):
        planes.append(Alu(alu_opcode=AluOpcode.SHR, use_imm=True, imm=8 * (plane > 0), uop_bgn=0, uop_end=1))
        planes.append(building.store(config, 1, index=plane))
    works = building.serial([building.load(config, MemoryType.UOP, 1), *loads, reset, gemm, *planes])
    program = building.program(config, works, [Uop(0)])
    program.memory[2 * building.REGION : 3 * building.REGION] = 129  # -127
    program.memory[building.REGION : 2 * building.REGION] |= 128  # -128 to -1
    program.memory[building.REGION : 2 * building.REGION] &= 0b10001111  # -128 to -113
    result = simulate(program, "functional")
    assert result.memory is not None
    weights = program.memory[building.REGION :][: count * 256].view(np.int8).reshape(count, 16, 16).astype(np.int64)
    exact_sums = (weights * -127).sum(axis=(0, 2))
    assert exact_sums.min() > 2**24
    loop_work = building.outputs(config, result.memory, 4).astype(np.int64) & 255
    assert (sum(loop_work[plane] << 8 * plane for plane in range(4)) == exact_sums).all()


def test_rows_that_overlap_are_stored_in_order() -> None:
    config, count = Config(), 12
    copy = Alu(alu_opcode=AluOpcode.SHR, use_imm=True, uop_bgn=0, uop_end=1, iter_in=count, dst_factor_in=1)
    store = StoreInstruction(dram_base=building.element(config, MemoryType.OUT), y_size=3, x_size=4, x_stride=2)
    loads = [building.load(config, MemoryType.UOP, 1), building.load(config, MemoryType.ACC, count)]
    program = building.program(config, building.serial([*loads, copy, store]), [Uop(0)])
    result = simulate(program)
    assert result.memory is not None
    acc = (
        read_region(config, program.memory, MemoryType.ACC, np.int32).reshape(-1, config.block)[:count].astype(np.int8)
    )
    expected_sums = [acc[0], acc[1], acc[4], acc[5], acc[8], acc[9], acc[10], acc[11]]
    np.testing.assert_array_equal(building.outputs(config, result.memory, 8), expected_sums)
