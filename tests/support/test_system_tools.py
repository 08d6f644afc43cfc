"""A program that is missing or too old is a skip that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.system_tools import find_fault


@pytest.mark.parametrize(
    ("prints", "least", "fault"),
    [
        ("Debian tool version 14.0.6", (14,), ""),
        ("tool 9.10", (9, 9), ""),
        ("tool (GNU) 4.2.1", (11,), "this system's fake-1 is of version 4.2.1, and this needs 11 or newer"),
        ("", (1, 2), "this system's fake-1 is of version 0, and this needs 1.2 or newer"),
        (None, (1,), "this system has no fake-1"),
    ],
)
def test_a_version_is_asked_of_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str | None, least: tuple[int, ...], fault: str
) -> None:
    find_fault.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    if prints is not None:
        (tmp_path / "fake-1").write_text(f"#!/bin/sh\necho '{prints}'\n")
        (tmp_path / "fake-1").chmod(0o755)
    assert find_fault("fake-1", least) == fault
    find_fault.cache_clear()
