"""Stores: files and folders by key, shared between processes, bounded, the most recently used."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.system import leftovers
from pipeline.system.files import open_replacement

_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True)
class FileStore:
    """Contents by key, each a file behind its checksum."""

    root: Path
    limit: int
    """Bytes that stay; the least recently used makes room."""

    def get(self, key: str) -> memoryview | None:
        """Return a key's content; None without one, or of a damaged one, which is removed."""
        path = self.root / key
        try:
            data = memoryview(path.read_bytes())
        except OSError:
            return None
        content = data[_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != data[:_DIGEST_BYTES]:
            leftovers.remove(path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Keep a content, whole or not at all; a folder that cannot be written keeps none."""
        with contextlib.suppress(OSError):
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open_replacement(self.root / key, cleans=False) as stream:
                stream.write(hashlib.sha256(content).digest())
                stream.write(content)

    def make_room(self) -> None:
        """Remove the least recently used contents beyond `limit`, and what ended processes have left."""
        with contextlib.suppress(OSError):
            leftovers.remove_files(self.root, ".*")
            with os.scandir(self.root) as entries:
                # Those with a dot are being written.
                files = [(entry.path, entry.stat()) for entry in entries if not entry.name.startswith(".")]
            total = 0
            for path, status in sorted(files, key=lambda file: -file[1].st_mtime_ns):
                total += status.st_size
                if total > self.limit:
                    leftovers.remove(Path(path))


@dataclass(frozen=True)
class FolderStore:
    """Folders by key."""

    root: Path
    limit: int
    """Folders that stay; the least recently used makes room."""

    def path(self, key: str) -> Path:
        """Path of a key's folder, which need not exist."""
        return self.root / key

    def touch(self, key: str) -> None:
        """Note a use of a folder."""
        with contextlib.suppress(OSError):
            os.utime(self.path(key))

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Let one process at a time search and store a key's folder.

        Raises `OSError` if there can be no such folder.
        """
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self._lock_path(key), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # The system gives the lock back when the process ends, in whatever way.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def make_room(self) -> None:
        """Remove the least recently used folders beyond `limit`."""
        folders = [path for path in self.root.iterdir() if path.is_dir() and not path.name.startswith(".")]
        for path in sorted(folders, key=lambda path: path.stat().st_mtime)[: -self.limit]:
            # Whoever uses it has its files in memory.
            leftovers.remove_tree(path)
            self._lock_path(path.name).unlink(missing_ok=True)

    def _lock_path(self, key: str) -> Path:
        return self.root / f".{key}.lock"
