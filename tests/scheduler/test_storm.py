"""Random pipelines of null, simulated and real stages under random calls, callbacks, interrupts, failures and forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def blow(root: Path, seed: int, rounds: int, seconds: float) -> str:
    command = [sys.executable, "-m", "tests.support.storm", str(seed), str(rounds)]
    process = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=seconds, check=False)
    assert process.returncode == 0, f"{process.stdout}\n{process.stderr}"
    return process.stdout


def test_a_short_storm_is_survived(root: Path) -> None:
    assert "40 rounds: {'delivered': " in blow(root, 1000, 40, 100)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_long_storm_is_survived(root: Path) -> None:
    assert "3000 rounds: {'delivered': " in blow(root, 50_000, 3000, 1100)
