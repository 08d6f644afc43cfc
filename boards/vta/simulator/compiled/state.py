"""State: arrays of a compiled program run."""

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
"""Stamps per element: the last instruction of the only reading module, and of the writing one."""

DRAM_STAMPS = ("DRAM_read_by_load", "DRAM_read_by_compute", "DRAM_written")
"""Two modules read memory."""


@dataclass(frozen=True)
class Array:
    """Type and shape of an array; names stand for extents per program."""

    dtype: str
    shape: tuple[int | str, ...]


def arrays(config: Config) -> dict[str, Array]:
    """Return an accelerator's arrays, in parameter order."""
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
    """Return the initial arrays: zeros, the table, and a memory copy."""
    extents = {
        "instructions": len(table),
        "bytes": memory.size,
        "grains": -(-memory.size // accesses.grain_bytes(config)),
    }
    state = {
        name: _zeros([extents[extent] if isinstance(extent, str) else extent for extent in array.shape], array.dtype)
        for name, array in arrays(config).items()
    }
    state["table"][:], state["memory"][:] = table, memory
    return state


def _zeros(shape: list[int], dtype: str) -> npt.NDArray[Any]:
    """Return aligned zeros, with pages assigned on first touch."""
    # With room to move the beginning to a multiple of the alignment, which NumPy does not promise.
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + nbytes].view(dtype).reshape(shape)
