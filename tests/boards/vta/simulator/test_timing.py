"""The estimate of the time follows its model, and shows what double buffering gains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boards.vta import Config, simulate
from boards.vta.isa.config import PYNQ, ULTRA96, MemoryType
from boards.vta.isa.instructions import Alu, AluOpcode, Finish, Gemm, Instruction, LoadInstruction, StoreInstruction
from boards.vta.simulator.timing import BURST, STARTING, estimate
from tests.support.vta import building
from tests.support.vta.layer_programs import layer_program

NOTHING = LoadInstruction(memory_type=MemoryType.UOP)


def cycles(config: Config, *instructions: Instruction) -> tuple[int, int, int, int]:
    result = estimate(building.program(config, instructions))
    assert result is not None
    return result.load, result.compute, result.store, result.total


def test_arithmetic_takes_its_micro_ops() -> None:
    gemm = Gemm(uop_bgn=0, uop_end=10, iter_out=3, iter_in=7)
    alu = Alu(alu_opcode=AluOpcode.ADD, uop_bgn=0, uop_end=10)
    fetch_cycles = 1  # one instruction per cycle of Ultra96's bus
    assert cycles(ULTRA96, gemm) == (0, STARTING + 210, 0, fetch_cycles + STARTING + 210)
    assert cycles(ULTRA96, gemm, alu) == (0, 2 * STARTING + 230, 0, fetch_cycles + 2 * STARTING + 230)
    assert cycles(PYNQ, gemm)[3] == 2 + STARTING + 210


@pytest.mark.parametrize(("config", "bus_bytes"), [(PYNQ, 8), (ULTRA96, 16)])
def test_transfers_take_bursts_bytes_and_padding(config: Config, bus_bytes: int) -> None:
    load = LoadInstruction(memory_type=MemoryType.INP, y_size=3, x_size=8, x_stride=10, x_pad_0=1, y_pad_1=2)
    padding = 5 * 9 - 24
    assert cycles(config, load)[0] == STARTING + 3 * BURST + 24 * 16 // bus_bytes + padding
    weights = building.load(config, MemoryType.WGT, 5)
    assert cycles(config, weights)[0] == STARTING + BURST + 5 * 256 // bus_bytes
    assert (
        cycles(config, StoreInstruction(y_size=2, x_size=4, x_stride=4))[2] == STARTING + 2 * BURST + 128 // bus_bytes
    )
    assert cycles(config, NOTHING)[1] == STARTING


def test_modules_overlap_but_share_the_bus() -> None:
    load, store = building.load(PYNQ, MemoryType.INP, 2000), building.store(PYNQ, 2000)
    gemm = Gemm(uop_bgn=0, uop_end=2000)
    serial_cycles = cycles(PYNQ, load)[3]
    assert cycles(PYNQ, gemm, load)[3] == pytest.approx(serial_cycles, abs=4)
    assert cycles(PYNQ, load, store)[3] == pytest.approx(2 * serial_cycles - STARTING - BURST, abs=4)


def test_tokens_put_modules_one_behind_the_other() -> None:
    load, gemm = building.load(PYNQ, MemoryType.INP, 2000), Gemm(uop_bgn=0, uop_end=2000)
    behind = cycles(PYNQ, replace(load, push_next=True), replace(gemm, pop_prev=True))
    assert behind[3] == behind[0] + behind[1] + 2
    assert estimate(building.program(PYNQ, [replace(gemm, pop_prev=True)])) is None


def test_double_buffering_hides_loads() -> None:
    serial = simulate(building.small_program()).cycles
    double = simulate(layer_program("convolution")[0]).cycles
    assert serial is not None
    assert double is not None
    assert serial.total > 0.95 * (serial.load + serial.compute + serial.store)
    assert max(double.load, double.compute) < double.total < 0.9 * (double.load + double.compute + double.store)


def test_seconds_and_utilisation() -> None:
    gemm = Gemm(uop_bgn=0, uop_end=100, iter_in=100)
    result = estimate(building.program(ULTRA96, [NOTHING, replace(gemm, reset_reg=True), gemm, Finish()]))
    assert result is not None
    assert result.gemm == 10_000
    assert result.utilisation == result.gemm / result.total == pytest.approx(0.5, abs=0.01)
    assert result.seconds == result.total / 333e6
