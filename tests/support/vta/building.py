"""Small programs for tests: memory with a region for each kind of data, and instructions in serial order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta import Config, VtaProgram
from boards.vta.isa.config import MemoryType
from boards.vta.isa.encoding import Uops, pack_uops
from boards.vta.isa.instructions import (
    Finish,
    Gemm,
    HardwareModule,
    Instruction,
    LoadInstruction,
    StoreInstruction,
    Uop,
)

BATCHED = Config(
    "pynq",
    "0.0.1",
    log_batch=2,
    log_block=3,
    log_inp_buff_size=16,
    log_wgt_buff_size=16,
    log_acc_buff_size=18,
)
"""The other configuration that there is a bitstream of."""

BASE = 0x10000
REGION = 1 << 16
"""Bytes of each of the five regions: micro-ops, weights, inputs, accumulators, results."""
REGIONS = (MemoryType.UOP, MemoryType.WGT, MemoryType.INP, MemoryType.ACC, MemoryType.OUT)


def encode_uops(config: Config, uops: Sequence[Uop]) -> Uops:
    """Return micro-ops as ``uint32[n]``, as they lie in memory."""
    indices = np.array([astuple(uop) for uop in uops], np.int64).reshape(-1, 3)
    return pack_uops(config, *indices.T)


def program(config: Config, instructions: Sequence[Instruction], uops: Sequence[Uop] = (), seed: int = 0) -> VtaProgram:
    """Return a program on random data."""
    memory = np.random.default_rng(seed).integers(0, 256, REGION * len(REGIONS), np.uint8)
    words = encode_uops(config, uops).view(np.uint8)
    memory[: words.size] = words
    return VtaProgram(config, tuple(instructions), memory, BASE)


def element(config: Config, memory: MemoryType, index: int = 0) -> int:
    """Return the `dram_base` of an element of a region."""
    return (BASE + REGIONS.index(memory) * REGION) // config.element_bytes(memory) + index


def load(
    config: Config, memory: MemoryType, count: int, sram: int = 0, index: int = 0, **flags: Any
) -> LoadInstruction:
    """Return a LOAD of one row."""
    addresses: dict[str, Any] = {"sram_base": sram, "dram_base": element(config, memory, index)}
    return LoadInstruction(memory_type=memory, y_size=1, x_size=count, x_stride=count, **addresses, **flags)


def store(config: Config, count: int, sram: int = 0, index: int = 0, **flags: Any) -> StoreInstruction:
    """Return a STORE of one row."""
    addresses: dict[str, Any] = {"sram_base": sram, "dram_base": element(config, MemoryType.OUT, index)}
    return StoreInstruction(y_size=1, x_size=count, x_stride=count, **addresses, **flags)


def serial(instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """Return the instructions such that each waits for the one before, and FINISH for all."""
    sequence: list[Instruction] = []
    for instruction in (*instructions, LoadInstruction(memory_type=MemoryType.UOP)):
        while sequence and sequence[-1].module != instruction.module:
            step = 1 if instruction.module > sequence[-1].module else -1
            sequence[-1] = replace(sequence[-1], **{"push_next" if step > 0 else "push_prev": True})
            if sequence[-1].module + step == instruction.module:
                instruction = replace(instruction, **{"pop_prev" if step > 0 else "pop_next": True})  # noqa: PLW2901
                break
            assert sequence[-1].module + step == HardwareModule.COMPUTE
            sequence.append(LoadInstruction(memory_type=MemoryType.UOP, pop_prev=step > 0, pop_next=step < 0))
        sequence.append(instruction)
    # A load of nothing keeps the first instruction of compute from waiting.
    return (LoadInstruction(memory_type=MemoryType.UOP), *sequence, Finish())


def outputs(config: Config, memory: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.int8]:
    """Return the first elements of the region of results, ``int8[count, batch * block]``."""
    start = REGIONS.index(MemoryType.OUT) * REGION
    nbytes = count * config.element_bytes(MemoryType.OUT)
    return memory[start : start + nbytes].view(np.int8).reshape(count, -1)


def small_program() -> VtaProgram:
    """Return a program with one instruction of each module."""
    config = Config()
    loads = [load(config, memory, 1) for memory in (MemoryType.UOP, MemoryType.INP, MemoryType.WGT, MemoryType.ACC)]
    steps = [*loads, Gemm(uop_bgn=0, uop_end=1), store(config, 1)]
    return program(config, serial(steps), [Uop(0)])
