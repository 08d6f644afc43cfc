"""Files that nobody may write are mapped, and shared; the others are read into memory of the process's own."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pipeline.executor import verified_file
from pipeline.executor.verified_file import DamagedFile, VerifiedContent
from pipeline.system.memory import is_usable
from tests.support.alive import collect


def read(path: Path) -> VerifiedContent:
    expected = verified_file.describe_file(path)
    return read_as(path, expected.nbytes, expected.sha256)


def read_as(path: Path, nbytes: int, sha256: str) -> VerifiedContent:
    descriptor = verified_file.open_regular(path)
    try:
        return verified_file.read(descriptor, nbytes, sha256)
    finally:
        os.close(descriptor)


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "stage0.parameters"
    path.write_bytes(np.random.default_rng(5).bytes(3 << 20) + b"odd")
    return path


def test_what_may_be_overwritten_is_read(path: Path) -> None:
    data = path.read_bytes()
    content = read(path)
    assert not is_mapped(path)
    path.write_bytes(b"other")
    assert content.array.tobytes() == data


def test_what_nobody_may_write_is_mapped(path: Path) -> None:
    data = path.read_bytes()
    path.chmod(0o444)
    content = read(path)
    assert is_mapped(path)
    assert content.array.tobytes() == data
    assert is_usable(content.array), "by TVM, in place"
    # A copy of the page: neither the file nor another process sees it.
    content.array[0] ^= 1
    assert path.read_bytes() == data
    del content
    collect()
    assert not is_mapped(path)


def test_a_map_is_verified_as_well(path: Path) -> None:
    expected = verified_file.describe_file(path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    path.chmod(0o444)
    with pytest.raises(DamagedFile, match="SHA-256 differs"):
        read_as(path, expected.nbytes, expected.sha256)
    assert not is_mapped(path)


def test_an_empty_file_is_no_map(path: Path) -> None:
    path.write_bytes(b"")
    path.chmod(0o444)
    assert read(path).array.nbytes == 0
