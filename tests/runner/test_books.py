"""Streams with faults: the books balance, nothing is lost, doubled or mixed up, and nothing is allocated."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.arithmetic_bundles import stress


@pytest.mark.parametrize("admission", ["block", "latest"])
def test_the_books_balance(native: Path, faulty: Path, admission: str) -> None:
    delivered, dropped, failed, _ = stress(native / "stress", faulty, 20_000, admission)
    assert delivered + failed > 0
    # With a fixed part of all frames, where none is dropped.
    assert failed > 1000 or dropped > 0
    assert (dropped > 0) == (admission == "latest")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("admission", ["block", "latest"])
def test_the_books_of_a_million_frames_balance(native: Path, faulty: Path, admission: str) -> None:
    assert sum(stress(native / "stress", faulty, 1_000_000, admission)) == 1_000_000


@pytest.mark.parametrize("name", ["digits", "faulty"])
def test_nothing_is_allocated_for_a_frame(native: Path, name: str, request: pytest.FixtureRequest) -> None:
    """Counted are the runner's own calls; TVM takes what it needs for a frame from a pool of its own."""
    bundle = request.getfixturevalue(name)
    environment = {**os.environ, "LD_PRELOAD": str(native / "liballocations.so")}
    result = subprocess.run(
        [native / "steady", bundle], capture_output=True, text=True, check=True, timeout=100, env=environment
    )
    opening, streaming = map(int, result.stdout.split())
    assert opening > 50, "those of opening are seen"
    assert streaming == 0
