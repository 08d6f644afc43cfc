"""Violations of a board's rules are reported with their instruction; the functional simulator allows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from boards.vta import Config, Result, VtaProgram, simulate
from boards.vta.isa.config import MemoryType
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
from boards.vta.simulator.token_queues import COMMANDS, TOKENS
from tests.support.vta import building

CONFIG = Config()
UOPS = [Uop(index, index, index) for index in range(16)]
INP, WGT, ACC, UOP = (
    building.load(CONFIG, memory, 16) for memory in (MemoryType.INP, MemoryType.WGT, MemoryType.ACC, MemoryType.UOP)
)
GEMM = Gemm(uop_bgn=0, uop_end=16)
STORE = building.store(CONFIG, 16)
LAYER = (UOP, INP, WGT, ACC, GEMM, STORE)
NOTHING = LoadInstruction(memory_type=MemoryType.UOP)


def run(instructions: Sequence[Instruction], *, base: int | None = None, **options: Any) -> Result:
    sample = building.program(CONFIG, instructions, UOPS)
    return simulate(sample if base is None else replace(sample, base=base), **options)


def violation_kinds(result: Result) -> set[tuple[str, type[Instruction] | str]]:
    """Return the kinds, each with the opcode of the instruction to blame."""
    assert (result.memory is None) == bool(result.violations)
    return {(each.kind, each.instruction.split()[0]) for each in result.violations}


def change_layer(position: int, **values: Any) -> tuple[Instruction, ...]:
    """Return the layer with other values in one instruction."""
    return building.serial([*LAYER[:position], replace(LAYER[position], **values), *LAYER[position + 1 :]])


@pytest.mark.parametrize("mode", ["functional", "hardware"])
@pytest.mark.parametrize("seed", [None, 0, 1])
def test_a_sound_program_has_none(mode: Any, seed: int | None) -> None:
    assert violation_kinds(run(building.serial(LAYER), mode=mode, seed=seed)) == set()


ANYWHERE = [
    (change_layer(0, sram_base=8177), {("bounds", "LOAD"), ("undefined", "GEMM"), ("stale", "STORE")}),
    (change_layer(1, dram_base=0), {("bounds", "LOAD"), ("undefined", "GEMM")}),
    (change_layer(1, sram_base=2033), {("bounds", "LOAD"), ("undefined", "GEMM")}),
    (change_layer(2, x_stride=20_000, y_size=2, x_size=8), {("bounds", "LOAD"), ("undefined", "GEMM")}),
    (change_layer(4, uop_end=8193), {("bounds", "GEMM"), ("stale", "STORE")}),
    (change_layer(4, iter_in=2, dst_factor_in=2033), {("bounds", "GEMM"), ("stale", "STORE")}),
    (change_layer(4, iter_in=2, src_factor_in=2033), {("bounds", "GEMM"), ("stale", "STORE")}),
    (change_layer(4, iter_in=2, wgt_factor_in=1009), {("bounds", "GEMM"), ("stale", "STORE")}),
    (change_layer(5, sram_base=2033), {("bounds", "STORE")}),
    (change_layer(5, y_size=2, x_stride=70_000), {("bounds", "STORE")}),
    (change_layer(5, x_pad_0=1), {("unsupported", "STORE")}),
    (change_layer(5, memory_type=MemoryType.ACC), {("unsupported", "STORE")}),
    (change_layer(1, pop_prev=True), {("flag", "LOAD")}),
    (change_layer(5, push_next=True), {("flag", "STORE")}),
]


@pytest.mark.parametrize(("instructions", "kinds"), ANYWHERE)
def test_what_no_accelerator_does(instructions: tuple[Instruction, ...], kinds: set[tuple[str, str]]) -> None:
    assert violation_kinds(run(instructions)) == kinds
    missing_load = {pair for pair in kinds if pair[0] in ("undefined", "stale")}
    assert violation_kinds(run(instructions, mode="functional")) == kinds - missing_load


ON_BOARDS = [
    (change_layer(2, y_pad_0=1), {("unsupported", "LOAD")}),
    (change_layer(3, x_pad_1=1), {("unsupported", "LOAD")}),
    (change_layer(0, x_size=8, y_size=2, x_stride=8), {("unsupported", "LOAD")}),
    (
        change_layer(3, memory_type=MemoryType.ACC_8BIT, dram_base=building.element(CONFIG, MemoryType.INP)),
        {("unsupported", "LOAD")},
    ),
    (
        building.serial([LoadInstruction(memory_type=MemoryType.INP, x_pad_0=3, y_pad_0=1), *LAYER]),
        {("unsupported", "LOAD")},
    ),
    (building.serial([*LAYER, replace(GEMM, reset_reg=True), STORE]), {("stale", "STORE")}),
    (building.serial([*LAYER, ACC, STORE]), {("stale", "STORE")}),
    (building.serial(LAYER[1:]), {("undefined", "GEMM"), ("stale", "STORE")}),
    (building.serial([UOP, WGT, ACC, GEMM, STORE]), {("undefined", "GEMM")}),
    (building.serial([UOP, INP, ACC, GEMM, STORE]), {("undefined", "GEMM")}),
    (building.serial([UOP, INP, WGT, GEMM, STORE]), {("undefined", "GEMM")}),
    (building.serial([UOP, STORE]), {("undefined", "STORE"), ("stale", "STORE")}),
]


@pytest.mark.parametrize(("instructions", "kinds"), ON_BOARDS)
def test_what_boards_alone_do_otherwise(instructions: tuple[Instruction, ...], kinds: set[tuple[str, str]]) -> None:
    assert violation_kinds(run(instructions)) == kinds
    assert violation_kinds(run(instructions, mode="functional")) == set()


def test_a_reset_defines_what_is_accumulated() -> None:
    assert violation_kinds(run(building.serial([UOP, INP, WGT, replace(GEMM, reset_reg=True), GEMM, STORE]))) == set()


@pytest.mark.parametrize(("amount", "sound"), [(-17, False), (-16, True), (15, True), (16, False)])
def test_shifts(amount: int, *, sound: bool) -> None:
    shift = Alu(alu_opcode=AluOpcode.SHR, use_imm=True, imm=amount, uop_bgn=0, uop_end=16)
    kinds = set() if sound else {("unsupported", "ALU")}
    assert violation_kinds(run(building.serial([*LAYER[:-1], shift, STORE]))) == kinds


@pytest.mark.parametrize("distance", range(1, 12))
@pytest.mark.parametrize("nearest", [3, 8])
def test_hazards_of_gemm(distance: int, nearest: int) -> None:
    gemm = Gemm(uop_bgn=0, uop_end=distance, iter_in=3)
    kinds = {("hazard", "GEMM")} if distance < nearest else set()
    layer = building.serial([*LAYER[:4], gemm, GEMM, STORE])
    result = run(layer, hazard_distance=nearest)
    assert violation_kinds(result) == kinds
    assert violation_kinds(run(layer, mode="functional")) == set()
    if kinds:
        message = f"ACC 0 is read at a distance of {distance} from the micro-op that writes it; let it be at least"
        assert message in str(result.violations[0])


@pytest.mark.parametrize(("source", "distance"), [(0, 5), (1, 4), (4, 1)])
def test_hazards_of_what_the_alu_reads(source: int, distance: int) -> None:
    # The sixth micro-op reads what the one `distance` before it has written.
    add = Alu(alu_opcode=AluOpcode.ADD, uop_bgn=0, uop_end=6)
    uops = [*(Uop(index, index) for index in range(5)), Uop(9, source), *UOPS]
    last_gemm = replace(GEMM, uop_bgn=6, uop_end=22)
    sample = building.serial([building.load(CONFIG, MemoryType.UOP, 22), *LAYER[1:4], add, last_gemm, STORE])
    for nearest in (distance, distance + 1):
        result = simulate(building.program(CONFIG, sample, uops), hazard_distance=nearest)
        assert violation_kinds(result) == ({("hazard", "ALU")} if nearest > distance else set())


def test_hazards_are_found_across_the_pieces_that_are_worked_on() -> None:
    layer = building.serial([*LAYER[:4], Gemm(uop_bgn=0, uop_end=5, iter_in=3), GEMM, STORE])
    assert violation_kinds(run(layer, hazard_distance=6, piece_size=3)) == {("hazard", "GEMM")}
    assert violation_kinds(run(layer, hazard_distance=5, piece_size=3)) == set()


def test_a_write_and_a_later_instruction_are_no_hazard() -> None:
    single_gemm = Gemm(uop_bgn=0, uop_end=1)
    assert (
        violation_kinds(run(building.serial([*LAYER[:4], single_gemm, single_gemm, single_gemm, GEMM, STORE]))) == set()
    )


def test_missing_and_left_over_tokens() -> None:
    deadlock = (NOTHING, *LAYER[:4], replace(GEMM, pop_prev=True), NOTHING, Finish())
    (violation, *remainder) = run(deadlock).violations
    assert (violation.kind, violation.index) == ("deadlock", 5)
    assert violation.message == "5 (compute) waits for a token of load"
    assert remainder == []
    assert run(deadlock).cycles is None
    *instructions, finish = building.serial(LAYER)
    extra = replace(NOTHING, push_prev=True)
    for count, remainder_text in ((1, ""), (2, ", nor 1 more"), (3, ", nor 2 more")):
        (violation,) = run((*instructions, *[extra] * count, finish)).violations
        assert (violation.kind, violation.index) == ("token", len(instructions))
        assert violation.message == f"nobody takes its token for load{remainder_text}"


def test_two_modules_that_wait_for_each_other() -> None:
    deadlock = (NOTHING, replace(INP, pop_next=True, push_next=True), replace(ACC, pop_prev=True, push_prev=True))
    message = "1 (load) waits for a token of compute; 2 (compute) waits for a token of load"
    for mode in ("functional", "hardware"):
        (violation,) = run((*deadlock, Finish()), mode=mode).violations
        assert (violation.kind, violation.message) == ("deadlock", message)


def test_queues_that_are_too_short() -> None:
    """Load and compute give each other more tokens than a queue holds, before either takes one."""
    push, pop = (
        LoadInstruction(memory_type=MemoryType.INP, push_next=True),
        LoadInstruction(memory_type=MemoryType.INP, pop_next=True),
    )
    give, take = replace(NOTHING, push_prev=True), replace(NOTHING, pop_prev=True)
    for count, kinds in ((TOKENS, set()), (TOKENS + 1, {("deadlock", "LOAD"), ("token", "LOAD")})):
        sample = (NOTHING, *[push, give] * count, *[pop, take] * count, push, take, Finish())
        assert violation_kinds(run(sample)) == kinds
        assert violation_kinds(run(sample, mode="functional")) == set()


def test_commands_that_nobody_can_fetch_yet() -> None:
    """A load that waits for compute, with more loads behind it than its queue holds, is never given what it needs."""
    blocked_load, next_load = (
        LoadInstruction(memory_type=MemoryType.INP, pop_next=True),
        LoadInstruction(memory_type=MemoryType.INP),
    )
    end = (replace(next_load, push_next=True), replace(NOTHING, pop_prev=True), Finish())
    for count, kinds in ((COMMANDS - 1, set()), (COMMANDS, {("deadlock", "LOAD")})):
        sample = (NOTHING, blocked_load, *[next_load] * count, replace(NOTHING, push_prev=True), *end)
        assert violation_kinds(run(sample)) == kinds
        assert violation_kinds(run(sample, mode="functional")) == set()


@pytest.mark.parametrize(
    ("instructions", "index", "message"),
    [
        ((), -1, "the last instruction must be FINISH"),
        ((NOTHING,), 0, "the last instruction must be FINISH"),
        ((NOTHING, Finish(), Finish()), 1, "only the last instruction may be FINISH"),
        ((NOTHING, INP, Finish()), 1, "no token tells FINISH that this is over"),
        ((NOTHING, StoreInstruction(), Finish()), 1, "no token tells FINISH that this is over"),
    ],
)
@pytest.mark.parametrize("mode", ["functional", "hardware"])
def test_the_end(instructions: tuple[Instruction, ...], index: int, message: str, mode: Any) -> None:
    (violation,) = run(instructions, mode=mode).violations
    assert (violation.kind, violation.index, violation.message) == ("finish", index, message)


def test_the_first_instruction_of_compute_must_not_wait() -> None:
    sample = (replace(INP, push_next=True), replace(NOTHING, pop_prev=True), Finish())
    assert violation_kinds(run(sample)) == {("finish", "LOAD")}
    assert violation_kinds(run(sample, mode="functional")) == set()


def test_a_violation_says_which_instruction_does_what() -> None:
    (violation,) = run(change_layer(5, sram_base=2033)).violations
    text = "bounds: instruction 6 (STORE OUT sram 2033..2049 dram 0x5000 (byte 0x50000) rows 1 x 16 stride 16"
    assert str(violation).startswith(text)
    assert str(violation).endswith("elements up to 2049 of OUT, which has 2048")


def test_the_memory_of_a_program_stays() -> None:
    sample: VtaProgram = building.program(CONFIG, building.serial(LAYER), UOPS)
    sample.memory.flags.writeable = False
    assert simulate(sample).memory is not sample.memory
