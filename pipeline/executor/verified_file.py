"""Content: bytes of a bundle file, verified during the only read.

A file may be overwritten or truncated at any time, also while it is mapped: then what was verified is no longer what is
run, or the system ends the process.  So the bytes are read once, into memory of this process's own.  Files that nobody
may write are mapped instead: processes share them, and the system may take their pages back.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from pipeline.system.memory import map_file, room

BLOCK = 1 << 20
"""Bytes per read: they are still in the processor's cache when their checksum is computed."""


class BundleFile(msgspec.Struct, frozen=True):
    """File of a bundle: name, size and checksum."""

    file: str
    nbytes: int
    sha256: str


class VerifiedContent:
    """Verified bytes.

    `array`: the bytes, which begin where kernels may rely on it; not to be written to, because others may use them too.
    """

    def __init__(self, sha256: str, array: np.ndarray) -> None:
        self.sha256, self.array = sha256, array


class DamagedFile(ValueError):
    """Raised when a file lacks its expected bytes."""


# Weak: the bytes leave the memory with the last bundle, or module, that uses them.
_living: weakref.WeakValueDictionary[str, VerifiedContent] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def open_regular(path: str | Path, folder: int | None = None) -> int:
    """Open a regular file without blocking, and return its descriptor.

    Raises `OSError` if it cannot be opened, or is a folder, a pipe or a device.

    `folder`: descriptor of the folder that `path` is relative to.
    """
    # Opening a pipe would wait until somebody writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it is no regular file", str(path))
    return descriptor


def read(descriptor: int, nbytes: int, sha256: str) -> VerifiedContent:
    """Read a verified file; bytes in use are shared, not duplicated.

    Raises
    ------
    DamagedFile
        If it has other bytes than those expected; the message says in which way.
    """
    if (size := os.fstat(descriptor).st_size) != nbytes:
        # Before anything is read, so that a file without end takes no memory.
        raise DamagedFile(f"has {size} bytes instead of {nbytes}")
    # Several bundles, or one that is loaded again, share the bytes in memory.
    with _lock:
        content = _living.get(sha256)
    target = None if content is None else content.array
    if target is None or target.nbytes != nbytes:
        content, target, blocks = None, *_contents(descriptor, nbytes)
    else:
        blocks = _blocks(descriptor, nbytes)
    if _sha256(blocks) != sha256:
        raise DamagedFile("has been changed (SHA-256 differs)")
    if content is not None:
        return content
    with _lock:
        # Another thread may have read the same bytes meanwhile; both go on with one copy.
        return _living.setdefault(sha256, VerifiedContent(sha256, target))


def _contents(descriptor: int, nbytes: int) -> tuple[np.ndarray, Iterator[memoryview]]:
    """Return a file's bytes, filled by iterating over its blocks."""
    if not nbytes or not _is_fixed(descriptor):
        array = room(nbytes)
        return array, _fill(descriptor, array)
    array = np.frombuffer(map_file(descriptor), np.uint8)
    return array, (array.data[start : start + BLOCK] for start in range(0, nbytes, BLOCK))


def _is_fixed(descriptor: int) -> bool:
    """Test that the file cannot be written."""
    is_read_only = bool(os.fstatvfs(descriptor).f_flag & os.ST_RDONLY)
    return is_read_only or not os.fstat(descriptor).st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)


def describe_file(path: Path) -> BundleFile:
    """Describe a file's current state for the manifest."""
    descriptor = open_regular(path)
    try:
        nbytes = os.fstat(descriptor).st_size
        return BundleFile(path.name, nbytes, _sha256(_blocks(descriptor, nbytes)))
    finally:
        os.close(descriptor)


def _sha256(blocks: Iterator[memoryview]) -> str:
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def _blocks(descriptor: int, nbytes: int) -> Iterator[memoryview]:
    """Yield a file's blocks in a reused buffer."""
    block = np.empty(min(nbytes, BLOCK), np.uint8)
    for start in range(0, nbytes, BLOCK):
        yield from _fill(descriptor, block[: nbytes - start])


def _fill(descriptor: int, target: np.ndarray) -> Iterator[memoryview]:
    """Read a file into an array, yielding its blocks."""
    unread = target.data
    while unread.nbytes:
        # Without a copy on the way, whatever the file's object would do.
        if not (count := os.readv(descriptor, [unread[:BLOCK]])):
            raise DamagedFile("became shorter while it was read")
        yield unread[:count]
        unread = unread[count:]
