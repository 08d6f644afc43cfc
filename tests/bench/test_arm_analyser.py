"""Estimates of LLVM's analyser for loops whose cycles its tables make certain."""

from __future__ import annotations

import pytest
from arm_analyser import Unavailable, cycles, tool, version
from arm_loops import Loop, innermost_loops


@pytest.fixture(autouse=True)
def _analyser() -> None:
    try:
        tool("llvm-mca")
    except Unavailable as error:
        pytest.skip(f"this system: {error}")


def products(count: int, extra: str = "") -> Loop:
    """Return a loop of so many independent products on registers."""
    lines = [f"  {number:x}:  \tfmla\tv{number}.4s, v30.4s, v31.4s" for number in range(count)]
    (loop,) = innermost_loops([*lines, f"  80:  \t{extra or 'nop'}", "  84:  \tb.ne\t0x0 <f>"])
    return loop


def test_a_core_starts_as_many_products_as_it_has_units() -> None:
    loop = products(16)
    for core, units in (("neoverse-n1", 2), ("cortex-a72", 1)):
        (turn,) = cycles([loop], core)
        assert turn is not None
        assert 16 / units <= turn <= 16 / units * 1.2


def test_tables_that_start_too_many_products_are_bounded() -> None:
    # LLVM says 8 for this core, whose two pipes are 64 bits wide.
    assert cycles([products(16)], "cortex-a55") == [16.0]


def test_a_loop_that_is_not_understood_does_not_hide_the_others() -> None:
    estimates = cycles([products(8), products(8, "nonsense\tx1"), products(16)], "neoverse-n1")
    assert estimates[1] is None
    assert estimates[0] is not None
    assert estimates[2] is not None
    assert estimates[0] < estimates[2]


def test_the_version_is_a_number() -> None:
    assert version()[0].isdigit()


def test_a_missing_tool_is_named() -> None:
    with pytest.raises(Unavailable, match="llvm-nonsense"):
        tool("llvm-nonsense")
