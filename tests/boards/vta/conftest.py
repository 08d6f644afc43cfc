"""Fixtures of the VTA tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def golden_folder(shared: Path) -> Path:
    """The folder of programs that the official functional simulator has executed."""
    folder = shared / "vta" / "golden"
    if not folder.is_dir():
        pytest.skip("the shared folder has no VTA programs, which this test reads")
    return folder
