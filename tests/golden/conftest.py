"""What other people's programs computed: results of TVM 0.14's Relay, and memories of VTA's official simulator.

They are not part of this repository. Where they do not lie beside it, in the folder ``shared``, nothing here is
collected but one test, which says so: the same is promised of data that tests make themselves.
"""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "shared"

collect_ignore = [] if FOLDER.is_dir() else ["test_relay_programs.py", "test_vta_programs.py"]


@pytest.fixture(scope="session")
def relay_folder() -> Path:
    """The folder of Relay programs that TVM has printed and run."""
    return FOLDER / "relay"


@pytest.fixture(scope="session")
def golden_folder() -> Path:
    """The folder of programs that the official functional simulator has executed."""
    return FOLDER / "vta" / "golden"
