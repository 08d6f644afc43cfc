"""State: the arrays that compiled code executes a program on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.isa.config import Config, MemoryType
from boards.vta.simulator import accesses
from boards.vta.simulator.compiled.table import WIDTH, Numbers
from pipeline.system.memory import ALIGNMENT

STAMPS = ("INP_read", "INP_written", "WGT_read", "WGT_written", "ACC_read", "ACC_written")
"""Of each element, the last instruction of the one module that reads it, and of the one that writes it."""

DRAM_STAMPS = ("DRAM_read_by_load", "DRAM_read_by_compute", "DRAM_written")
"""Two modules read memory."""


@dataclass(frozen=True)
class Array:
    """The type and shape of an array; some extents are names of what each program decides."""

    dtype: str
    shape: tuple[int | str, ...]


def arrays(config: Config) -> dict[str, Array]:
    """Return the arrays of an accelerator, in the order of the compiled function's parameters."""
    row = config.batch * config.block
    depth = {
        memory.name: config.depth(memory) for memory in (MemoryType.UOP, MemoryType.INP, MemoryType.WGT, MemoryType.ACC)
    }
    return {
        "wrong": Array("int32", (1,)),
        "table": Array("int64", ("instructions", WIDTH)),
        "memory": Array("uint8", ("bytes",)),
        "uop": Array("uint32", (depth["UOP"],)),
        # Products of int8 are exact in float32, which every processor multiplies fast.
        "inp": Array("float32", (depth["INP"] * row,)),
        # Transposed: [element][input][output].
        "wgt": Array("float32", (depth["WGT"] * config.block**2,)),
        # Sums are modulo 2^32; of numbers with sign, LLVM leaves undefined what is beyond 31 bits.
        "acc": Array("uint32", (depth["ACC"] * row,)),
        **{name: Array("int32", (depth[name.partition("_")[0]],)) for name in STAMPS},
        **{name: Array("int32", ("grains",)) for name in DRAM_STAMPS},
    }


def allocate(config: Config, table: Numbers, memory: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays before a program starts: zeros, but for its table and a copy of its memory."""
    extents = {
        "instructions": len(table),
        "bytes": memory.size,
        "grains": -(-memory.size // accesses.grain_bytes(config)),
    }
    state = {
        name: _zeros([extents[each] if isinstance(each, str) else each for each in array.shape], array.dtype)
        for name, array in arrays(config).items()
    }
    state["table"][:], state["memory"][:] = table, memory
    return state


def _zeros(shape: list[int], dtype: str) -> npt.NDArray[Any]:
    """Return zeros, aligned for compiled code; the system gives their pages when they are first touched."""
    # With room to move the beginning to a multiple of the alignment, which NumPy does not promise.
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + nbytes].view(dtype).reshape(shape)
