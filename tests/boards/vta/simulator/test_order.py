"""One run finds every race that any interleaving of the modules could show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from boards.vta import Config, VtaProgram, simulate
from boards.vta.isa.config import MemoryType
from boards.vta.isa.instructions import (
    Finish,
    Gemm,
    Instruction,
    LoadInstruction,
    StoreInstruction,
    Uop,
)
from boards.vta.simulator.simulator import ProgramExecution
from tests.support.vta import building
from tests.support.vta.layer_programs import LAYERS, layer_program
from tests.support.vta.tokens import QUEUES, count_tokens, remove_token


def last_memory(program: VtaProgram, seed: int | None) -> Any:
    """Return the memory in the end, whatever is wrong with the program."""
    run = ProgramExecution(program, seed, hardware=False)
    run.execute()
    return run.memory.tobytes()


def count_mismatches(program: VtaProgram, memory: npt.NDArray[np.uint8]) -> int:
    """Return how many tokens cannot be taken away without another memory in the end, which never goes unseen."""
    mismatches = 0
    for queue in range(len(QUEUES)):
        for number in range(count_tokens(program, queue)):
            changed_program = remove_token(program, queue, number)
            verdicts = [simulate(changed_program, "functional", seed=seed).violations for seed in (None, 0, 1)]
            kinds = [{each.kind for each in verdict} for verdict in verdicts]
            assert all(each == kinds[0] for each in kinds), (queue, number)
            is_wrong = any(last_memory(changed_program, seed) != memory.tobytes() for seed in (None, 0, 1))
            mismatches += is_wrong
            assert kinds[0] or not is_wrong, (queue, number)
    return mismatches


@pytest.mark.parametrize("name", LAYERS)
def test_without_any_one_token(name: str) -> None:
    assert count_mismatches(*layer_program(name))


CONFIG = Config()
UOPS = [Uop(index, index, index) for index in range(16)]
UOP = building.load(CONFIG, MemoryType.UOP, 16)
INP = building.load(CONFIG, MemoryType.INP, 16)
GEMM = Gemm(uop_bgn=0, uop_end=16)
STORE = building.store(CONFIG, 16)
END = (
    StoreInstruction(push_prev=True),
    LoadInstruction(memory_type=MemoryType.INP, push_next=True),
    LoadInstruction(memory_type=MemoryType.UOP, pop_prev=True, pop_next=True),
    Finish(),
)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (INP, GEMM, "reads INP 0, which instruction 1 (LOAD INP"),
        (GEMM, INP, "writes INP 0, which instruction 1 (GEMM"),
        (building.load(CONFIG, MemoryType.WGT, 9, sram=7), GEMM, "reads WGT 7, which instruction 1 (LOAD WGT"),
        (GEMM, building.load(CONFIG, MemoryType.WGT, 9, sram=7), "writes WGT 7, which instruction 1 (GEMM"),
        (GEMM, STORE, "reads ACC 0, which instruction 1 (GEMM"),
        (STORE, GEMM, "writes ACC 0, which instruction 1 (STORE OUT"),
        (STORE, building.load(CONFIG, MemoryType.ACC, 4, sram=3), "writes ACC 3, which instruction 1 (STORE OUT"),
        (replace(GEMM, reset_reg=True), STORE, "reads ACC 0, which instruction 1 (GEMM reset"),
        (STORE, replace(INP, dram_base=STORE.dram_base + 5), "reads byte 327760, which instruction 1 (STORE OUT"),
        (replace(UOP, dram_base=4 * STORE.dram_base + 7), STORE, "writes byte 327708, which instruction 1 (LOAD UOP"),
    ],
)
@pytest.mark.parametrize("in_reverse", [False, True])
def test_every_pair_of_accesses(first: Instruction, second: Instruction, message: str, *, in_reverse: bool) -> None:
    pair = (second, first) if in_reverse else (first, second)
    program = building.program(CONFIG, (UOP, *pair, *END), UOPS)
    for seed in (None, 0, 1):
        (violation,) = simulate(program, "functional", seed=seed).violations
        assert violation.kind == "race"
        if seed is None and not in_reverse:
            assert message in violation.message
            assert violation.message.endswith("no token orders the two")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (replace(INP, sram_base=16), GEMM),
        (GEMM, replace(STORE, sram_base=16)),
        (building.load(CONFIG, MemoryType.INP, 16, sram=99), GEMM),
        (replace(STORE, y_size=2, x_size=1, x_stride=3), replace(INP, dram_base=STORE.dram_base + 1, x_size=2)),
        (replace(GEMM, iter_in=0), STORE),
        (INP, replace(GEMM, reset_reg=True)),
    ],
)
def test_what_touches_nothing_in_common_is_no_race(first: Instruction, second: Instruction) -> None:
    for pair in ((first, second), (second, first)):
        program = building.program(CONFIG, (UOP, *pair, *END), UOPS)
        assert simulate(program, "functional", seed=0).violations == ()


def test_knowledge_passes_through_compute() -> None:
    """A store orders a load behind it only through both tokens."""
    store = replace(STORE, push_prev=True)
    fence = LoadInstruction(memory_type=MemoryType.UOP, pop_next=True, push_prev=True)
    load = replace(INP, dram_base=STORE.dram_base, pop_next=True)
    sound = building.program(CONFIG, (UOP, store, fence, load, *END), UOPS)
    assert simulate(sound, "functional", seed=1).violations == ()
    halves = replace(fence, pop_next=False), replace(fence, push_prev=False)
    racing = building.program(CONFIG, (UOP, halves[0], store, halves[1], load, *END), UOPS)
    assert [each.kind for each in simulate(racing, "functional", seed=1).violations] == ["race"]


def test_seeds_reach_other_interleavings_and_contents() -> None:
    program = building.program(CONFIG, (UOP, INP, GEMM, STORE, *END), UOPS)
    assert len({last_memory(program, seed) for seed in range(8)}) > 1
    assert last_memory(program, 5) == last_memory(program, 5)


def test_moving_memory_needs_whole_pages() -> None:
    program, memory = layer_program("residual")
    with pytest.raises(ValueError, match="only by pages of 4096 bytes"):
        program.relocate(program.base + 64)
    np.testing.assert_array_equal(simulate(program.relocate(0)).memory, memory)


def test_the_old_version_and_another_address_give_the_same() -> None:
    program, memory = layer_program("residual")
    moved = replace(program, config=Config("ultra96", "0.0.1")).relocate(program.base + 0x12345000)
    assert not np.array_equal(moved.stream(), program.stream())
    result = simulate(VtaProgram.of_stream(moved.config, moved.stream(), moved.memory, moved.base))
    assert result.violations == ()
    np.testing.assert_array_equal(result.memory, memory)
