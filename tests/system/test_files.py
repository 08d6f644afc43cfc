"""Files that are complete or not there have the rights of any new file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.system.files import write_atomically


@pytest.fixture(params=[0o077, 0o027, 0o022], ids=oct)
def mask(request: pytest.FixtureRequest) -> Iterator[int]:
    previous = os.umask(request.param)
    yield request.param
    os.umask(previous)


def test_a_file_has_the_rights_of_a_new_one(tmp_path: Path, mask: int) -> None:
    for _ in ("new", "replaced"):
        write_atomically(tmp_path / "plan.json", b"{}")
        assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == 0o666 & ~mask


def test_the_umask_of_the_process_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was 0 for a moment at each save: files that other threads made then could be written by everybody."""
    changes: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "umask", changes.append)
        write_atomically(tmp_path / "plan.json", b"{}")
    assert not changes
