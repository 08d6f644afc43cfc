"""Whether other people's results are here to compare with."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_programs_and_their_results_are_here(root: Path) -> None:
    if not (root.parent / "shared").is_dir():
        pytest.skip(
            "results of TVM 0.14's Relay and of VTA's official simulator are in no folder 'shared' beside the project;"
            " other tests compare with NumPy and ONNX Runtime"
        )
    assert (root.parent / "shared" / "relay" / "README.md").exists()
    assert (root.parent / "shared" / "vta" / "README.md").exists()
