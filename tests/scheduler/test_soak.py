"""The short form of bench/soak.py."""

import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch, root: Path) -> Any:
    monkeypatch.syspath_prepend(str(root / "bench"))
    monkeypatch.delitem(sys.modules, "soak", raising=False)
    import soak

    return soak


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_doubled_or_left_behind(soak: Any, seed: int) -> None:
    found = soak.soak(3000, seed)
    assert found["frames"] == found["delivered"] + found["failed"] + found["cancelled"] == 3000
    assert found["failed"] > 0
    assert found["swaps"] > 0
    assert {name: found[name] for name in ("lost", "duplicated", "out_of_order", "wrong", "threads_left")} == {
        "lost": 0, "duplicated": 0, "out_of_order": 0, "wrong": 0, "threads_left": 0,
    }  # fmt: skip
