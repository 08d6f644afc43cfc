"""Small programs for tests: memory with a region for each kind of data, and instructions in serial order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta import Config, Program
from boards.vta.config import Memory
from boards.vta.encoding import encode_uops
from boards.vta.instructions import Finish, Instruction, Load, Stage, Store, Uop

BASE = 0x10000
REGION = 1 << 16
"""Bytes of each of the five regions: micro-ops, weights, inputs, accumulators, results."""
REGIONS = (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC, Memory.OUT)


def program(config: Config, instructions: Sequence[Instruction], uops: Sequence[Uop] = (), seed: int = 0) -> Program:
    """Return a program on random data."""
    memory = np.random.default_rng(seed).integers(0, 256, REGION * len(REGIONS), np.uint8)
    words = encode_uops(config, uops).view(np.uint8)
    memory[: words.size] = words
    return Program(config, tuple(instructions), memory, BASE)


def element(config: Config, memory: Memory, index: int = 0) -> int:
    """Return the `dram_base` of an element of a region."""
    return (BASE + REGIONS.index(memory) * REGION) // config.element_bytes(memory) + index


def load(config: Config, memory: Memory, count: int, sram: int = 0, index: int = 0, **flags: Any) -> Load:
    """Return a LOAD of one row."""
    place: dict[str, Any] = {"sram_base": sram, "dram_base": element(config, memory, index)}
    return Load(memory_type=memory, y_size=1, x_size=count, x_stride=count, **place, **flags)


def store(config: Config, count: int, sram: int = 0, index: int = 0, **flags: Any) -> Store:
    """Return a STORE of one row."""
    place: dict[str, Any] = {"sram_base": sram, "dram_base": element(config, Memory.OUT, index)}
    return Store(y_size=1, x_size=count, x_stride=count, **place, **flags)


def serial(instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """Return the instructions such that each waits for the one before, and FINISH for all."""
    done: list[Instruction] = []
    for each in (*instructions, Load(memory_type=Memory.UOP)):
        while done and done[-1].stage != each.stage:
            step = 1 if each.stage > done[-1].stage else -1
            done[-1] = replace(done[-1], **{"push_next" if step > 0 else "push_prev": True})
            if done[-1].stage + step == each.stage:
                each = replace(each, **{"pop_prev" if step > 0 else "pop_next": True})  # noqa: PLW2901
                break
            assert done[-1].stage + step == Stage.COMPUTE
            done.append(Load(memory_type=Memory.UOP, pop_prev=step > 0, pop_next=step < 0))
        done.append(each)
    # A load of nothing keeps the first instruction of compute from waiting.
    return (Load(memory_type=Memory.UOP), *done, Finish())


def outputs(config: Config, memory: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.int8]:
    """Return the first elements of the region of results, ``int8[count, batch * block]``."""
    start = REGIONS.index(Memory.OUT) * REGION
    nbytes = count * config.element_bytes(Memory.OUT)
    return memory[start : start + nbytes].view(np.int8).reshape(count, -1)
