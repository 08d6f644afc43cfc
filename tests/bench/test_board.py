"""The table that a board's owner sends in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import board
import pytest


def test_facts_and_rows_become_markdown() -> None:
    rows = [
        {"network": "a", "ours_ms": 1.23456, "ratio": None},
        {"network": "b", "ours_ms": 20.0, "other_code_ms": 2.0},
    ]
    lines = board.markdown({"board": "Raspberry Pi 5", "governor": ""}, rows).splitlines()
    assert lines == [
        "- board: Raspberry Pi 5",
        "",
        "| network | ours_ms | ratio | other_code_ms |",
        "| --- | --- | --- | --- |",
        "| a | 1.235 | - | - |",
        "| b | 20 | - | 2 |",
    ]


def test_this_machine_has_a_kind_of_core() -> None:
    kind = board.core_kinds_here()[0]
    assert kind.name
    assert kind.core in kind.device.cores


@pytest.mark.slow
def test_it_measures_this_machine(root: Path) -> None:
    command = [sys.executable, "bench/board.py", "--quick"]
    process = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=600)
    assert process.returncode == 0, process.stderr
    header, _, *rows = [line.split(" | ") for line in process.stdout.splitlines() if line.startswith("|")]
    for row in rows:
        values = dict(zip(header, row, strict=True))
        assert float(values["ours_ms"]) > 0
        assert float(values["ratio"]) > 0
