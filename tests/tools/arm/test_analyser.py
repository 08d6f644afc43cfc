"""Estimates of LLVM's analyser for loops whose cycles its tables make certain."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.arm.analyser import Unavailable, cycles, tool, version
from tools.arm.loops import Loop, innermost_loops


@pytest.fixture
def analyser() -> None:
    """LLVM's analyser, of a release whose tables are certain: others say other cycles."""
    try:
        release = version()
    except Unavailable as error:
        pytest.skip(f"this system: {error}")
    if not release.startswith("22."):
        pytest.skip(f"this system's llvm-mca is of LLVM {release}, and these cycles are those of LLVM 22")


def products(count: int, extra: str = "") -> Loop:
    """Return a loop of so many independent products on registers."""
    lines = [f"  {number:x}:  \tfmla\tv{number}.4s, v30.4s, v31.4s" for number in range(count)]
    (loop,) = innermost_loops([*lines, f"  80:  \t{extra or 'nop'}", "  84:  \tb.ne\t0x0 <f>"])
    return loop


@pytest.mark.usefixtures("analyser")
def test_a_core_starts_as_many_products_as_it_has_units() -> None:
    loop = products(16)
    for core, units in (("neoverse-n1", 2), ("cortex-a72", 1)):
        (turn,) = cycles([loop], core)
        assert turn is not None
        assert 16 / units <= turn <= 16 / units * 1.2


@pytest.mark.usefixtures("analyser")
def test_tables_that_start_too_many_products_are_bounded() -> None:
    # LLVM says 8 for this core, whose two pipes are 64 bits wide.
    assert cycles([products(16)], "cortex-a55") == [16.0]


@pytest.mark.usefixtures("analyser")
def test_a_loop_that_is_not_understood_does_not_hide_the_others() -> None:
    estimates = cycles([products(8), products(8, "nonsense\tx1"), products(16)], "neoverse-n1")
    assert estimates[1] is None
    assert estimates[0] is not None
    assert estimates[2] is not None
    assert estimates[0] < estimates[2]


@pytest.mark.usefixtures("analyser")
def test_the_version_is_a_number() -> None:
    assert version()[0].isdigit()


def test_a_missing_tool_is_named() -> None:
    with pytest.raises(Unavailable, match="llvm-nonsense"):
        tool("llvm-nonsense")


def test_a_tool_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llvm-fake").write_text("#!/bin/sh\necho 'Debian LLVM version 11.0.1'\n")
    (tmp_path / "llvm-fake").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"llvm-fake is of LLVM 11\.0\.1, which is older than 22"):
        tool("llvm-fake")
