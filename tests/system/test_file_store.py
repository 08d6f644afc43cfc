"""A store keeps contents by key, whole or not at all, and no more than its bytes."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.system.file_store import FileStore


def test_contents_come_back(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", 1000)
    assert store.get("a") is None
    store.put("a", b"one")
    store.put("a", b"two")
    content = store.get("a")
    assert content is not None
    assert bytes(content) == b"two"


def test_a_damaged_content_is_none(tmp_path: Path) -> None:
    store = FileStore(tmp_path, 1000)
    for damage in (b"", b"short", bytes(40)):
        store.put("a", b"content")
        (tmp_path / "a").write_bytes(damage)
        assert store.get("a") is None
        assert not (tmp_path / "a").exists()


def test_the_least_recently_used_makes_room(tmp_path: Path) -> None:
    store = FileStore(tmp_path, 300)
    for age, key in enumerate("abc"):
        store.put(key, bytes(100))
        os.utime(tmp_path / key, (age, age))
    assert store.get("a") is not None
    store.make_room()
    # A file is the content with its checksum of 32 bytes.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c"]


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = FileStore(tmp_path / "file", 300)
    store.put("a", b"content")
    store.make_room()
    assert store.get("a") is None
