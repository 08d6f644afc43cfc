"""Folder store: folders by key, shared between processes, the most recently used."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.system import leftovers


@dataclass(frozen=True)
class FolderStore:
    """Folders by key."""

    root: Path
    """Folder of the folders."""
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

        Raises
        ------
        OSError
            If there can be no such folder.
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
