"""Boards' figures follow from the table of estimates, and are written by one command."""

from __future__ import annotations

import re

import pytest

import boards
from pipeline.core.board.board import Device
from pipeline.executor import core_estimates
from tools.arm import table

RATES = {"cortex-a76": {"float32": 7.5, "int8": 24.0}, "cortex-a55": {"float32": 3.5, "int8": 11.0}}

BOARD = """\
# A Cortex-A76 of 2 GHz, by tools/arm/table.py: ?
flops = 0
int8_flops = 0
bytes_per_s = 1e10

# A Cortex-A55 of 1 GHz, by tools/arm/table.py: ?
[[devices.clusters]]
speed = 0.5
flops = 7
"""

CLOCK = re.compile(r"# A (Cortex-\w+) of ([\d.]+) GHz, by tools/arm/table\.py: ")

ESTIMATED = [
    name
    for name in boards.names()
    if name != boards.HOST and any("aarch64" in str((device.target or {}).get("mtriple")) for device in
                                   boards.get(name).devices)
]  # fmt: skip


def test_figures_are_products_times_clock() -> None:
    text = table.with_figures(BOARD, RATES)
    assert "of 2 GHz, by tools/arm/table.py: 7.5 products per cycle in float32, 24.0 in int8.\n" in text
    assert "flops = 3.00e10\nint8_flops = 9.60e10\nbytes_per_s = 1e10\n" in text
    assert "of 1 GHz, by tools/arm/table.py: 0.23 times a Cortex-A76 in float32.\n" in text
    assert "\nspeed = 0.23\nflops = 7\n" in text
    assert table.with_figures(text, RATES) == text


@pytest.mark.parametrize("name", ESTIMATED)
def test_the_boards_have_the_figures_of_the_table(name: str) -> None:
    text = boards.board_path(name).read_text()
    rates = core_estimates.table().products_per_cycle
    assert table.with_figures(text, rates) == text, f"run {table.COMMAND} --boards-only"
    (core, clock), *smaller = CLOCK.findall(text)
    cpu = boards.get(name).devices[0]
    assert core.lower() == mcpu(cpu)
    assert cpu.flops == pytest.approx(2e9 * float(clock) * rates[core.lower()]["float32"], rel=0.005)
    assert cpu.int8_flops == pytest.approx(2e9 * float(clock) * rates[core.lower()]["int8"], rel=0.005)
    for small_core, small_clock in smaller:
        little = cpu.clusters[-1]
        assert (little.target or {})["mcpu"] == small_core.lower()
        share = rates[small_core.lower()]["float32"] / rates[core.lower()]["float32"]
        assert little.speed == pytest.approx(share * float(small_clock) / float(clock), abs=0.006)


def mcpu(device: Device) -> str:
    return str((device.target or {})["mcpu"])


def test_the_table_is_one_of_estimates() -> None:
    estimates = core_estimates.table()
    assert estimates.command == table.COMMAND
    assert set(estimates.products_per_cycle) == set(table.CORES)
    for rates in estimates.products_per_cycle.values():
        # Two vectors of four products start in a cycle at most, or two of sixteen with dot products.
        assert 0 < rates["float32"] <= 8
        assert 0 < rates["int8"] <= 32
    assert {frozenset((core, other)) for core, others in estimates.foreign_code.items() for other in others} == set(
        map(frozenset, table.PAIRS)
    )
