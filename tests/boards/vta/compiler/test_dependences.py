"""Programs whose tokens were taken away get others that are right, and none too many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from boards.vta import Program, accesses, simulate
from boards.vta.compiler.dependences import Work, linked
from boards.vta.config import Memory
from boards.vta.instructions import Alu, Finish, Gemm, Load, Store
from boards.vta.patterns import pieces
from tests.boards.vta import golden
from tests.boards.vta.test_order import count, without

BARE = {"pop_prev": False, "pop_next": False, "push_prev": False, "push_next": False}
SOUND = [name for name in golden.NAMES if "fsim_only" not in name]


def works(program: Program) -> Iterator[Work]:
    """Yield the instructions of a program in its order, with what they touch."""
    config = program.config
    uops = np.zeros(config.depth(Memory.UOP), np.uint32)
    for each in program.instructions:
        bare = replace(each, **BARE)
        if isinstance(bare, Load | Store) and bare.x_size:
            memory = Memory.OUT if isinstance(bare, Store) else bare.memory_type
            start = bare.dram_base * config.element_bytes(memory) - program.base
            yield Work(bare, tuple(accesses.of_transfer(config, bare, start)))
            if memory is Memory.UOP:
                words = program.memory[start : start + 4 * bare.x_size].view(np.uint32)
                uops[bare.sram_base : bare.sram_base + bare.x_size] = words
        elif isinstance(bare, Gemm | Alu):
            found = pieces(config, bare, uops[bare.uop_bgn : bare.uop_end], 0)
            yield Work(bare, tuple(access for piece in found for access in accesses.of_piece(bare, piece)))


@pytest.mark.parametrize("name", SOUND)
def test_stored_programs(golden_folder: Path, name: str) -> None:
    stored = golden.read(golden_folder, name)
    instructions = linked(works(stored.program), accesses.sizes(stored.program.config, stored.program.memory.size))
    program = replace(stored.program, instructions=instructions)
    for seed in (None, 0, 1):
        result = simulate(program, seed=seed)
        assert result.violations == ()
        np.testing.assert_array_equal(result.memory, stored.expected)


@pytest.mark.parametrize("name", ["15_tokens_double_buffer", "18_dram_round_trip", "27_residual_add"])
def test_no_token_can_be_left_out(golden_folder: Path, name: str) -> None:
    stored = golden.read(golden_folder, name)
    instructions = linked(works(stored.program), accesses.sizes(stored.program.config, stored.program.memory.size))
    program = replace(stored.program, instructions=instructions)
    for queue in range(4):
        for number in range(count(program, queue)):
            assert simulate(without(program, queue, number)).violations


def test_nothing_to_do_is_a_sound_program() -> None:
    assert [type(each) for each in linked([], {})] == [Load, Load, Finish]
