"""Streams with faults: the books balance, nothing is lost, doubled or mixed up, and nothing is allocated."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pipeline.core.board import Board, Device
from pipeline.core.plan import Plan, StagePlan, TensorSpec
from tests.support.arithmetic_bundles import ArithmeticCodes, Code, save

FACTORS = (2, 3, 5)
FAILING = frozenset({3, 9})


@pytest.fixture(scope="module")
def faulty(codes: ArithmeticCodes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three stages, two of them with replicas, of which two fail on some frames."""
    specs = [TensorSpec(f"t{number}", (2,), "int64") for number in range(4)]
    stages = tuple(
        StagePlan(f"s{number}", "cpu", (specs[number],), (specs[number + 1],), replicas=replicas, queue_depth=2)
        for number, replicas in enumerate((1, 3, 2))
    )
    plan = Plan("faulty", "", Board("one", (Device("cpu"),)), (specs[0],), (specs[3],), stages)
    first, second = sorted(FAILING)
    failing = (frozenset({first}), frozenset[int](), frozenset({second}))
    stage_codes = [Code(factor, failing=kinds) for factor, kinds in zip(FACTORS, failing, strict=True)]
    return save(plan, stage_codes, codes, tmp_path_factory.mktemp("faulty") / "faulty.bundle")


def stress(
    program: Path, bundle: Path, frames: int, admission: str, environment: dict[str, str] | None = None
) -> list[int]:
    """Return how many frames were delivered, dropped, failed and cancelled."""
    mask = sum(1 << kind for kind in FAILING)
    command = [str(program), str(bundle), str(frames), admission, str(FACTORS[0] * FACTORS[1] * FACTORS[2]), str(mask)]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=1700, env={**os.environ, **(environment or {})}
    )
    assert result.returncode == 0, result.stderr[-6000:]
    return [int(word) for word in result.stdout.split()]


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
