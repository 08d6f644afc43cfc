"""The short form of bench/soak.py."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.random_seeds import seeds


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch, root: Path) -> Any:
    monkeypatch.syspath_prepend(str(root / "bench"))
    monkeypatch.delitem(sys.modules, "soak", raising=False)
    import soak

    return soak


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_nothing_is_lost_doubled_or_left_behind(soak: Any, seed: int) -> None:
    report = soak.soak(3000, seed)
    assert report["frames"] == report["delivered"] + report["failed"] + report["cancelled"] == 3000
    assert report["failed"] > 0
    assert report["swaps"] > 0
    assert {name: report[name] for name in ("lost", "duplicated", "out_of_order", "wrong", "threads_left")} == {
        "lost": 0, "duplicated": 0, "out_of_order": 0, "wrong": 0, "threads_left": 0,
    }  # fmt: skip
