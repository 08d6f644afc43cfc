"""Programs whose tokens were taken away get others that are right, and none too many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from boards.vta import VtaProgram, simulate
from boards.vta.compiler.dependences import UnlinkedInstruction, link_dependences
from boards.vta.isa.config import MemoryType
from boards.vta.isa.instructions import Alu, Finish, Gemm, LoadInstruction, StoreInstruction
from boards.vta.simulator import accesses
from boards.vta.simulator.access_patterns import pieces
from tests.support.vta import golden
from tests.support.vta.tokens import count_tokens, remove_token

BARE = {"pop_prev": False, "pop_next": False, "push_prev": False, "push_next": False}
SOUND = [name for name in golden.NAMES if "fsim_only" not in name]


def works(program: VtaProgram) -> Iterator[UnlinkedInstruction]:
    """Yield the instructions of a program in its order, with what they touch."""
    config = program.config
    uops = np.zeros(config.depth(MemoryType.UOP), np.uint32)
    for instruction in program.instructions:
        bare = replace(instruction, **BARE)
        if isinstance(bare, LoadInstruction | StoreInstruction) and bare.x_size:
            memory = MemoryType.OUT if isinstance(bare, StoreInstruction) else bare.memory_type
            start = bare.dram_base * config.element_bytes(memory) - program.base
            yield UnlinkedInstruction(bare, tuple(accesses.transfer_accesses(config, bare, start)))
            if memory is MemoryType.UOP:
                words = program.memory[start : start + 4 * bare.x_size].view(np.uint32)
                uops[bare.sram_base : bare.sram_base + bare.x_size] = words
        elif isinstance(bare, Gemm | Alu):
            access_pieces = pieces(config, bare, uops[bare.uop_bgn : bare.uop_end], 0)
            yield UnlinkedInstruction(
                bare, tuple(access for piece in access_pieces for access in accesses.piece_accesses(bare, piece))
            )


@pytest.mark.parametrize("name", SOUND)
def test_stored_programs(golden_folder: Path, name: str) -> None:
    golden_program = golden.read(golden_folder, name)
    instructions = link_dependences(
        works(golden_program.program),
        accesses.memory_sizes(golden_program.program.config, golden_program.program.memory.size),
    )
    program = replace(golden_program.program, instructions=instructions)
    for seed in (None, 0, 1):
        result = simulate(program, seed=seed)
        assert result.violations == ()
        np.testing.assert_array_equal(result.memory, golden_program.final_memory)


@pytest.mark.parametrize("name", ["15_tokens_double_buffer", "18_dram_round_trip", "27_residual_add"])
def test_no_token_can_be_left_out(golden_folder: Path, name: str) -> None:
    stored = golden.read(golden_folder, name)
    instructions = link_dependences(
        works(stored.program), accesses.memory_sizes(stored.program.config, stored.program.memory.size)
    )
    program = replace(stored.program, instructions=instructions)
    for queue in range(4):
        for number in range(count_tokens(program, queue)):
            assert simulate(remove_token(program, queue, number)).violations


def test_nothing_to_do_is_a_sound_program() -> None:
    assert [type(each) for each in link_dependences([], {})] == [LoadInstruction, LoadInstruction, Finish]
