"""Edges of memories and scratchpads, up to the last byte and element."""

from dataclasses import replace

import pytest

from boards.vta import Config
from boards.vta.isa.config import MemoryType
from boards.vta.isa.instructions import Gemm, LoadInstruction, StoreInstruction
from boards.vta.simulator.checks import instruction_violations

CONFIG = Config()
ELEMENT = CONFIG.element_bytes(MemoryType.INP)
LOAD = LoadInstruction(memory_type=MemoryType.INP, x_size=2, y_size=3, x_stride=4)
"""Six elements, of which the last one in memory is the tenth."""
LAST = 10 * ELEMENT


@pytest.mark.parametrize(
    ("load", "start", "size", "fits"),
    [
        (LOAD, 0, LAST, True),
        (LOAD, 0, LAST - 1, False),
        (LOAD, 1, LAST, False),
        (LOAD, 1, LAST + 1, True),
        (LOAD, -1, LAST, False),
        # Padding alone reads no memory.
        (replace(LOAD, y_size=0, y_pad_0=1), -1, 0, True),
        (replace(LOAD, x_size=0), -1, 0, True),
    ],
)
def test_a_load_ends_with_the_memory(load: LoadInstruction, start: int, size: int, fits: bool) -> None:
    broken_rules = list(instruction_violations(CONFIG, load, start, size, hardware=False))
    assert [kind for kind, _ in broken_rules] == ([] if fits else ["bounds"])


@pytest.mark.parametrize(("room", "fits"), [(6, True), (5, False), (7, True)])
@pytest.mark.parametrize("is_load", [True, False])
def test_a_transfer_ends_with_the_scratchpad(room: int, fits: bool, is_load: bool) -> None:
    memory = MemoryType.INP if is_load else MemoryType.OUT
    base = CONFIG.depth(memory) - room
    store = StoreInstruction(memory_type=MemoryType.OUT, x_size=2, y_size=3, x_stride=4, sram_base=base)
    transfer = replace(LOAD, sram_base=base) if is_load else store
    broken_rules = list(instruction_violations(CONFIG, transfer, 0, 1 << 20, hardware=True))
    assert [kind for kind, _ in broken_rules] == ([] if fits else ["bounds"])


@pytest.mark.parametrize(("past_end", "fits"), [(0, True), (1, False)])
def test_micro_ops_end_with_the_scratchpad(past_end: int, fits: bool) -> None:
    gemm = Gemm(uop_bgn=0, uop_end=CONFIG.depth(MemoryType.UOP) + past_end)
    broken_rules = list(instruction_violations(CONFIG, gemm, 0, 0, hardware=True))
    assert [kind for kind, _ in broken_rules] == ([] if fits else ["bounds"])
