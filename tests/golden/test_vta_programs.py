"""The stored programs give the stored memory, bit for bit, and a board's violations are the stored ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from boards.vta import Config, VtaProgram, simulate
from boards.vta.isa import encoding
from boards.vta.simulator.compiled import execute
from tests.boards.vta.compiler.test_dependences import check_links, check_no_token_is_left_over
from tests.boards.vta.simulator.test_order import count_mismatches
from tests.support.vta import building, golden

pytestmark = pytest.mark.thorough

SOUND = [name for name in golden.NAMES if "fsim_only" not in name]
PIPELINED = [name for name in golden.NAMES if name.startswith(("14", "15", "16", "17", "18"))]
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


@pytest.mark.parametrize("name", PIPELINED)
@pytest.mark.one_in(3)
def test_without_any_one_token(golden_folder: Path, name: str) -> None:
    golden_program = golden.read(golden_folder, name)
    mismatches = count_mismatches(golden_program.program, golden_program.final_memory)
    assert mismatches or name in ("14_tokens_serial", "17_tokens_counting")


def test_double_buffering_hides_loads(golden_folder: Path) -> None:
    serial = simulate(golden.read(golden_folder, "14_tokens_serial").program).cycles
    double = simulate(golden.read(golden_folder, "15_tokens_double_buffer").program).cycles
    assert serial is not None
    assert double is not None
    assert serial.total > 0.95 * (serial.load + serial.compute + serial.store)
    assert max(double.load, double.compute) < double.total < 0.9 * (double.load + double.compute + double.store)


@pytest.mark.parametrize("name", golden.NAMES)
def test_stored_programs_run_compiled(golden_folder: Path, name: str) -> None:
    golden_program = golden.read(golden_folder, name)
    np.testing.assert_array_equal(execute(golden_program.program), golden_program.final_memory)


@pytest.mark.parametrize("name", SOUND)
def test_tokens_are_found_again(golden_folder: Path, name: str) -> None:
    golden_program = golden.read(golden_folder, name)
    check_links(golden_program.program, golden_program.final_memory)


@pytest.mark.parametrize("name", ["15_tokens_double_buffer", "18_dram_round_trip", "27_residual_add"])
def test_no_token_can_be_left_out(golden_folder: Path, name: str) -> None:
    check_no_token_is_left_over(golden.read(golden_folder, name).program)
