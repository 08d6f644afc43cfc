"""The stored programs give the stored memory, bit for bit, and a board's violations are the stored ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from boards.vta import Config, Program, encoding, simulate
from tests.boards.vta import golden

SEEDS = [None, 0, 1, 2, 3]


def test_all_programs_are_known(golden_folder: Path) -> None:
    assert tuple(sorted(path.stem for path in golden_folder.glob("*.npz"))) == golden.NAMES


@pytest.mark.parametrize("name", golden.NAMES)
def test_functional_mode(golden_folder: Path, name: str) -> None:
    stored = golden.read(golden_folder, name)
    before = stored.program.memory.copy()
    for seed in SEEDS:
        result = simulate(stored.program, "functional", seed=seed)
        assert result.violations == ()
        np.testing.assert_array_equal(result.memory, stored.expected)
    np.testing.assert_array_equal(stored.program.memory, before)


@pytest.mark.parametrize("name", golden.NAMES)
def test_hardware_mode(golden_folder: Path, name: str) -> None:
    stored = golden.read(golden_folder, name)
    for seed in SEEDS:
        result = simulate(stored.program, seed=seed)
        assert {violation.index for violation in result.violations} == stored.offending
        if stored.offending:
            assert result.memory is None
        else:
            np.testing.assert_array_equal(result.memory, stored.expected)


@pytest.mark.parametrize("name", golden.NAMES)
def test_streams_and_micro_ops_round_trip(golden_folder: Path, name: str) -> None:
    stored = golden.read(golden_folder, name)
    config = stored.program.config
    np.testing.assert_array_equal(stored.program.stream(), stored.stream)
    uops = encoding.decode_uops(config, stored.uops)
    np.testing.assert_array_equal(encoding.encode_uops(config, uops), stored.uops)


@pytest.mark.parametrize("name", ["19_field_extremes", "25_conv3x3_tiled", "28_max_pool_2x2"])
def test_the_old_version_and_another_address_give_the_same(golden_folder: Path, name: str) -> None:
    stored = golden.read(golden_folder, name)
    old = replace(stored.program, config=Config("ultra96", "0.0.1"))
    moved = old.at(old.base + 0x12345000)
    assert not np.array_equal(moved.stream(), stored.stream)
    result = simulate(Program.of_stream(moved.config, moved.stream(), moved.memory, moved.base))
    assert result.violations == ()
    np.testing.assert_array_equal(result.memory, stored.expected)
