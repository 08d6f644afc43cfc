"""Frames per second by RKNN's cycles are near those that Rockchip publishes (slow)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("onnx")

from compiled import NAMES, row

from pipeline.measure.quotes.compilers import variable


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_predicted_over_published(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = Path(os.environ.get(variable("rknn")) or ".venv/rknn/bin/python").absolute()
    if not python.exists():
        pytest.skip("rknn-toolkit2 is not installed; run: make rknn")
    monkeypatch.setenv(variable("rknn"), str(python))
    assert 0.8 <= row(name, tmp_path)["predicted_ratio"] <= 1.25
