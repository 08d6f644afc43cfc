"""Compiled code computes what the careful simulation computes, bit for bit, and refuses what that finds fault with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boards.vta import Config, VtaProgram, simulate
from boards.vta.compiler.layers import Addition, MaxPool
from boards.vta.compiler.network import LayerStep, compile_network
from boards.vta.isa.config import PYNQ, ULTRA96, MemoryType
from boards.vta.isa.instructions import (
    Alu,
    AluOpcode,
    Finish,
    Gemm,
    Instruction,
    LoadInstruction,
    StoreInstruction,
    Uop,
)
from boards.vta.simulator.compiled import execute
from tests.support.vta import building
from tests.support.vta.building import BATCHED, small_program
from tests.support.vta.random_loops import ELEMENTS, expected_sums, random_loops, surround_with_transfers
from tests.support.vta.references import layer, tensor

CONFIGS = [Config(), BATCHED, Config(log_block=0, log_batch=4, log_wgt_buff_size=10, log_acc_buff_size=17)]


@pytest.mark.parametrize("config", CONFIGS[:2])
@settings(deadline=None, max_examples=30, derandomize=True)
@given(loop_work=random_loops(), seed=st.integers(0, 1000))
def test_loops_against_one_number_after_the_other(
    config: Config, loop_work: tuple[list[Uop], list[Gemm | Alu]], seed: int
) -> None:
    uops, works = loop_work
    all_uops = [*uops, *(Uop(index) for index in range(ELEMENTS))]
    program = building.program(config, surround_with_transfers(config, uops, works), all_uops, seed)
    memory = execute(program)
    assert memory is not None
    planes = building.outputs(config, memory, 4 * ELEMENTS).reshape(4, -1).astype(np.int64)
    sums = sum((planes[index] & 255) << 8 * index for index in range(4))
    np.testing.assert_array_equal(sums, expected_sums(config, uops, works, program.memory) & 0xFFFFFFFF)


@st.composite
def transfers(draw: st.DrawFn, config: Config) -> LoadInstruction | StoreInstruction:
    sizes: dict[str, Any] = {
        "y_size": draw(st.integers(0, 3)),
        "x_size": draw(st.integers(0, 4)),
        "x_stride": draw(st.integers(0, 5)),
        "sram_base": draw(st.integers(0, 12)),
    }
    index = draw(st.integers(0, 12))
    if draw(st.booleans()):
        return StoreInstruction(dram_base=building.element(config, MemoryType.OUT, index), **sizes)
    memory = draw(st.sampled_from([each for each in MemoryType if each is not MemoryType.OUT]))
    # Of results, too, which stores may just have written; micro-ops stay what they are.
    is_result = draw(st.booleans()) and memory in (MemoryType.INP, MemoryType.ACC_8BIT)
    region = MemoryType.OUT if is_result else MemoryType.ACC if memory is MemoryType.ACC_8BIT else memory
    base = building.element(config, region, index) * config.element_bytes(region)
    pads = {name: draw(st.integers(0, 2)) for name in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")}
    sizes |= pads if memory is not MemoryType.UOP else {"sram_base": 20}
    return LoadInstruction(memory_type=memory, dram_base=base // config.element_bytes(memory), **sizes)


@st.composite
def programs(draw: st.DrawFn, config: Config, *, sound: bool) -> VtaProgram:
    """Return random loads, arithmetic and stores, one after the other; if not `sound`, with something changed."""
    uops, _ = draw(random_loops())
    steps: list[Instruction] = [building.load(config, MemoryType.UOP, len(uops))]
    for _ in range(draw(st.integers(1, 4))):
        steps.append(draw(transfers(config)))
        loops = draw(random_loops())[1][0]
        end = min(loops.uop_end, len(uops))
        steps.append(replace(loops, uop_bgn=min(loops.uop_bgn, end), uop_end=end))
        steps.append(draw(transfers(config)))
    instructions = list(building.serial(steps))
    if not sound:
        position = draw(st.integers(0, len(instructions) - 1))
        instructions[position] = draw(changes(instructions[position]))
    return building.program(config, instructions, uops, draw(st.integers(0, 1000)))


@st.composite
def changes(draw: st.DrawFn, instruction: Instruction) -> Instruction:
    """Return the instruction with another flag, or with a number that may be too large."""
    flags = ["pop_prev", "pop_next", "push_prev", "push_next"]
    numbers = {
        LoadInstruction: ["sram_base", "dram_base", "y_size", "x_size", "x_stride"],
        StoreInstruction: ["sram_base", "dram_base", "y_size", "x_size", "x_stride", "x_pad_0"],
        Gemm: ["uop_end", "iter_out", "dst_factor_out", "src_factor_in", "wgt_factor_in"],
        Alu: ["uop_end", "iter_in", "dst_factor_in", "src_factor_out"],
        Finish: [],
    }
    name = draw(st.sampled_from([*flags, *numbers[type(instruction)]]))
    if name in flags:
        return replace(instruction, **{name: not getattr(instruction, name)})
    value: Any = draw(st.sampled_from([0, 1, 2040, 9000, 1 << 22]))
    return replace(instruction, **{name: value})


def check(program: VtaProgram) -> bool:
    """Compare both ways, and return whether the program is sound."""
    careful = simulate(program, "functional", run_compiled=False, estimate_cycles=False)
    memory = execute(program)
    assert (memory is None) == (careful.memory is None), careful.violations
    if memory is not None:
        np.testing.assert_array_equal(memory, careful.memory)
    assert simulate(program, "functional", estimate_cycles=False).violations == careful.violations
    return memory is not None


@pytest.mark.parametrize("config", CONFIGS)
@settings(deadline=None, max_examples=30, derandomize=True)
@given(data=st.data())
def test_whole_programs(config: Config, data: st.DataObject) -> None:
    assert check(data.draw(programs(config, sound=True)))


@settings(deadline=None, max_examples=100, derandomize=True)
@given(data=st.data())
def test_programs_with_something_wrong(data: st.DataObject) -> None:
    check(data.draw(programs(Config(), sound=False)))


@pytest.mark.parametrize("config", [PYNQ, ULTRA96])
def test_layers_run_compiled(config: Config) -> None:
    shape = (32, 9, 9)
    steps = [
        LayerStep(layer(shape, 32, 3, 0, padding=(1, 1, 1, 1)), (0,)),
        LayerStep(Addition(shape, shift=1, low=0), (0, 1)),
        LayerStep(MaxPool(shape, (3, 3), (2, 2), (1, 1, 1, 1)), (2,)),
    ]
    assert check(compile_network(config, [shape], steps, [3]).on(tensor(shape, 0)))


UOPS = [Uop(index, index, index) for index in range(16)]


def test_an_alu_reads_what_the_micro_op_before_wrote() -> None:
    """Sixteen elements become running sums, which no computation of all of them at once gives."""
    config = Config()
    add = Alu(alu_opcode=AluOpcode.ADD, uop_bgn=0, uop_end=1, iter_in=15, dst_factor_in=1, src_factor_in=1)
    loads = [building.load(config, memory, 16) for memory in (MemoryType.UOP, MemoryType.ACC)]
    program = building.program(config, building.serial([*loads, add, building.store(config, 16)]), [Uop(1, 0), *UOPS])
    memory = execute(program)
    assert memory is not None
    start = building.REGIONS.index(MemoryType.ACC) * building.REGION
    acc = program.memory[start : start + 16 * 64].view(np.int32).reshape(16, 16)
    np.testing.assert_array_equal(building.outputs(config, memory, 16), np.cumsum(acc, 0, np.int32).astype(np.int8))


@pytest.mark.parametrize("loop", ["in", "out"])
@pytest.mark.parametrize(
    ("operand", "memory"), [("dst", MemoryType.ACC), ("src", MemoryType.INP), ("wgt", MemoryType.WGT)]
)
@pytest.mark.parametrize(("past_half", "fits"), [(-1, True), (0, False)])
def test_the_last_turn_of_either_loop_ends_with_the_scratchpad(
    loop: str, operand: str, memory: MemoryType, past_half: int, fits: bool
) -> None:
    """Of three turns: the last one adds the factor twice."""
    config = Config()
    turns: dict[str, Any] = {f"iter_{loop}": 3, f"{operand}_factor_{loop}": config.depth(memory) // 2 + past_half}
    loads = [
        building.load(config, name, 16) for name in (MemoryType.UOP, MemoryType.INP, MemoryType.WGT, MemoryType.ACC)
    ]
    instructions = building.serial([*loads, Gemm(uop_bgn=0, uop_end=2, **turns), building.store(config, 16)])
    assert check(building.program(config, instructions, UOPS)) == fits


def test_numbers_that_no_field_holds_are_left_to_the_careful_simulation() -> None:
    config = Config()
    load = replace(building.load(config, MemoryType.INP, 1), dram_base=10**30)
    assert execute(building.program(config, building.serial([load]), UOPS)) is None
    assert execute(building.program(config, building.serial([replace(load, dram_base=-1)]), UOPS)) is None
    assert execute(building.program(config, (), UOPS)) is None


def test_memory_that_changed_is_read_again() -> None:
    """A board runs one program on frame after frame."""
    config = Config()
    copy = Alu(alu_opcode=AluOpcode.SHR, use_imm=True, uop_bgn=0, uop_end=16)
    loads: Sequence[Instruction] = [building.load(config, memory, 16) for memory in (MemoryType.UOP, MemoryType.ACC)]
    program = building.program(config, building.serial([*loads, copy, building.store(config, 16)]), UOPS)
    start = building.REGIONS.index(MemoryType.ACC) * building.REGION
    for value in (1, 2):
        program.memory[start : start + 16 * 64] = value
        memory = execute(program)
        assert memory is not None
        assert (building.outputs(config, memory, 16) == value).all()


SMALL = """if True:
    from boards.vta import simulate
    from boards.vta.simulator import compiled
    from tests.support.vta.building import small_program
    print(compiled.is_available(), simulate(small_program(), "functional").memory.sum())
"""


def test_without_the_compiler_numpy_computes_the_same(root: Path) -> None:
    memory = execute(small_program())
    assert memory is not None
    environment = {**os.environ, "TVM_USE_RUNTIME_LIB": "1", "PYTHONPATH": str(root)}
    line = [sys.executable, "-c", SMALL]
    process = subprocess.run(line, capture_output=True, text=True, check=True, env=environment)
    assert process.stdout.split() == ["False", str(memory.sum())]


def test_a_store_without_rows_stores_nothing() -> None:
    config = Config()
    empty_store = replace(building.store(config, 4), y_size=0)
    program = building.program(config, building.serial([empty_store]), UOPS)
    assert check(program)
    np.testing.assert_array_equal(simulate(program, "functional").memory, program.memory)
