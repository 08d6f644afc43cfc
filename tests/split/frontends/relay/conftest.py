"""Fixtures of the Relay tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def relay_folder(shared: Path) -> Path:
    """The folder of Relay programs that TVM has printed and run."""
    folder = shared / "relay"
    if not folder.is_dir():
        pytest.skip("the shared folder has no Relay programs, which this test reads")
    return folder
