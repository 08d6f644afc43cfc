"""Programs whose tokens were taken away get others that are right, and none too many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from boards.vta import VtaProgram, simulate
from boards.vta.compiler.dependences import UnlinkedInstruction, link_dependences
from boards.vta.isa.config import MemoryType
from boards.vta.isa.instructions import Alu, Finish, Gemm, LoadInstruction, StoreInstruction
from boards.vta.simulator import accesses
from boards.vta.simulator.access_patterns import pieces
from tests.support.vta.layer_programs import LAYERS, layer_program
from tests.support.vta.tokens import count_tokens, remove_token

BARE = {"pop_prev": False, "pop_next": False, "push_prev": False, "push_next": False}


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


def check_links(program: VtaProgram, memory: npt.NDArray[np.uint8]) -> None:
    """Check that a program with other tokens ends with this memory, in any order of the modules."""
    linked = link_again(program)
    for seed in (None, 0, 1):
        result = simulate(linked, seed=seed)
        assert result.violations == ()
        np.testing.assert_array_equal(result.memory, memory)


def check_no_token_is_left_over(program: VtaProgram) -> None:
    """Check that each token is needed."""
    linked = link_again(program)
    for queue in range(4):
        for number in range(count_tokens(linked, queue)):
            assert simulate(remove_token(linked, queue, number)).violations


def link_again(program: VtaProgram) -> VtaProgram:
    sizes = accesses.memory_sizes(program.config, program.memory.size)
    return replace(program, instructions=link_dependences(works(program), sizes))


@pytest.mark.parametrize("name", LAYERS)
def test_programs_get_their_tokens_again(name: str) -> None:
    check_links(*layer_program(name))


@pytest.mark.parametrize("name", LAYERS)
def test_no_token_can_be_left_out(name: str) -> None:
    check_no_token_is_left_over(layer_program(name)[0])


def test_nothing_to_do_is_a_sound_program() -> None:
    assert [type(each) for each in link_dependences([], {})] == [LoadInstruction, LoadInstruction, Finish]
