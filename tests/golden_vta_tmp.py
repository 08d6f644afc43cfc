"""The stored programs give the stored memory, bit for bit, and a board's violations are the stored ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from boards.vta import Config, VtaProgram, simulate
from boards.vta.isa import encoding
from tests.support.vta import building, golden

SEEDS = [None, 0, 1, 2, 3]


def test_all_programs_are_known(golden_folder: Path) -> None:
    assert tuple(sorted(path.stem for path in golden_folder.glob("*.npz"))) == golden.NAMES


@pytest.mark.parametrize("name", golden.NAMES)
def test_functional_mode(golden_folder: Path, name: str) -> None:
    golden_program = golden.read(golden_folder, name)
    original_memory = golden_program.program.memory.copy()
    for seed in SEEDS:
        result = simulate(golden_program.program, "functional", seed=seed)
        assert result.violations == ()
        np.testing.assert_array_equal(result.memory, golden_program.final_memory)
    np.testing.assert_array_equal(golden_program.program.memory, original_memory)


@pytest.mark.parametrize("name", golden.NAMES)
def test_hardware_mode(golden_folder: Path, name: str) -> None:
    golden_program = golden.read(golden_folder, name)
    for seed in SEEDS:
        result = simulate(golden_program.program, seed=seed)
        assert {violation.index for violation in result.violations} == golden_program.offending
        if golden_program.offending:
            assert result.memory is None
        else:
            np.testing.assert_array_equal(result.memory, golden_program.final_memory)


@pytest.mark.parametrize("name", golden.NAMES)
def test_streams_and_micro_ops_round_trip(golden_folder: Path, name: str) -> None:
    golden_program = golden.read(golden_folder, name)
    config = golden_program.program.config
    np.testing.assert_array_equal(golden_program.program.stream(), golden_program.stream)
    uops = encoding.decode_uops(config, golden_program.uops)
    np.testing.assert_array_equal(building.encode_uops(config, uops), golden_program.uops)


@pytest.mark.parametrize("name", ["19_field_extremes", "25_conv3x3_tiled", "28_max_pool_2x2"])
def test_the_old_version_and_another_address_give_the_same(golden_folder: Path, name: str) -> None:
    golden_program = golden.read(golden_folder, name)
    old_program = replace(golden_program.program, config=Config("ultra96", "0.0.1"))
    relocated_program = old_program.relocate(old_program.base + 0x12345000)
    assert not np.array_equal(relocated_program.stream(), golden_program.stream)
    result = simulate(
        VtaProgram.of_stream(
            relocated_program.config, relocated_program.stream(), relocated_program.memory, relocated_program.base
        )
    )
    assert result.violations == ()
    np.testing.assert_array_equal(result.memory, golden_program.final_memory)
