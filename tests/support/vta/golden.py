"""The stored programs, with their memory before and after."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta import Config, VtaProgram

Bytes = npt.NDArray[np.uint8]

NAMES = (
    *("01_load_inp", "02_load_wgt", "03_load_uop", "04_load_acc", "05_gemm_uops", "06_gemm_loops"),
    *("07_gemm_reset_wrap", "08_alu_imm", "09_alu_tensor", "10_store_strided", "11_fsim_only_loads"),
    *("12_fsim_only_alu", "13_fsim_only_orderings", "14_tokens_serial", "15_tokens_double_buffer"),
    *("16_tokens_pipeline", "17_tokens_counting", "18_dram_round_trip", "19_field_extremes", "20_dense_64x32"),
    *("21_conv1x1", "22_conv3x3_s1", "23_conv3x3_s2", "24_conv7x7_s2", "25_conv3x3_tiled"),
    *("26_conv3x3_per_channel", "27_residual_add", "28_max_pool_2x2"),
)


@dataclass(frozen=True, eq=False)
class Golden:
    """One of them.

    `offending` are the instructions that a board does not execute like the functional simulator.
    """

    program: VtaProgram
    final_memory: Bytes
    stream: npt.NDArray[np.uint64]
    uops: npt.NDArray[np.uint32]
    offending: set[int]


def read(folder: Path, name: str) -> Golden:
    with np.load(folder / f"{name}.npz") as archive:
        meta = json.loads(archive["meta"].item())
        base, end = map(int, archive["dram_range"])
        memory = np.zeros(end - base, np.uint8)
        _fill(memory, base, archive, "dram_init")
        final_memory = memory.copy()
        _fill(final_memory, base, archive, "dram_final")
        program = VtaProgram.of_stream(Config(), archive["insns"], memory, base)
        offending = {index for index, _ in meta["hls_violations"]}
        assert meta["hls_safe"] == (not offending)
        return Golden(program, final_memory, archive["insns"], archive["uops"], offending)


def _fill(memory: Bytes, base: int, archive: Any, key: str) -> None:
    ends = np.cumsum(archive[f"{key}_map"][:, 1].astype(int))
    for (address, length), end in zip(archive[f"{key}_map"].astype(int), ends, strict=True):
        memory[address - base : address - base + length] = archive[key][end - length : end]
